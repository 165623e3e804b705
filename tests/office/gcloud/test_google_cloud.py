"""Cloud Storage: its quota, and random calls against a model."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.text.tools import ToolError
from tests.office.test_laws import call, refused


@pytest.fixture
def cloud() -> GoogleCloud:
    made = GoogleCloud()
    made.storage.add_bucket("box")
    return made


def fields(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.split("\n")[1:] if ": " in line)


def test_objects_have_a_quota(cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym.office.gcloud.storage.MAX_BYTES", 10)
    cloud.storage.put_object("box", "a", "x" * 6)
    text = "limit exceeded: the objects of a project have at most 10 bytes"
    place = {"source_bucket": "box", "source_blob": "a", "dest_bucket": "box", "dest_blob": "b"}
    refused(cloud, "storage_copy_object", text, **place)


Objects = dict[tuple[str, str], bytes]


def move(cloud: GoogleCloud, tool: str, place: tuple[str, str], target: tuple[str, str]) -> None:
    keys = ("source_bucket", "source_blob", "dest_bucket", "dest_blob")
    call(cloud, tool, **dict(zip(keys, (*place, *target), strict=True)))


def step(cloud: GoogleCloud, model: Objects, rng: np.random.Generator) -> None:
    place, target = [(("box", "other")[rng.integers(2)], "abc"[rng.integers(3)]) for _ in range(2)]
    act = ("upload", "delete", "copy", "move")[rng.integers(4)]
    bucket, blob = place
    if act == "upload":
        model[place] = bytes(rng.integers(0, 256, int(rng.integers(200))).astype(np.uint8))
        cloud.context.files.write("up", model[place])
        file = {"source_file_path": "up", "destination_blob_name": blob}
        call(cloud, "storage_upload_file", bucket_name=bucket, **file)
    elif act == "copy" and place in model:
        move(cloud, "storage_copy_object", place, target)
        model[target] = model[place]
    elif act == "delete" and place in model:
        call(cloud, "storage_delete_object", bucket_name=bucket, blob_name=blob)
        del model[place]
    elif act == "move" and place in model and place != target:
        move(cloud, "storage_move_object", place, target)
        model[target] = model.pop(place)
    else:
        with pytest.raises(ToolError):
            move(cloud, "storage_move_object", place, place if place in model else target)


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
    sizes = [
        fields(call(cloud, "storage_get_bucket_size", bucket_name=bucket))
        for bucket in ("box", "other")
    ]
    assert sum(int(size["Objects"]) for size in sizes) == len(model)
    assert sum(int(size["Bytes"]) for size in sizes) == sum(map(len, model.values()))
