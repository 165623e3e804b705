"""Data warehouses: BigQuery and Snowflake in SQL, translated by SQLGlot and run by DuckDB."""
