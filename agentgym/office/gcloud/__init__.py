"""Google Cloud: storage, logging, compute and BigQuery."""
