"""Find the out-of-range sensor readings from one hour in BigQuery (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from pydantic import Field

from agentgym.envs.loca.checks import CsvTable, as_text, file_state, number
from agentgym.envs.loca.draws import load_texts, pick, shuffled, text_of
from agentgym.envs.loca.fragments import as_records, settle_file
from agentgym.envs.loca.plan import Plan, PlanStep, look, look_on, read, write
from agentgym.envs.loca.published.files import (
    as_finite,
    as_name,
    read_book,
    read_table,
    read_tables,
    typed_rows,
)
from agentgym.envs.loca.published.rules import machine_failures
from agentgym.envs.loca.published.states import PublishedConfig, load_workspace
from agentgym.envs.loca.records import Rows
from agentgym.envs.loca.results import cell_rows, listed_items, query_rows, read_metadata
from agentgym.envs.loca.service_checks import (
    bigquery_failures,
    bigquery_state,
    storage_failures,
    storage_state,
)
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.files.workspace import Workspace
from agentgym.office.spreadsheet.workbooks import write_workbook
from agentgym.text.tools import ToolError
from agentgym.world.config import Choice, Share

DATASET = "machine_operating"
TABLE = "live_sensor"
BUCKET = "iot_anomaly_reports"
BOOK = "machine_operating_parameters.xlsx"
SHEET = "Operating Parameters"
REPORT = "anomaly_report.csv"
TYPES = {
    "timestamp": "TIMESTAMP",
    "machine_id": "STRING",
    "sensor_type": "STRING",
    "reading": "FLOAT64",
}
COLUMNS = (*TYPES, "normal_range")
HEADER = ("machine_id", "machine_description", "sensor_type", "unit", "min_value", "max_value")
NOON = datetime(2025, 8, 19, 12, tzinfo=UTC)
FIRST = NOON - timedelta(minutes=30)
LAST = NOON + timedelta(minutes=30)
# Times just outside the relevant hour, when anomalies do not count.
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
OUTSIDE = (FIRST - _MINUTE, FIRST - _SECOND, LAST + _SECOND, LAST + _MINUTE)
# Unit and usual range of each sensor type, in hundredths of the unit.
SENSORS = {
    "temperature": ("°C", 1500, 8500),
    "pressure": ("bar", 80, 220),
    "vibration": ("mm/s", 20, 180),
    "rpm": ("1/min", 80000, 320000),
    "current": ("A", 200, 1800),
    "flow_rate": ("l/min", 2000, 12000),
}

KINDS: Sequence[str] = load_texts("words")["MachineOperating"]["kinds"]
BUCKETS: Sequence[str] = load_texts("words")["MachineOperating"]["buckets"]
PAGE = 100  # readings per step, few enough that plans grow with the state
Range: TypeAlias = tuple[int, int]
Sensor: TypeAlias = tuple[str, str]  # a machine and a sensor type
# Probabilities that a reading is exactly at a limit, and that a sensor has no range.
_LIMIT_RATE, _MISSING_RATE = 0.04, 0.05

_RANGE = re.compile(r"\s*([0-9.,]+)\s*[-\u2013\u2014]\s*([0-9.,]+)\s*")


@dataclass(frozen=True, kw_only=True)
class MachineOperatingConfig(PublishedConfig):
    """The size is the total number of sensors.

    Attributes:
        hours: The number of hours around noon that the readings cover. Default: 4 plus one per 60
            sensors, at most 8.
        interval_minutes: The number of minutes between readings of a sensor, a divisor of 30.
        anomaly_rate: The probability that a sensor has a series of anomalies in the relevant hour.
    """

    hours: Annotated[int, Field(ge=2, le=200)] | None = None
    interval_minutes: Annotated[int, Choice((1, 2, 3, 5, 6, 10, 15, 30))] = 5
    anomaly_rate: Share = 0.15


class MachineOperating(OfficeTask[MachineOperatingConfig]):
    """Find the out-of-range sensor readings from one hour, and upload a report."""

    Config = MachineOperatingConfig
    servers = ("filesystem", "python_execute", "excel", "google_cloud", "claim_done")
    start = datetime(2025, 8, 21, 9, tzinfo=UTC)
    outputs = (REPORT, f"gs://{BUCKET}/{REPORT}")
    mutable_tables = ("google_cloud.buckets", "google_cloud.objects")
    harmless: ClassVar[Mapping[str, str]] = {
        "own:google_cloud.buckets.*": "settings of the bucket that the agent made",
        "own:google_cloud.objects.created": "when the report was uploaded",
    }
    tokens_per_unit = 945.0
    text = text_of("prompts", "MachineOperating")

    def draw(self, size: int) -> None:
        sensors = self._sensors(size)
        all_limits = {sensor: self._range(sensor[1]) for sensor in sensors}
        sure = pick(self.rng, sensors)  # this sensor always has a range and an anomaly
        ranges = {}
        for sensor, limits in all_limits.items():
            if sensor == sure or self.rng.random() >= _MISSING_RATE:
                ranges[sensor] = limits
        if size > 4:  # at least one sensor has no range
            ranges.pop(next(sensor for sensor in sensors if sensor != sure), None)
        rows = []
        hours = self.config.hours or min(8, 4 + size // 60)
        for sensor, limits in all_limits.items():
            for stamp, value in self._readings(limits, hours, sure=sensor == sure):
                rows.append((stamp, *sensor, value / 100))
        self.cloud.bigquery.load(DATASET, TABLE, TYPES, shuffled(self.rng, rows))
        self._add_distractors(rows)
        self.files.write(BOOK, self._book(sensors, ranges))
        real = {sensor: (low / 100, high / 100) for sensor, (low, high) in ranges.items()}
        self._set_truth(rows, real)

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [BOOK], REPORT)
        tables = read_tables(state, DATASET, TYPES)
        if list(tables) != [TABLE]:
            found = list(tables)
            raise ValueError(f"{state}: {DATASET} must contain only {TABLE}, got {found}")
        rows = []
        for place, (text, *row) in enumerate(tables[TABLE], 1):
            try:
                moment = datetime.fromisoformat(f"{text}+00:00")
            except ValueError as error:
                raise ValueError(f"{state}: {TABLE}: row {place}: timestamp: {error}") from None
            rows.append((f"{moment:%Y-%m-%d %H:%M:%S.%f}".removesuffix(".000000") + "+00", *row))
        self.cloud.bigquery.load(DATASET, TABLE, TYPES, rows)
        names = ("machine_id", "sensor_type")
        columns = {**dict.fromkeys(names, as_name), "min_value": as_finite, "max_value": as_finite}
        book = state / "agent_workspace" / BOOK
        table = read_book(book, SHEET)[SHEET]
        ranges = {}
        for each in typed_rows(f"{book}: {SHEET}", table, columns, names):
            machine, kind, *limits = each.values()
            ranges[machine, kind] = tuple(limits)
        columns = {"timestamp": as_name, **dict.fromkeys(names, as_name), "reading": as_finite}
        expected = read_table(state / "groundtruth_workspace" / REPORT, columns)
        self._set_truth(rows, ranges, published=expected)

    def _set_truth(
        self, rows: Sequence[tuple[Any, ...]], ranges: Mapping[Sensor, Sequence[float]], **more: Any
    ) -> None:
        anomalies = []
        for stamp, machine, kind, value in rows:
            low, high = ranges.get((machine, kind), (-math.inf, math.inf))
            if _stamp(FIRST) <= stamp <= _stamp(LAST) and not low <= value <= high:
                normal_range = f"{as_text(low)} - {as_text(high)}"
                anomalies.append((_moment(stamp), machine, kind, value, normal_range))
        self.truth = {
            "anomalies": as_records(COLUMNS, anomalies),
            "tables": bigquery_state(self.cloud, DATASET),
            "storage": storage_state(self.cloud),
            "files": file_state(self.files),
            **more,
        }

    def _sensors(self, size: int) -> list[Sensor]:
        sensors: list[Sensor] = []
        for place in (1 + self.rng.permutation(size + 3)).tolist():
            if len(sensors) < size:
                kinds = self.rng.choice(list(SENSORS), self.whole(2, 7), replace=False)
                sensors += [(f"M{place:03}", kind) for kind in kinds.tolist()]
        return sensors[:size]

    def _range(self, kind: str) -> Range:
        _, low, high = SENSORS[kind]
        step = max(1, high // 200)
        least = step * round(low * float(self.rng.uniform(0.8, 1.2)) / step)
        most = step * round(high * float(self.rng.uniform(0.8, 1.2)) / step)
        return least, most

    def _readings(self, limits: Range, hours: int, sure: bool) -> list[tuple[str, int]]:
        low, high = limits
        interval = self.config.interval_minutes
        steps = 30 * hours // interval
        minutes = interval * np.arange(-steps, steps + 1)
        values = self.rng.normal((low + high) / 2, (high - low) / 6, len(minutes))
        values = np.clip(np.rint(values), low, high).astype(int)
        at_limit = self.rng.random(len(minutes)) < _LIMIT_RATE
        values[at_limit] = self.rng.choice([low, high], int(at_limit.sum()))
        inside = np.flatnonzero(np.abs(minutes) <= 30)
        for places in (inside, np.arange(len(minutes))):
            if self.happens(self.config.anomaly_rate):
                begin = int(self.rng.choice(places))
                spell = self._spell(limits)[: len(minutes) - begin]
                values[begin : begin + len(spell)] = spell
        if self.happens(self.config.anomaly_rate):
            values[int(self.rng.choice(inside))] = int(self.rng.choice([low - 1, high + 1]))
        extra = []
        if sure or self.happens(self.config.anomaly_rate):
            ends = [inside[0], inside[-1]]  # the first and the last moment of the hour count
            if not sure:
                ends = [self.rng.choice(ends)]
            values[ends] = self._out(limits)
            extra = [(moment, self._out(limits)) for moment in OUTSIDE if sure or self.happens(0.5)]
            day = timedelta(days=int(self.rng.choice([-1, 1])))
            extra.append((NOON + day, self._out(limits)))
        readings = []
        for minute, value in zip(minutes.tolist(), values.tolist(), strict=True):
            readings.append((_stamp(NOON + timedelta(minutes=minute)), value))
        return readings + [(_stamp(moment), value) for moment, value in extra]

    def _out(self, limits: Range) -> int:
        low, high = limits
        below = self.rng.integers(max(0, 2 * low - high), low)
        above = self.rng.integers(high + 1, 2 * high)
        return int(self.rng.choice([below, above]))

    def _spell(self, limits: Range) -> list[int]:
        low, high = limits
        width = high - low
        kind = self.whole(4)
        if kind == 0:  # a spike
            parts = self.rng.uniform(0.1, 0.8, self.whole(1, 3)).tolist()
            return [high + round(width * part) + 1 for part in parts]
        if kind == 1:  # a drift
            ends = high - width // 3, high + width // 3
            return list(map(int, np.linspace(*ends, self.whole(4, 10))))
        if kind == 2:  # a swing
            return [self._out(limits) for _ in range(self.whole(3, 7))]
        return [0] * self.whole(2, 5)  # a failed sensor

    def _book(self, sensors: Sequence[Sensor], ranges: dict[Sensor, Range]) -> bytes:
        machines = {}
        for machine in dict.fromkeys(machine for machine, _ in sensors):
            machines[machine] = pick(self.rng, KINDS)
        rows, old, summary = [], [], []
        for (machine, kind), (low, high) in sorted(ranges.items()):
            unit = SENSORS[kind][0]
            rows.append((machine, machines[machine], kind, unit, low / 100, high / 100))
        for row in rows[:: max(1, len(rows) // 10)]:
            old.append((*row[:4], round(row[4] * 0.5, 2), round(row[5] * 0.9, 2)))
        for machine, name in sorted(machines.items()):
            summary.append((machine, name, f"Hall {self.whole(1, 9)}"))
        self.rng.shuffle(rows)
        return write_workbook(
            {
                SHEET: [HEADER, *rows],
                f"{SHEET} 2024": [HEADER, *old],
                "Machine Summary": [("machine_id", "name", "hall"), *summary],
            }
        )

    def _add_distractors(self, rows: Sequence[tuple[str, str, str, float]]) -> None:
        some = []
        for stamp, *sensor, value in rows[:20]:
            some.append((f"2024{stamp[4:]}", *sensor, 2 * value))
        self.cloud.bigquery.load(DATASET, f"{TABLE}_2024", TYPES, some)
        text = ",".join(COLUMNS) + "\n"
        for bucket in self.rng.choice(BUCKETS, 2, replace=False).tolist():
            self.cloud.storage.add_bucket(bucket)
            self.cloud.storage.put_object(bucket, REPORT, text)
        if self.happens(0.5):
            self.cloud.storage.add_bucket(BUCKET, "EU")
            self.cloud.storage.put_object(BUCKET, "anomaly_report_2025-08-12.csv", text)
            if self.happens(0.5):
                self.cloud.storage.put_object(BUCKET, REPORT, text)

    def plan(self) -> Plan:
        ranges = yield from _read_book()
        where = f"timestamp BETWEEN TIMESTAMP '{_stamp(FIRST)}' AND TIMESTAMP '{_stamp(LAST)}'"
        query = f"SELECT * FROM {DATASET}.{TABLE} WHERE {where}"
        count = yield read(
            "Count the readings of the hour.",
            lambda text: int(query_rows(text)[0]["readings"]),
            "bigquery_run_query",
            query=query.replace("*", "COUNT(*) AS readings"),
        )
        read_anomalies = functools.partial(_read_anomalies, ranges=ranges)
        steps = []
        for start in range(0, count, PAGE):
            label = f"Read the readings of the hour from the {start + 1}. on."
            page = f"ORDER BY machine_id, sensor_type, timestamp LIMIT {PAGE} OFFSET {start}"
            steps.append(read(label, read_anomalies, "bigquery_run_query", query=f"{query} {page}"))
        anomalies = yield steps
        bucket_exists = yield read(
            "See whether the bucket is there.",
            lambda text: BUCKET in [item.partition(":")[0] for item in listed_items(text)],
            "storage_list_buckets",
        )
        rows = as_records(COLUMNS, itertools.chain.from_iterable(anomalies))
        report = yield from settle_file(ANOMALIES, rows)
        if not bucket_exists:
            report.append(
                write(
                    f"Create the bucket {BUCKET}.",
                    self.outputs[1],
                    "storage_create_bucket",
                    same=("bucket_name",),
                    bucket_name=BUCKET,
                )
            )
        yield report
        if not (yield from _look_at_upload(rows)):
            yield write(
                f"Upload {REPORT}.",
                self.outputs[1],
                "storage_upload_file",
                thing="storage",
                bucket_name=BUCKET,
                source_file_path=REPORT,
                destination_blob_name=REPORT,
            )

    def task_failures(self) -> Iterator[str]:
        yield from ANOMALIES.failures(self.files, self.truth["anomalies"])
        try:
            data = self.cloud.storage.read_object(BUCKET, REPORT)
            # Do not report the failures of an identical copy twice.
            if not self.files.is_file(REPORT) or data != self.files.read(REPORT):
                uploaded = Workspace()
                uploaded.write(REPORT, data)
                for failure in ANOMALIES.failures(uploaded, self.truth["anomalies"]):
                    yield f"gs://{BUCKET}: {failure}"
        except ToolError as error:
            yield f"{self.outputs[1]}: {error}"
        allowed = [self.outputs[1]]
        if f"gs://{BUCKET}" not in self.truth["storage"]:
            allowed.append(f"gs://{BUCKET}")
        yield from storage_failures(self.cloud, self.truth["storage"], allowed)
        yield from bigquery_failures(self.cloud, self.truth["tables"])

    def published_failures(self) -> Iterator[str]:
        return machine_failures(self.cloud, BUCKET, self.truth["published"])


@functools.lru_cache(maxsize=4096)
def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}+00"


def _moment(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix("UTC").strip())
        if not moment.tzinfo:
            moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return text


def _same_range(actual: Any, expected: Any) -> bool:
    limits = _RANGE.fullmatch(str(actual))
    wanted = _RANGE.fullmatch(str(expected))
    if not limits or not wanted:
        return False
    return number()(limits[1], wanted[1]) and number()(limits[2], wanted[2])


ANOMALIES = CsvTable(
    REPORT,
    COLUMNS,
    {"reading": number(), "normal_range": _same_range},
    key=COLUMNS[:3],
    forms={"timestamp": _moment},
)


def _read_book() -> Generator[PlanStep | Sequence[PlanStep], Any, dict[str, list[float]]]:
    last = yield read(
        "See how long the sheet is.",
        lambda text: int(re.findall("[0-9]+", read_metadata(text)["used_ranges"][SHEET])[-1]),
        "get_workbook_metadata",
        filepath=BOOK,
        include_ranges=True,
    )
    lines = max(40, -(-last // 3))  # at most three reads, because each read loads the workbook
    steps = []
    for top in range(2, last + 1, lines):
        end = min(last, top + lines - 1)
        label = f"Read the ranges in rows {top} to {end}."
        area = {"sheet_name": SHEET, "start_cell": f"A{top}", "end_cell": f"F{end}"}
        steps.append(read(label, _read_ranges, "read_data_from_excel", filepath=BOOK, **area))
    ranges: dict[str, list[float]] = {}
    for limits in (yield steps):
        ranges |= limits
    return ranges


def _look_at_upload(rows: Rows) -> Generator[PlanStep, Any, bool]:
    bucket = {"bucket_name": BUCKET}
    copy = "uploaded_report.csv"

    def is_listed(text: str) -> bool:
        return f"\n- {REPORT}:" in text

    def is_right(text: str) -> bool:
        return ANOMALIES.matches(text.removeprefix(f"{copy}:\n"), rows)

    label, tool = f"Look for the report in {BUCKET}.", "storage_list_objects"
    if not (yield look("storage", label, is_listed, tool, **bucket, max_results=1_000)):
        return False
    blob = {"source_blob_name": REPORT, "destination_file_path": copy}
    label, tool = "Download the report.", "storage_download_file"
    yield look_on("storage", label, lambda _: True, tool, **bucket, **blob)
    label, tool = "Look at the downloaded report.", "read_multiple_files"
    matches: bool = yield look_on("storage", label, is_right, tool, paths=[copy])
    return matches


def _read_ranges(text: str) -> dict[str, list[float]]:
    return {f"{row[0]} {row[2]}": row[4:] for row in cell_rows(text)}


def _read_anomalies(text: str, ranges: Mapping[str, Sequence[float]]) -> list[list[Any]]:
    anomalies = []
    for row in query_rows(text):
        low, high = ranges.get(f"{row['machine_id']} {row['sensor_type']}", (0, float("inf")))
        if not low <= row["reading"] <= high:
            anomalies.append([*(row[name] for name in TYPES), f"{low} - {high}"])
    return anomalies
