"""GoogleSQL and Snowflake SQL, translated to DuckDB's dialect with SQLGlot."""
