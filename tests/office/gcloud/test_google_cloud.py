"""Cloud Storage: each tool against hand-computed facts and a model."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.results import listed_items
from agentgym.office import START
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.text.tools import ToolError

DAY = timedelta(days=1)


@pytest.fixture
def cloud() -> GoogleCloud:
    made = GoogleCloud()
    made.storage.add_bucket("box")
    return made


def names(cloud: GoogleCloud, **arguments: Any) -> list[str]:
    lines = cloud.storage.storage_list_objects("box", **arguments).split("\n")[1:]
    return [line[2:].rpartition(": ")[0] for line in lines if line.startswith("- ")]


def fields(text: str) -> dict[str, str]:
    return dict(line.strip().split(": ", 1) for line in text.split("\n")[1:] if ": " in line)


def test_services_share_a_project(cloud: GoogleCloud) -> None:
    cloud.bigquery.load("d", "t", {"n": "INT64"}, [(1,)])
    [dataset] = listed_items(cloud.bigquery.bigquery_list_datasets())
    assert dataset == "d (Project: local-project)"
    cloud.logging.logging_write_log("app", "x")
    assert cloud.logging.log_entries("app")[0]["logName"] == "projects/local-project/logs/app"


INVALID = ["", "ab", "a" * 64, "a b", "é" * 5, "box\n", "Box", "-box", "box_", "my.box"]


@pytest.mark.parametrize("name", [*INVALID, "goog-x", "my-google", "g00gle1"])
def test_invalid_bucket_names(cloud: GoogleCloud, name: str) -> None:
    with pytest.raises(ToolError, match=r"invalid argument: .* is not a valid bucket name"):
        cloud.storage.storage_create_bucket(name)


def test_buckets() -> None:
    cloud = GoogleCloud()
    made = cloud.storage.storage_create_bucket("iot_anomaly_reports", "europe-west1")
    assert made == "Created bucket iot_anomaly_reports in EUROPE-WEST1"
    assert cloud.storage.storage_create_bucket("a1b") == "Created bucket a1b in US"
    with pytest.raises(ToolError, match='conflict: bucket "a1b" already exists'):
        cloud.storage.storage_create_bucket("a1b")
    with pytest.raises(ToolError, match="invalid argument: location must be one of US, EU"):
        cloud.storage.storage_create_bucket("other", "mars-1")
    assert cloud.storage.buckets() == ["a1b", "iot_anomaly_reports"]
    assert listed_items(cloud.storage.storage_list_buckets()) == [
        "a1b: US",
        "iot_anomaly_reports: EUROPE-WEST1",
    ]
    cloud.storage.storage_enable_versioning("a1b")
    assert fields(cloud.storage.storage_get_bucket_info("a1b")) == {
        "Location": "US", "Storage Class": "STANDARD", "Created": "2025-01-15T09:00:02Z", "Versioning": "Enabled",
        "Labels": "None", "Lifecycle Rules": "0",
    }  # fmt: skip
    with pytest.raises(ToolError, match="not found: there is no bucket"):
        cloud.storage.storage_get_bucket_info("none")


def test_upload_and_download(cloud: GoogleCloud) -> None:
    cloud.context.files.write("report.csv", "hello")
    assert (
        cloud.storage.storage_upload_file("box", "report.csv", "2025/anomaly_report.csv")
        == "Uploaded report.csv to box/2025/anomaly_report.csv"
    )
    [row] = cloud.store.find("objects")
    assert (row["md5"], row["generation"]) == (
        "5d41402abc4b2a76b9719d911017c592",
        int(START.timestamp() + 1) * 10**6,
    )
    assert (
        cloud.storage.storage_list_objects("box")
        == "Objects in bucket box (1):\n- 2025/anomaly_report.csv: 5 bytes"
    )
    assert (
        cloud.storage.storage_download_file("box", "2025/anomaly_report.csv", "back/x.csv")
        == "Downloaded box/2025/anomaly_report.csv to /workspace/back/x.csv"
    )
    assert (
        cloud.context.files.read("back/x.csv")
        == cloud.storage.read_object("box", "2025/anomaly_report.csv")
        == b"hello"
    )
    for refused in (
        lambda: cloud.storage.storage_upload_file("box", "missing.csv", "x"),
        lambda: cloud.storage.storage_upload_file("box", "report.csv", "x" * 1025),
        lambda: cloud.storage.storage_upload_file("box", "report.csv", ".."),
        lambda: cloud.storage.storage_upload_file("none", "report.csv", "x"),
        lambda: cloud.storage.storage_download_file("box", "x", "back/x.csv"),
        lambda: cloud.storage.storage_download_file("box", "2025/anomaly_report.csv", "../x"),
        lambda: cloud.storage.storage_download_file(
            "box", "2025/anomaly_report.csv", "y", generation=10**30
        ),
    ):
        with pytest.raises(ToolError):
            refused()


def test_objects_have_a_quota(cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym.office.gcloud.storage.MAX_BYTES", 10)
    cloud.context.files.write("a", "x" * 6)
    cloud.storage.storage_upload_file("box", "a", "a")
    with pytest.raises(
        ToolError, match="limit exceeded: the objects of a project have at most 10 bytes"
    ):
        cloud.storage.storage_copy_object("box", "a", "box", "b")
    assert cloud.storage.objects("box") == ["a"]


def test_listings_have_prefixes_and_pages(cloud: GoogleCloud) -> None:
    for name in ("b", "a/2", "a/10", "é", "a", "a%"):
        cloud.storage.put_object("box", name, name)
    assert names(cloud) == sorted(["b", "a/2", "a/10", "é", "a", "a%"], key=str.encode)
    assert names(cloud, prefix="a/") == cloud.storage.objects("box", "a/") == ["a/10", "a/2"]
    found, token = [], ""
    while True:
        page = cloud.storage.storage_list_objects("box", max_results=2, page_token=token)
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


Place = tuple[str, str]


class Model:
    def __init__(self) -> None:
        self.versioned = {"box": False, "other": True}
        self.live: dict[Place, bytes] = {}
        self.old: list[tuple[str, str, bytes]] = []

    def retire(self, place: Place) -> None:
        if place in self.live and self.versioned[place[0]]:
            self.old.append((*place, self.live[place]))
        self.live.pop(place, None)

    def put(self, place: Place, data: bytes) -> None:
        self.retire(place)
        self.live[place] = data


def step(cloud: GoogleCloud, model: Model, rng: np.random.Generator) -> None:
    place, target = [(("box", "other")[rng.integers(2)], "abc"[rng.integers(3)]) for _ in range(2)]
    act = ("version", "upload", "delete", "copy", "move")[rng.integers(5)]
    if act == "version":
        model.versioned[place[0]] = bool(rng.integers(2))
        cloud.storage.storage_enable_versioning(place[0], model.versioned[place[0]])
    elif act == "upload":
        data = bytes(rng.integers(0, 256, int(rng.integers(200))).astype(np.uint8))
        cloud.context.files.write("up", data)
        cloud.storage.storage_upload_file(place[0], "up", place[1])
        model.put(place, data)
    elif place not in model.live or (act == "move" and place == target):
        with pytest.raises(ToolError):
            cloud.storage.storage_delete_object(
                *place
            ) if act == "delete" else cloud.storage.storage_move_object(*place, *target)
    elif act == "delete":
        text = cloud.storage.storage_delete_object(*place)
        assert text.endswith("is noncurrent") == model.versioned[place[0]]
        model.retire(place)
    else:
        (cloud.storage.storage_move_object if act == "move" else cloud.storage.storage_copy_object)(
            *place, *target
        )
        model.put(target, model.live[place])
        if act == "move":
            model.retire(place)


def test_random_calls_match_a_model(cloud: GoogleCloud) -> None:
    rng = np.random.default_rng(1)
    cloud.storage.add_bucket("other", versioning=True)
    model = Model()
    for count in range(400):
        step(cloud, model, rng)
        if count % 20 == 0:
            assert {
                (box, name): cloud.storage.read_object(box, name)
                for box in model.versioned
                for name in cloud.storage.objects(box)
            } == model.live
    held, old = model.live, model.old
    rows = cloud.store.find("objects")
    assert sorted(
        (row["bucket"], row["name"], row["data"]) for row in rows if row["deleted"]
    ) == sorted(old)
    assert len({(row["bucket"], row["name"], row["generation"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["md5"] == hashlib.md5(row["data"]).hexdigest()
        assert row["size"] == len(row["data"])
    sizes = [fields(cloud.storage.storage_get_bucket_size(bucket)) for bucket in ("box", "other")]
    assert sum(int(size["Objects"]) for size in sizes) == len(held)
    assert sum(int(size["Bytes"]) for size in sizes) == sum(map(len, held.values()))
    assert sum(int(size.get("Noncurrent", "0").split()[0]) for size in sizes) == len(old)
    assert cloud.store.rows("PRAGMA foreign_key_check") == []


def test_versions(cloud: GoogleCloud) -> None:
    cloud.storage.storage_enable_versioning("box")
    for text in ("one", "two"):
        cloud.storage.put_object("box", "a", text)
    generations = [row["generation"] for row in cloud.store.find("objects", order="generation")]
    first, second = generations
    assert cloud.storage.storage_list_objects("box", versions=True) == (
        f"Objects in bucket box (2):\n- a: 3 bytes (generation {first}, noncurrent since 2025-01-15T09:00:01Z)\n"
        f"- a: 3 bytes (generation {second})"
    )
    assert [cloud.storage.read_object("box", "a", each) for each in (first, second, None)] == [
        b"one",
        b"two",
        b"two",
    ]
    assert (
        cloud.storage.storage_delete_object("box", "a")
        == f"Deleted a from bucket box; its generation {second} is noncurrent"
    )
    assert cloud.storage.storage_delete_object("box", "a", second) == "Deleted a from bucket box"
    assert [row["generation"] for row in cloud.store.find("objects")] == [first]
    with pytest.raises(
        ToolError, match=f'not found: there is no object "a" with generation {second} in bucket'
    ):
        cloud.storage.storage_delete_object("box", "a", second)


def test_lifecycle_rules_follow_the_clock(cloud: GoogleCloud) -> None:
    now = cloud.context.clock.now()
    for name, age in (
        ("old", 31 * DAY),
        ("edge", 30 * DAY),
        ("soon", 30 * DAY - timedelta(seconds=5)),
        ("new", DAY),
    ):
        cloud.storage.put_object("box", name, "x", created=now - age)
    shown = cloud.storage.storage_set_bucket_lifecycle("box", 30)
    assert shown == "Lifecycle rule set for bucket box: Delete after 30 days"
    assert cloud.storage.storage_get_bucket_info("box").endswith(
        "\nLifecycle Rules: 1\n- Delete after 30 days"
    )
    assert names(cloud) == ["new", "soon"]
    for _ in range(4):
        cloud.context.clock.tick()
    assert names(cloud) == ["new"]
    cloud.storage.storage_set_bucket_lifecycle("box", 1, "setstorageclass", "coldline")
    assert cloud.storage.storage_list_objects("box").endswith("\n- new: 1 bytes (COLDLINE)")
    cloud.storage.storage_set_bucket_lifecycle("box", 1, "SetStorageClass", "NEARLINE")
    assert cloud.storage.storage_list_objects("box").endswith("\n- new: 1 bytes (COLDLINE)")
    for arguments in ((-1,), (10**30,), (1, "Burn"), (1, "SetStorageClass", "STANDARD")):
        with pytest.raises(ToolError, match="invalid argument"):
            cloud.storage.storage_set_bucket_lifecycle("box", *arguments)


def test_lifecycle_rules_make_versions_noncurrent_first(cloud: GoogleCloud) -> None:
    cloud.storage.storage_enable_versioning("box")
    cloud.storage.put_object("box", "a", "x", created=cloud.context.clock.now() - 9 * DAY)
    cloud.storage.storage_set_bucket_lifecycle("box", 9)
    assert (names(cloud), names(cloud, versions=True)) == ([], ["a"])
    cloud.context.clock._now += DAY
    assert names(cloud, versions=True) == []
