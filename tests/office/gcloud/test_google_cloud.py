"""Cloud Storage under random calls, against a model."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.text.tools import ToolError
from tests.office.test_laws import call


@pytest.fixture
def cloud() -> GoogleCloud:
    made = GoogleCloud()
    made.storage.add_bucket("box")
    return made


Objects = dict[tuple[str, str], bytes]


def step(cloud: GoogleCloud, model: Objects, rng: np.random.Generator) -> None:
    place = bucket, blob = ("box", "other")[rng.integers(2)], "abc"[rng.integers(3)]
    if rng.integers(2):
        model[place] = bytes(rng.integers(0, 256, int(rng.integers(200))).astype(np.uint8))
        cloud.context.files.write("up", model[place])
        file = {"source_file_path": "up", "destination_blob_name": blob}
        call(cloud, "storage_upload_file", bucket_name=bucket, **file)
    elif place in model:
        call(cloud, "storage_delete_object", bucket_name=bucket, blob_name=blob)
        del model[place]
    else:
        with pytest.raises(ToolError):
            call(cloud, "storage_delete_object", bucket_name=bucket, blob_name=blob)


def test_random_calls_match_a_model(cloud: GoogleCloud) -> None:
    rng = np.random.default_rng(1)
    cloud.storage.add_bucket("other")
    model: Objects = {}
    for _ in range(400):
        step(cloud, model, rng)
    rows = cloud.store.find("objects")
    assert {(row["bucket"], row["name"]): row["data"] for row in rows} == model
    for row in rows:
        assert row["md5"] == hashlib.md5(row["data"]).hexdigest()
        assert row["size"] == len(row["data"])
