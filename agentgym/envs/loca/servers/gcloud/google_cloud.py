"""Google Cloud: BigQuery, Cloud Storage, Compute Engine and Cloud Logging of one project."""

from __future__ import annotations

from typing import ClassVar

from agentgym.envs.loca.servers.gcloud.compute import COMPUTE_SCHEMA, Compute
from agentgym.envs.loca.servers.gcloud.logging_service import LOGGING_SCHEMA, Logging
from agentgym.envs.loca.servers.gcloud.storage import STORAGE_SCHEMA, Storage
from agentgym.envs.loca.servers.warehouse.bigquery import BIGQUERY_SCHEMA, BigQuery


# The tools are listed from the last class to the first.
class GoogleCloud(Logging, Compute, Storage, BigQuery):
    """All services of the project; BigQuery loads from and exports to the workspace and gs://bucket/object."""

    name: ClassVar[str] = "google_cloud"
    schema: ClassVar[str] = BIGQUERY_SCHEMA + STORAGE_SCHEMA + COMPUTE_SCHEMA + LOGGING_SCHEMA

    def read_uri(self, uri: str) -> bytes:
        """The bytes of gs://bucket/object, or of a file in the workspace."""
        return self.read_gs(uri) if uri.startswith("gs://") else super().read_uri(uri)

    def write_uri(self, uri: str, data: bytes) -> None:
        """Write gs://bucket/object, or a file in the workspace."""
        if uri.startswith("gs://"):
            self.write_gs(uri, data)
        else:
            super().write_uri(uri, data)
