"""Google Cloud: BigQuery, Cloud Storage, Compute Engine and Cloud Logging of one project."""

from __future__ import annotations

from pathlib import Path

from agentgym.office.context import OfficeContext
from agentgym.office.disabled import with_disabled_tools
from agentgym.office.gcloud.bigquery import BIGQUERY_SCHEMA, BigQuery
from agentgym.office.gcloud.logging_service import LOGGING_SCHEMA, Logging
from agentgym.office.gcloud.storage import STORAGE_SCHEMA, Storage
from agentgym.office.warehouse.engine_server import EngineServer


@with_disabled_tools(Path(__file__).with_name("disabled_tools.json"))
class GoogleCloud(EngineServer):
    """The Google Cloud services of one project. BigQuery can read and write workspace files and
    gs:// objects.
    """

    name = "google_cloud"
    dialect = "bigquery"
    schema = BIGQUERY_SCHEMA + STORAGE_SCHEMA + LOGGING_SCHEMA
    tool_order = tuple(
        """
        bigquery_run_query bigquery_list_datasets bigquery_create_dataset
        bigquery_get_dataset_info bigquery_load_csv_data bigquery_export_table
        bigquery_list_jobs bigquery_cancel_job storage_list_buckets storage_create_bucket
        storage_list_objects storage_upload_file storage_download_file storage_delete_object
        storage_get_bucket_info storage_generate_signed_url storage_copy_object
        storage_move_object storage_enable_versioning storage_get_bucket_size
        storage_set_bucket_lifecycle compute_list_instances compute_create_instance
        compute_delete_instance compute_start_instance compute_stop_instance
        compute_restart_instance compute_get_instance compute_list_zones
        compute_wait_for_operation logging_write_log logging_read_logs logging_list_logs
        logging_delete_log logging_create_log_bucket logging_list_log_buckets
        logging_create_log_sink logging_list_log_sinks logging_delete_log_sink
        """.split()
    )

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self.storage = Storage(self)
        self.bigquery = BigQuery(self)
        self.logging = Logging(self)
        self.parts = (self.bigquery, self.storage, self.logging)
