"""Google Cloud: BigQuery, Cloud Storage, Compute Engine and Cloud Logging of one project."""

from __future__ import annotations

from typing import ClassVar

from agentgym.office.context import OfficeContext
from agentgym.office.gcloud.bigquery import BIGQUERY_SCHEMA, BigQuery
from agentgym.office.gcloud.compute import Compute
from agentgym.office.gcloud.logging_service import LOGGING_SCHEMA, Logging
from agentgym.office.gcloud.storage import STORAGE_SCHEMA, Storage
from agentgym.office.warehouse.engine_server import EngineServer


class GoogleCloud(EngineServer):
    """All services of one project. BigQuery also reads and writes workspace files and gs://
    objects.
    """

    name: ClassVar[str] = "google_cloud"
    dialect: ClassVar[str] = "bigquery"
    schema: ClassVar[str] = BIGQUERY_SCHEMA + STORAGE_SCHEMA + LOGGING_SCHEMA

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self.storage = Storage(self)
        self.bigquery = BigQuery(self, self.storage)
        self.logging = Logging(self, self.storage)
        # The tools keep the published server's order.
        self.parts = (self.bigquery, self.storage, Compute(), self.logging)
