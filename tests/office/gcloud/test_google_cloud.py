"""Cloud Storage: each tool against hand-computed facts and a model."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.results import listed_items
from agentgym.office import START
from agentgym.text.tools import ToolError
from tests.office.direct import DirectCloud


@pytest.fixture
def cloud() -> DirectCloud:
    made = DirectCloud()
    made.storage.add_bucket("box")
    return made


def names(cloud: DirectCloud, **arguments: Any) -> list[str]:
    lines = cloud.storage_list_objects("box", **arguments).split("\n")[1:]
    return [line[2:].rpartition(": ")[0] for line in lines if line.startswith("- ")]


def fields(text: str) -> dict[str, str]:
    return dict(line.strip().split(": ", 1) for line in text.split("\n")[1:] if ": " in line)


def test_services_share_a_project(cloud: DirectCloud) -> None:
    cloud.bigquery.load("d", "t", {"n": "INT64"}, [(1,)])
    [dataset] = listed_items(cloud.bigquery_list_datasets())
    assert dataset == "d (Project: local-project)"
    cloud.logging_write_log("app", "x")
    assert cloud.logging.log_entries("app")[0]["logName"] == "projects/local-project/logs/app"


INVALID = ["", "ab", "a" * 64, "a b", "é" * 5, "box\n", "Box", "-box", "box_", "my.box"]


@pytest.mark.parametrize("name", [*INVALID, "goog-x", "my-google", "g00gle1"])
def test_invalid_bucket_names(cloud: DirectCloud, name: str) -> None:
    with pytest.raises(ToolError, match=r"invalid argument: .* is not a valid bucket name"):
        cloud.storage_create_bucket(name)


def test_buckets() -> None:
    cloud = DirectCloud()
    made = cloud.storage_create_bucket("iot_anomaly_reports", "europe-west1")
    assert made == "Created bucket iot_anomaly_reports in EUROPE-WEST1"
    assert cloud.storage_create_bucket("a1b") == "Created bucket a1b in US"
    with pytest.raises(ToolError, match='conflict: bucket "a1b" already exists'):
        cloud.storage_create_bucket("a1b")
    with pytest.raises(ToolError, match="invalid argument: location must be one of US, EU"):
        cloud.storage_create_bucket("other", "mars-1")
    assert cloud.storage.buckets() == ["a1b", "iot_anomaly_reports"]
    assert listed_items(cloud.storage_list_buckets()) == [
        "a1b: US",
        "iot_anomaly_reports: EUROPE-WEST1",
    ]
    assert fields(cloud.storage_get_bucket_info("a1b")) == {
        "Location": "US", "Storage Class": "STANDARD", "Created": "2025-01-15T09:00:02Z", "Versioning": "Disabled",
        "Labels": "None", "Lifecycle Rules": "0",
    }  # fmt: skip
    with pytest.raises(ToolError, match="not found: there is no bucket"):
        cloud.storage_get_bucket_info("none")


def test_upload_and_download(cloud: DirectCloud) -> None:
    cloud.context.files.write("report.csv", "hello")
    assert (
        cloud.storage_upload_file("box", "report.csv", "2025/anomaly_report.csv")
        == "Uploaded report.csv to box/2025/anomaly_report.csv"
    )
    [row] = cloud.store.find("objects")
    assert (row["md5"], row["generation"]) == (
        "5d41402abc4b2a76b9719d911017c592",
        int(START.timestamp() + 1) * 10**6,
    )
    assert (
        cloud.storage_list_objects("box")
        == "Objects in bucket box (1):\n- 2025/anomaly_report.csv: 5 bytes"
    )
    assert (
        cloud.storage_download_file("box", "2025/anomaly_report.csv", "back/x.csv")
        == "Downloaded box/2025/anomaly_report.csv to /workspace/back/x.csv"
    )
    assert (
        cloud.context.files.read("back/x.csv")
        == cloud.storage.read_object("box", "2025/anomaly_report.csv")
        == b"hello"
    )
    for refused in (
        lambda: cloud.storage_upload_file("box", "missing.csv", "x"),
        lambda: cloud.storage_upload_file("box", "report.csv", "x" * 1025),
        lambda: cloud.storage_upload_file("box", "report.csv", ".."),
        lambda: cloud.storage_upload_file("none", "report.csv", "x"),
        lambda: cloud.storage_download_file("box", "x", "back/x.csv"),
        lambda: cloud.storage_download_file("box", "2025/anomaly_report.csv", "../x"),
        lambda: cloud.storage_download_file(
            "box", "2025/anomaly_report.csv", "y", generation=10**30
        ),
    ):
        with pytest.raises(ToolError):
            refused()


def test_objects_have_a_quota(cloud: DirectCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym.office.gcloud.storage.MAX_BYTES", 10)
    cloud.context.files.write("a", "x" * 6)
    cloud.storage_upload_file("box", "a", "a")
    with pytest.raises(
        ToolError, match="limit exceeded: the objects of a project have at most 10 bytes"
    ):
        cloud.storage_copy_object("box", "a", "box", "b")
    assert cloud.storage.objects("box") == ["a"]


def test_listings_have_prefixes_and_pages(cloud: DirectCloud) -> None:
    for name in ("b", "a/2", "a/10", "é", "a", "a%"):
        cloud.storage.put_object("box", name, name)
    assert names(cloud) == sorted(["b", "a/2", "a/10", "é", "a", "a%"], key=str.encode)
    assert names(cloud, prefix="a/") == cloud.storage.objects("box", "a/") == ["a/10", "a/2"]
    found, token = [], ""
    while True:
        page = cloud.storage_list_objects("box", max_results=2, page_token=token)
        assert page.startswith("Objects in bucket box (6):")
        found += names(cloud, max_results=2, page_token=token)
        more = re.search(r"\n\.\.\. \(page_token: (.*)\)\Z", page)
        if not more:
            break
        token = more[1]
    assert found == names(cloud)
    for arguments in (
        {"max_results": 0},
        {"max_results": 1001},
        {"page_token": "x"},
        {"page_token": f"{10**20}/a"},
    ):
        with pytest.raises(ToolError, match="invalid argument"):
            names(cloud, **arguments)


Objects = dict[tuple[str, str], bytes]


def step(cloud: DirectCloud, model: Objects, rng: np.random.Generator) -> None:
    place, target = [(("box", "other")[rng.integers(2)], "abc"[rng.integers(3)]) for _ in range(2)]
    act = ("upload", "delete", "copy", "move")[rng.integers(4)]
    if act == "upload":
        model[place] = bytes(rng.integers(0, 256, int(rng.integers(200))).astype(np.uint8))
        cloud.context.files.write("up", model[place])
        cloud.storage_upload_file(place[0], "up", place[1])
    elif act == "copy" and place in model:
        cloud.storage_copy_object(*place, *target)
        model[target] = model[place]
    elif act == "delete" and place in model:
        cloud.storage_delete_object(*place)
        del model[place]
    elif act == "move" and place in model and place != target:
        cloud.storage_move_object(*place, *target)
        model[target] = model.pop(place)
    else:
        with pytest.raises(ToolError):
            cloud.storage_move_object(*place, *(place if place in model else target))


def test_random_calls_match_a_model(cloud: DirectCloud) -> None:
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
    sizes = [fields(cloud.storage_get_bucket_size(bucket)) for bucket in ("box", "other")]
    assert sum(int(size["Objects"]) for size in sizes) == len(model)
    assert sum(int(size["Bytes"]) for size in sizes) == sum(map(len, model.values()))


def test_a_generation_selects_one_version(cloud: DirectCloud) -> None:
    generations = []
    for text in ("one", "two"):
        cloud.storage.put_object("box", "a", text)
        generations.append(cloud.store.find("objects")[0]["generation"])
    first, second = generations
    assert first < second
    assert cloud.storage_list_objects("box", versions=True) == (
        f"Objects in bucket box (1):\n- a: 3 bytes (generation {second})"
    )
    with pytest.raises(
        ToolError, match=f'not found: there is no object "a" with generation {first} in bucket'
    ):
        cloud.storage_delete_object("box", "a", first)
    assert cloud.storage_delete_object("box", "a", second) == "Deleted a from bucket box"
    assert names(cloud) == []
