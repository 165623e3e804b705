"""Google Cloud: BigQuery, Cloud Storage, Compute Engine and Cloud Logging of one project."""

from __future__ import annotations

from typing import ClassVar

from agentgym.envs.loca.servers.compute import COMPUTE_SCHEMA, Compute
from agentgym.envs.loca.servers.logging_service import LOGGING_SCHEMA, Logging
from agentgym.envs.loca.servers.storage import STORAGE_SCHEMA, Storage


# The tools are listed from the last class to the first.
class GoogleCloud(Logging, Compute, Storage):
    """All services of the project."""

    name: ClassVar[str] = "google_cloud"
    schema: ClassVar[str] = STORAGE_SCHEMA + COMPUTE_SCHEMA + LOGGING_SCHEMA
