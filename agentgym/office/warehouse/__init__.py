"""BigQuery and Snowflake SQL, translated by SQLGlot and run by DuckDB."""
