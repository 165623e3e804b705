"""Evaluate an A/B test in BigQuery, and act on the result (LOCA-bench, table 7)."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.loca.checks import CsvTable, file_state, number, write_csv
from agentgym.envs.loca.draws import load_texts, pick, pick_by_share, text_of
from agentgym.envs.loca.fragments import as_records, settle_file
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.published.files import as_name, read_table, read_tables
from agentgym.envs.loca.published.rules import ab_testing_failures
from agentgym.envs.loca.published.states import PublishedConfig, load_workspace
from agentgym.envs.loca.records import Grid
from agentgym.envs.loca.results import query_rows
from agentgym.envs.loca.service_checks import (
    bigquery_failures,
    bigquery_state,
    log_state,
    storage_failures,
    storage_state,
)
from agentgym.envs.loca.task import OfficeTask
from agentgym.text.messages import ToolCall
from agentgym.text.tools import echo
from agentgym.text.validation import check_int

DATASET = "ab_testing"
RECORD = "record.csv"
BUCKET = "promo-assets-for-b"
LOG = "abtesting_logging"
COLUMNS = ("scenario", "A_conversion %", "B_conversion %")
OVERALL = "overall (total_store_views/total_clicks)"
# Conversion rates may be rounded to two decimals.
TABLE = CsvTable(RECORD, COLUMNS, dict.fromkeys(COLUMNS[1:], number(0.00501, "%")), COLUMNS[:1])
PAYLOAD = {"status": "AB_Test_Concluded", "winner": "A", "action": "No_Change"}
OTHER_PAYLOAD = {**PAYLOAD, "winner": "B", "action": "Roll_Out"}
TYPES = {
    "time_window": "STRING",
    "A_clicks": "INT64",
    "A_store_views": "INT64",
    "B_clicks": "INT64",
    "B_store_views": "INT64",
}
COUNTS = tuple(TYPES)[1:]
TABLES = f"SELECT table_name FROM {DATASET}.INFORMATION_SCHEMA.TABLES ORDER BY table_name"
_WORDS = load_texts("words")["ABTesting"]
TOPICS: Sequence[str] = _WORDS["topics"]
KINDS: Sequence[str] = _WORDS["kinds"]
# Probability of each verdict. Rounding the rates can hide a difference of one view.
VERDICTS = {"A": 0.2, "A by a view": 0.15, "tie": 0.2, "B by a view": 0.2, "B": 0.25}
# A's conversion rate is a multiple of 1/50, so that an exact tie is possible.
PARTS = 50
# Probabilities that an hour has no visitors, and that one version of a scenario has no clicks.
_ZERO_RATE, _IDLE_RATE = 0.05, 0.03

_FIRST_HOUR = datetime(2025, 7, 29, tzinfo=UTC)
CHUNK = 2  # scenarios per step, few enough that the plan grows with the state

Counts: TypeAlias = NDArray[np.int64]
Rates: TypeAlias = tuple[Fraction, Fraction]  # the conversion rates of A and B


@dataclass(frozen=True, kw_only=True)
class ABTestingConfig(PublishedConfig):
    """The size is the total number of hours in all scenarios.

    Attributes:
        scenarios: The number of scenarios, at most the number of hours. Default: three quarters of
            the square root of the number of hours.
    """

    scenarios: Annotated[int, Field(ge=1, le=5_000)] | None = None


class ABTesting(OfficeTask[ABTestingConfig]):
    """Compute A/B conversion rates from BigQuery. Create a bucket if B wins, otherwise write a log
    entry.
    """

    Config = ABTestingConfig
    servers = ("filesystem", "google_cloud", "python_execute", "claim_done")
    start = datetime(2025, 8, 20, 9, tzinfo=UTC)
    outputs = (RECORD, "what follows from the result")
    mutable_tables = ("google_cloud.buckets", "google_cloud.objects", "google_cloud.log_entries")
    harmless: ClassVar[Mapping[str, str]] = {
        "own:google_cloud.buckets.*": "settings of the bucket that the agent made"
    }
    tokens_per_unit = 71.0
    text = text_of("prompts", "ABTesting")

    def draw(self, size: int) -> None:
        count = min(size, self.config.scenarios or max(1, round(0.75 * size**0.5)))
        names = _scenarios(self.rng, count)
        hours = self.rng.permutation(size // count + (np.arange(count) < size % count))
        lengths = hours + self.rng.integers(0, hours // 3 + 1)
        clicks, views = self._counts(lengths)
        verdict = pick_by_share(self.rng, VERDICTS)
        self._decide(verdict, clicks, views)
        tables = {}
        ends = np.cumsum(lengths)
        for k, (name, end) in enumerate(zip(names, ends, strict=True)):
            rows = slice(end - lengths[k], end)
            tables[f"ab_{name}"] = self._rows(int(hours[k]), clicks[:, rows], views[:, rows])
        rates = self._load_tables(tables)
        self._add_distractors(names)
        examples = as_records(COLUMNS, [("scenario_name", "", ""), (OVERALL, "", "")])
        self.files.write(RECORD, write_csv(COLUMNS, examples))
        self._set_truth(rates, verdict=verdict)

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [RECORD])
        read_table(state / "agent_workspace" / RECORD, dict.fromkeys(COLUMNS, str))
        rates = self._load_tables(read_tables(state, DATASET, TYPES))
        answer = state / "groundtruth_workspace" / "expected_ratio.csv"
        expected = read_table(answer, dict.fromkeys(COLUMNS, as_name))
        names = {row["scenario"].removeprefix("ab_") for row in expected}
        if names != rates.keys():
            raise ValueError(
                f"{answer} must contain the scenarios {sorted(rates)}, got {sorted(names)}"
            )
        self._set_truth(rates, published=expected)

    def _load_tables(self, tables: Mapping[str, Grid]) -> dict[str, Rates]:
        rates = {}
        total = np.zeros(4, dtype=np.int64)
        for table, rows in tables.items():
            self.cloud.bigquery.load(DATASET, table, TYPES, rows)
            sums = np.array([row[1:] for row in rows], dtype=np.int64).sum(axis=0)
            rates[table.removeprefix("ab_")] = _rates(sums)
            total += sums
        rates[OVERALL] = _rates(total)
        return rates

    def _set_truth(self, rates: Mapping[str, Rates], **more: Any) -> None:
        percents = [(name, float(100 * a), float(100 * b)) for name, (a, b) in rates.items()]
        self.truth = {
            "rows": as_records(COLUMNS, percents),
            "winner": "B" if rates[OVERALL][1] > rates[OVERALL][0] else "A",
            **more,
            "tables": bigquery_state(self.cloud, DATASET) | bigquery_state(self.cloud, f"{DATASET}_2024"),
            "storage": storage_state(self.cloud),
            "entries": log_state(self.cloud),
            "files": file_state(self.files),
        }  # fmt: skip

    def _counts(self, lengths: Counts) -> tuple[Counts, Counts]:
        # Draw data for which averaging the rates gives a wrong result.
        size = len(lengths)
        large = self.rng.random(size) < 0.3
        many, few = self.rng.integers(150, 400, size), self.rng.integers(20, 60, size)
        volume = np.where(large, many, few).repeat(lengths)
        sign = int(self.rng.choice([-1, 1]))
        lean = sign * np.where(large, -0.5, 1.0) * self.rng.uniform(0.005, 0.04, size)
        base = self.rng.uniform(0.70, 0.78, size)
        clicks = self.rng.integers(0, volume + 1, (2, len(volume)))
        clicks[:, self.rng.random(len(volume)) < _ZERO_RATE] = 0
        idle = self.rng.random(size) < _IDLE_RATE
        idle[0], idle[1:2] = False, idle[1:2] | (size > 4)
        version = self.rng.integers(0, 2, size).repeat(lengths)
        clicks[version, np.arange(len(volume))] *= ~idle.repeat(lengths)
        clicks[:, 0] += PARTS
        rate = np.stack([base - lean / 2, base + lean / 2]).repeat(lengths, axis=1)
        rate = np.clip(rate + self.rng.normal(0, 0.05, clicks.shape), 0.3, 0.95)
        return clicks, np.rint(clicks * rate).astype(np.int64)

    def _decide(self, verdict: str, clicks: Counts, views: Counts) -> None:
        for version in (0, 1):
            most = np.where(clicks[version] > 0, 2**40, 0)
            _spread(self.rng, clicks[version], most, int(-clicks[version].sum() % PARTS))
        parts = round(PARTS * float(views.sum() / clicks.sum()))
        for version, name in enumerate("AB"):
            more = 0
            if verdict[0] == name and "view" in verdict:
                more = 1
            elif verdict[0] == name:
                more = max(2, int(self.rng.uniform(0.003, 0.012) * clicks[version].sum()))
            target = parts * int(clicks[version].sum()) // PARTS + more
            _spread(self.rng, views[version], clicks[version], target - int(views[version].sum()))

    def _rows(self, hours: int, clicks: Counts, views: Counts) -> list[Sequence[Any]]:
        extra = self.rng.integers(0, hours, clicks.shape[1] - hours).tolist()
        names = map(_hour_name, [*range(hours), *extra])
        # The columns are A's clicks and views, then B's clicks and views.
        counts = np.stack([clicks, views], axis=1).reshape(4, -1).tolist()
        rows: list[Sequence[Any]] = list(zip(names, *counts, strict=True))
        self.rng.shuffle(rows)
        return rows

    def _add_distractors(self, names: Sequence[str]) -> None:
        load = self.cloud.bigquery.load
        owners = [(name, pick(self.rng, ["Ada", "Bo", "Chen"])) for name in names]
        load(DATASET, "scenario_owners", {"scenario": "STRING", "owner": "STRING"}, owners)
        for name in names[:3]:
            for dataset, kind in ((DATASET, "pilot_ab"), (f"{DATASET}_2024", "ab")):
                counts = self.rng.integers(30, 90, (2, 4))
                rows = self._rows(4, counts, counts * 2 // 3)
                load(dataset, f"{kind}_{name}", TYPES, rows)
        buckets = self.rng.permutation(["promo-assets-for-a", f"{BUCKET}-2024", "promo-assets"])
        for bucket in map(str, buckets[: 2 + self.whole(2)]):
            self.cloud.storage.add_bucket(bucket)
            self.cloud.storage.put_object(bucket, "banner.txt", f"Banner {self.whole(100, 999)}")
        for _ in range(self.whole(1, 4)):
            payload = OTHER_PAYLOAD
            if self.happens(0.5):
                payload = PAYLOAD
            age = timedelta(days=self.whole(12, 25), seconds=self.whole(9999))
            self.cloud.logging.log(LOG, payload, "INFO", self.start - age)

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 6, 1_000)
        scenarios = CHUNK * (steps - 5)
        return {"size": 4 * scenarios, "scenarios": scenarios}

    def plan(self) -> Plan:
        yield read("Read the format of the record.", _read_record, "read_text_file", path=RECORD)
        scenarios = yield read(
            "List the tables.", _read_tables, "bigquery_run_query", query=TABLES, max_results=10_000
        )
        steps = []
        for k in range(0, len(scenarios), CHUNK):
            chunk = scenarios[k : k + CHUNK]
            label = f"Sum up the scenarios {chunk[0]} to {chunk[-1]}."
            steps.append(read(label, _read_sums, "bigquery_run_query", query=_query(chunk)))
        facts = yield steps
        sums: dict[str, list[int]] = {}
        for fact in facts:
            sums |= fact
        sums[OVERALL] = list(map(sum, zip(*sums.values(), strict=True)))
        rates = {name: _rates(counts) for name, counts in sums.items()}
        percents = []
        for name, (a, b) in rates.items():
            percents.append((name, f"{float(100 * a):.2f}", f"{float(100 * b):.2f}"))
        if rates[OVERALL][1] > rates[OVERALL][0]:
            conclusion = write(
                f"B has won: create the bucket {BUCKET}.",
                self.outputs[1],
                "storage_create_bucket",
                same=("bucket_name",),
                bucket_name=BUCKET,
            )
        else:
            conclusion = write(
                "B has not won: log that.",
                self.outputs[1],
                "logging_write_log",
                same=("log_name",),
                accepts=lambda entry: _says(entry["message"]) == PAYLOAD,
                log_name=LOG,
                message=PAYLOAD,
            )
        record = yield from settle_file(TABLE, as_records(COLUMNS, percents))
        yield [*record, conclusion]

    def describe(self) -> Iterable[ToolCall]:
        yield ToolCall("read_text_file", {"path": RECORD})
        yield ToolCall("bigquery_run_query", {"query": TABLES, "max_results": 10_000})
        for table in self.cloud.bigquery.tables(DATASET):
            if table.startswith("ab_"):
                query = f"SELECT * FROM {DATASET}.{table}"
                yield ToolCall("bigquery_run_query", {"query": query, "max_results": 10_000})

    def task_failures(self) -> Iterator[str]:
        yield from TABLE.failures(self.files, self.truth["rows"])
        allowed = []
        if self.truth["winner"] == "B":
            allowed.append(f"gs://{BUCKET}")
            if BUCKET not in self.cloud.storage.buckets():
                yield f"there is no bucket {BUCKET}, although B won"
        yield from storage_failures(self.cloud, self.truth["storage"], allowed)
        yield from self._entry_failures()
        yield from bigquery_failures(self.cloud, self.truth["tables"])

    def published_failures(self) -> Iterator[str]:
        verdict = {"bucket": BUCKET, "log": LOG, "payload": PAYLOAD, "overall": OVERALL}
        return ab_testing_failures(self.files, self.cloud, self.truth["published"], verdict)

    def _entry_failures(self) -> Iterator[str]:
        missing = self.truth["winner"] == "A"
        entries = log_state(self.cloud)
        before = self.truth["entries"]
        if entries[: len(before)] != before:
            yield "an earlier log entry was removed"
            return
        for name, _, content in entries[len(before) :]:
            if missing and name == LOG and _payload(content) == PAYLOAD:
                missing = False
            else:
                yield f"the entry {echo(content)} in {name} is wrong or a duplicate"
        if missing:
            yield f"there is no entry in {LOG} for keeping A"


@functools.lru_cache(maxsize=4_096)  # all scenarios use the same hours
def _hour_name(hour: int) -> str:
    moment = _FIRST_HOUR + timedelta(hours=hour)
    return f"{moment.month}/{moment.day} {moment:%H}:00-{moment:%H}:59"


def _scenarios(rng: np.random.Generator, count: int) -> list[str]:
    pairs = len(TOPICS) * len(KINDS)
    serials = rng.choice(pairs * (1 + 2 * count // pairs), count, replace=False)
    names = []
    for serial in map(int, serials):
        series, pair = divmod(serial, pairs)
        name = TOPICS[pair // len(KINDS)] + KINDS[pair % len(KINDS)]
        if series:
            name += f"_{series + 1}"
        names.append(name)
    return names


def _spread(rng: np.random.Generator, counts: Counts, most: Counts, more: int) -> None:
    while more:
        can_change = counts < most if more > 0 else counts > 0
        places = rng.permutation(np.flatnonzero(can_change))[: abs(more)]
        counts[places] += np.sign(more)
        more -= int(np.sign(more)) * len(places)


def _rates(sums: Iterable[Any]) -> Rates:
    clicks_a, views_a, clicks_b, views_b = map(int, sums)
    return _rate(clicks_a, views_a), _rate(clicks_b, views_b)


def _rate(clicks: int, views: int) -> Fraction:
    return Fraction(views, clicks) if clicks else Fraction(0)


def _payload(content: str) -> Any:
    entry = json.loads(content)
    if "textPayload" not in entry:
        return entry["jsonPayload"]
    try:
        return json.loads(entry["textPayload"])
    except (ValueError, RecursionError):
        return None


def _says(message: Any) -> Any:
    return json.loads(message) if isinstance(message, str) else message


def _query(scenarios: Sequence[str]) -> str:
    sums = ", ".join(f"SUM({column}) AS {column}" for column in COUNTS)
    return " UNION ALL ".join(
        f"SELECT '{name}' AS scenario, {sums} FROM {DATASET}.ab_{name}" for name in scenarios
    )


def _read_record(text: str) -> tuple[list[str], str]:
    rows = list(filter(None, csv.reader(text.splitlines()))) or [[""]]
    return rows[0], rows[-1][0]


def _read_sums(text: str) -> dict[str, list[int]]:
    sums = {}
    for row in query_rows(text):
        sums[row["scenario"]] = [row[column] for column in COUNTS]
    return sums


def _read_tables(text: str) -> list[str]:
    tables = [row["table_name"] for row in query_rows(text)]
    return [table.removeprefix("ab_") for table in tables if table.startswith("ab_")]
