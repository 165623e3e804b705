"""The published Google Cloud server's calls, and the differences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agentgym.office.gcloud.google_cloud import GoogleCloud
from tests.office.published import DISABLED, Call, Difference

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def prepared() -> GoogleCloud:
    cloud = GoogleCloud()
    cloud.bigquery.load("shop", "sales", {"id": "INT64", "name": "STRING"}, [(1, "a"), (2, None)])
    cloud.storage.add_bucket("box")
    cloud.storage.put_object("box", "a.txt", "hello")
    cloud.logging.log("app", "it runs", "NOTICE")
    cloud.context.files.write("in.csv", "id,name\n3,c\n")
    return cloud


def from_answer(pattern: str, **others: Any) -> Callable[[list[Any]], Mapping[str, Any]]:
    """Return arguments whose first value comes from the previous result."""

    def arguments(answers: list[Any]) -> Mapping[str, Any]:
        match = re.search(pattern, answers[-1])
        assert match
        return {match.lastgroup or "": match[1], **others}

    return arguments


def record(heading: str, *fields: str) -> str:
    return "\n".join([heading, *fields])


def query(total: int, shown: str) -> str:
    return rf"Query executed successfully\nTotal rows: {total}\nExecution time: \d+ms\n\n{shown}"


BIGQUERY = [
    Call(
        "bigquery_run_query",
        {"query": "SELECT * FROM shop.sales ORDER BY id"},
        query(2, r"Results \(2 rows\):\n"),
    ),
    Call("bigquery_list_datasets", {}, r"Datasets \(1\):\n- shop \(Project: local-project\)"),
    Call("bigquery_create_dataset", {"dataset_id": "crm"}, "Created dataset crm in US"),
    Call(
        "bigquery_get_dataset_info",
        {"dataset_id": "crm"},
        record(
            "Dataset crm",
            "Full Name: local-project:crm",
            "Location: US",
            "Description: None",
            f"Created: {TIME}",
            f"Modified: {TIME}",
            "Labels: None",
        ),
    ),
    Call("bigquery_list_jobs", {"state_filter": "running"}, "There are no such jobs."),
    Call(
        "bigquery_list_jobs",
        {"max_results": 1},
        rf"Jobs \(1\):\n- job_\w+: [A-Z]+ [^,]+, DONE, {TIME}",
    ),
]
STORAGE = [
    Call("storage_list_buckets", {}, r"Buckets \(1\):\n- box: US"),
    Call("storage_create_bucket", {"bucket_name": "other"}, "Created bucket other in US"),
    Call(
        "storage_upload_file",
        {"bucket_name": "box", "source_file_path": "in.csv", "destination_blob_name": "in.csv"},
        r"Uploaded in\.csv to box/in\.csv",
    ),
    Call(
        "storage_list_objects",
        {"bucket_name": "box", "max_results": 1},
        r"Objects in bucket box \(2\):\n- a\.txt: 5 bytes\n\.\.\. \(page_token: \S+\)",
    ),
    Call(
        "storage_download_file",
        {"bucket_name": "box", "source_blob_name": "a.txt", "destination_file_path": "b.txt"},
        r"Downloaded box/a\.txt to /workspace/b\.txt",
    ),
    Call(
        "storage_get_bucket_size",
        {"bucket_name": "box"},
        record("Size of bucket box", "Objects: 2", r"Bytes: \d+", r"MB: 0\.00", r"GB: 0\.00"),
    ),
    Call(
        "storage_copy_object",
        {
            "source_bucket": "box",
            "source_blob": "a.txt",
            "dest_bucket": "other",
            "dest_blob": "b.txt",
        },
        r"Copied box/a\.txt to other/b\.txt",
    ),
    Call(
        "storage_move_object",
        {
            "source_bucket": "other",
            "source_blob": "b.txt",
            "dest_bucket": "other",
            "dest_blob": "c.txt",
        },
        r"Moved other/b\.txt to other/c\.txt",
    ),
    Call(
        "storage_delete_object",
        {"bucket_name": "other", "blob_name": "c.txt"},
        r"Deleted c\.txt from bucket other",
    ),
    Call(
        "storage_get_bucket_info",
        {"bucket_name": "box"},
        record(
            "Bucket box",
            "Location: US",
            "Storage Class: STANDARD",
            f"Created: {TIME}",
            "Versioning: Disabled",
            "Labels: None",
            "Lifecycle Rules: 0",
        ),
    ),
]
LOGGING = [
    Call(
        "logging_write_log",
        {"log_name": "app", "message": "x" * 300},
        "Wrote an entry to log app with severity INFO",
    ),
    Call(
        "logging_read_logs",
        {},
        rf"Log entries \(2\):\n\n\[{TIME}\] INFO - app:\n  x{{200}}\.\.\.\n\n\[{TIME}\] NOTICE - app:\n  it runs",
    ),
    Call("logging_read_logs", {"log_filter": "severity>=ERROR"}, r"No log entries match\."),
    Call("logging_list_logs", {}, r"Logs \(1\):\n- app"),
    Call("logging_delete_log", {"log_name": "app"}, "Deleted log app"),
    Call("logging_list_logs", {}, r"No logs have entries\."),
]
CALLS = [*BIGQUERY, *STORAGE, *LOGGING]

BUCKET = "A bucket or object that is not there is an error"
DIFFERENCES = {
    "bigquery_run_query": Difference(
        "GoogleSQL runs as in BigQuery: unquoted `dataset.table` and six INFORMATION_SCHEMA views work, booleans are "
        "booleans, a dry run runs nothing, and the result reports the number of changed rows. Scripts, transactions, "
        "functions and temporary tables are not enabled."
    ),
    "bigquery_create_dataset": Difference("A dataset that is there already is an error."),
    "bigquery_get_dataset_info": Difference("A dataset that is not there is an error."),
    "bigquery_load_csv_data": DISABLED,
    "bigquery_list_jobs": Difference(
        "The jobs that ran are listed, with the rows that they changed."
    ),
    "storage_create_bucket": Difference(
        "Names and locations follow the rules of Cloud Storage, and a bucket that is there already is an error."
    ),
    "storage_list_objects": Difference(
        "A bucket that is not there is an error; further pages and generations can be listed.",
        params={"versions", "max_results", "page_token"},
    ),
    "storage_upload_file": Difference("The size is that of the file, whatever is in it."),
    "storage_download_file": Difference(
        f"{BUCKET}; a generation can be required.", params={"generation"}
    ),
    "storage_delete_object": Difference(
        f"{BUCKET}; a generation can be required.",
        params={"generation"},
    ),
    "storage_get_bucket_info": Difference("A bucket has neither versions nor lifecycle rules."),
    "storage_copy_object": Difference(f"{BUCKET}."),
    "storage_move_object": Difference(f"{BUCKET}."),
    "storage_get_bucket_size": Difference("A bucket that is not there is an error."),
    "logging_write_log": Difference(
        "An object is written as a structured entry.", params={"message"}
    ),
    "logging_read_logs": Difference(
        "The Logging query language is understood whole, an entry that is shown alone is not cut, log buckets can be chosen and "
        "further pages read, and times are in UTC.",
        params={"log_bucket", "page_token"},
    ),
    "logging_delete_log": Difference("A log without entries is an error."),
    "storage_generate_signed_url": DISABLED,
    "storage_enable_versioning": DISABLED,
    "storage_set_bucket_lifecycle": replace(DISABLED, params={"storage_class"}),
    **dict.fromkeys(
        (
            *("logging_create_log_bucket", "logging_create_log_sink", "logging_delete_log_sink"),
            *("logging_list_log_buckets", "logging_list_log_sinks"),
            *("bigquery_export_table", "bigquery_cancel_job"),
        ),
        DISABLED,
    ),
    **{
        f"compute_{tool}": DISABLED
        for tool in (
            *("list_instances", "create_instance", "delete_instance", "start_instance"),
            *("stop_instance", "restart_instance", "get_instance", "list_zones"),
            "wait_for_operation",
        )
    },
}
