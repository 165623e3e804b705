"""Submissions: files with a run's results, which can be checked against the run's episodes."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
from pydantic import ConfigDict, Field, TypeAdapter

import agentgym
from agentgym.text.validation import check_shape
from agentgym.training.evaluation.missing import INVALID, LOST, NOT_PLAYED
from agentgym.training.evaluation.provenance import (
    difference,
    mismatch,
    package_digest,
    world_digest,
)
from agentgym.training.evaluation.scoring import CELL, Result, group_by, played
from agentgym.training.evaluation.study_folder import (
    SETTINGS,
    Study,
    column_of,
    load_study,
    log_of,
    read_results,
)
from agentgym.training.evaluation.tables import MIN_EPISODES
from agentgym.training.evaluation.verification import choose_lines, contradiction
from agentgym.training.rollout import Trajectory
from agentgym.world.digests import digest

SUBMISSION = "submission.json"
# The split that training does not use.
SPLIT = "test"
# Replays take seconds for small worlds, and minutes for office worlds.
REPLAYS = 200
_SUBMIT = "write the file again with agentgym submit"
# Maximum number of objections to list per kind.
_SHOWN = 5
_key = attrgetter(*CELL)


@dataclass(frozen=True, slots=True)
class CellCounts:
    """The counts of one cell of a results table.

    Attributes:
        episodes: The number of episodes, including lost episodes, which count as unsolved.
        unreadable: The number of replies without a tool call or answer.
        prompts: A digest of the first prompts, in order of seeds and samples.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    policy: str
    world: str
    arm: str
    context: str
    horizon: int
    episodes: int
    solved: int
    lost: int
    over_window: int
    replies: int
    unreadable: int
    prompts: str


@dataclass(frozen=True, slots=True)
class Submission:
    """The results of a run.

    Attributes:
        format: The version of this schema.
        commit: The Git commit of the agentgym checkout; empty if it is unknown, or if a policy
            played with other code.
        log: The SHA-256 digest of the file with the episodes.
        policies: The identity of each policy: its model, its files or its code.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    format: Literal[1]
    agentgym: str
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40})?$")]
    log: str
    runs: list[dict[str, Any]]
    policies: dict[str, dict[str, Any]]
    cells: list[CellCounts]

    @classmethod
    def of(cls, run: Path) -> Submission:
        """Summarize a run folder.

        Raises:
            DamagedFileError: A file in the folder cannot be read.
            ValueError: The folder contains no study with episodes.
        """
        study, log = load_study(run), log_of(run).path
        if study is None or not log.exists():
            raise ValueError(f"{run} lacks {SETTINGS} or a log; name the folder of an ablation")
        results = read_results(run)[0]
        cells = [_counts(rows) for rows in group_by(results.everything, *CELL).values()]
        return cls(
            format=1,
            agentgym=agentgym.__version__,
            commit=_commit(study),
            log=hashlib.sha256(log.read_bytes()).hexdigest(),
            runs=study.runs,
            policies=study.policies,
            cells=sorted(cells, key=_key),
        )

    @classmethod
    def load(cls, path: Path) -> Submission:
        """Read a submission; `ValueError` if the file does not match the schema."""
        text = path.read_bytes()
        try:
            submission = check_shape(_adapter(), text)
            json.loads(text, object_pairs_hook=_distinct)
        except (RecursionError, ValueError) as error:
            raise ValueError(f"{path} is no submission: {error}; {_SUBMIT}") from None
        return submission

    def to_json(self) -> str:
        """Return the submission as JSON, with one cell per line."""
        head = asdict(self)
        cells = ",\n".join(json.dumps(cell) for cell in head.pop("cells"))
        return f'{json.dumps(head, indent=1)[:-2]},\n "cells": [\n{cells}\n]}}\n'


def schema() -> dict[str, Any]:
    """Return the JSON schema of submissions."""
    return _adapter().json_schema()


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Submission]:
    return TypeAdapter(Submission)


def _counts(rows: Sequence[Result]) -> CellCounts:
    there = sorted(played(rows), key=attrgetter("seed", "sample"))
    return CellCounts(
        **{name: getattr(rows[0], name) for name in CELL},
        episodes=len(rows),
        solved=sum(row.success == 1 for row in there),
        lost=sum(row.missing == LOST for row in rows),
        over_window=sum(row.over_window for row in there),
        replies=sum(row.replies for row in there),
        unreadable=sum(row.unreadable for row in there),
        prompts=digest([row.prompt for row in there]),
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):  # readers differ in which value they take
        raise ValueError(f"it sets a name twice ({', '.join(name for name, _ in pairs):.200})")
    return data


def _commit(study: Study) -> str:
    if any(facts.get("code") != package_digest() for facts in study.policies.values()):
        return ""
    folder = Path(agentgym.__file__).parent
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return shown.stdout.strip() if (folder.parent / ".git").exists() else ""


def objections(
    submission: Submission, run: Path, replays: int = REPLAYS, seed: int | None = None
) -> Iterator[str]:
    """Yield the reasons to reject a submission, given the run folder with its episodes.

    At most `replays` episodes, chosen by `seed`, are replayed; by default, nobody can predict the
    choice. A replay shows that each reply earned its reward, not who wrote the reply.

    Raises:
        DamagedFileError: A file in the folder cannot be read.
        ValueError: The folder contains no study with episodes.
    """
    found = Submission.of(run)
    yield from _forged(submission, found)
    yield from _partial(found, run)
    yield from _outdated(found, submission.agentgym)
    yield from _wrong_episodes(load_study(run) or Study(), run, replays, seed)


def _forged(submission: Submission, found: Submission) -> Iterator[str]:
    for name in ("log", "runs", "policies"):
        if _canonical(getattr(submission, name)) != _canonical(getattr(found, name)):
            yield f"forged: its field {name} differs from the run folder; {_SUBMIT}"
    columns = {column_of(run) for run in found.runs}
    for name in sorted(found.policies.keys() - columns):
        yield f"forged: its policy {name} played no run; delete it from {SETTINGS}"
    for run in found.runs:
        if differs := mismatch(found.policies.get(column_of(run), {}), run["policy"]):
            remedy = "play the run again in another folder"
            yield f"forged: {column_of(run)} is not the policy of its run: {differs}; {remedy}"
    claimed = {_key(cell): cell for cell in submission.cells}
    if len(claimed) != len(submission.cells):
        yield f"forged: it lists a cell twice; {_SUBMIT}"
    actual = {_key(cell): cell for cell in found.cells}
    differing = []
    for key in sorted(claimed.keys() | actual.keys()):
        if key not in claimed:
            differing.append(f"{_name(key)} is only in the run")
        elif key not in actual:
            differing.append(f"{_name(key)} is only in the file")
        else:
            differing += _differences(key, claimed[key], actual[key])
    yield from _forgeries(differing, _SUBMIT)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # unlike ==, distinguishes 1, 1.0 and true


def _differences(key: tuple[Any, ...], old: CellCounts, new: CellCounts) -> Iterator[str]:
    for each in fields(CellCounts):
        said, is_really = getattr(old, each.name), getattr(new, each.name)
        if said != is_really:
            yield f"{_name(key)}: its {each.name} is {said}, and its episodes say {is_really}"


def _partial(found: Submission, run: Path) -> Iterator[str]:
    results, doubles, strays = read_results(run)
    causes = Counter(row.missing for row in results.missing)
    for cause in (NOT_PLAYED, INVALID):
        if causes[cause]:
            yield f"partial: {causes[cause]} episodes are {cause}; rerun the command to play them"
    if doubles or strays:
        yield (
            f"partial: the log contains {doubles} duplicates and {strays} episodes of no cell; "
            f"agentgym doctor {run} --repair moves them aside"
        )
    tables: dict[tuple[Any, ...], list[int]] = {}
    for key, rows in group_by(results.everything, *CELL).items():
        arms_apart = key[:2] + key[3:]
        tables.setdefault(arms_apart, []).append(len({row.seed for row in rows}))
    fewest = min(map(min, tables.values()), default=0)
    if fewest < MIN_EPISODES:
        yield (
            f"partial: a cell has {fewest} instances, fewer than {MIN_EPISODES}; rerun the command "
            f"with --episodes {MIN_EPISODES}"
        )
    if most := max((max(counts) for counts in tables.values() if len({*counts}) > 1), default=0):
        yield (
            f"partial: some arms have fewer instances than others; rerun the command with "
            f"--episodes {most} and all arms"
        )


def _outdated(found: Submission, version: str) -> Iterator[str]:
    now, again = {"agentgym": agentgym.__version__}, "play the run again with this version"
    for name, facts in {"the file": {"agentgym": version}, **found.policies}.items():
        if differs := difference(facts, now, now):
            yield f"outdated: {name}: {differs}; {again}"
    for run in found.runs:
        policy = column_of(run)
        recorded = found.policies.get(policy, {}).get("worlds", {})
        for world in run["worlds"]:
            if recorded.get(world) != world_digest(world):
                yield f"outdated: {policy} played another version of {world}; {again}"


def _wrong_episodes(study: Study, run: Path, replays: int, seed: int | None) -> Iterator[str]:
    chosen = choose_lines(log_of(run), replays, seed)
    splits: Counter[str] = Counter()
    wrong = []
    for number, trajectory in log_of(run).readable():
        if trajectory is None:
            wrong.append(f"line {number} is no episode")
            continue
        splits[str(json.loads(trajectory.spec).get("kwargs", {}).get("split"))] += 1
        if trajectory.failure:
            continue
        if problem := _problem(study, trajectory, replay=number in chosen):
            wrong.append(f"line {number}: {problem}")
    del splits[SPLIT]
    for split, count in splits.items():
        yield f"training split: {count} episodes have the split {split}; play with --set split=test"
    yield from _forgeries(wrong, f"agentgym doctor {run} --repair moves such episodes aside")


def _problem(study: Study, trajectory: Trajectory, *, replay: bool) -> str:
    if not trajectory.labels.get("provenance"):
        return "it does not record who played it"
    try:
        return contradiction(study, trajectory, replay=replay)
    except (ValueError, ImportError, gymnasium.error.Error) as error:
        return f"nobody can replay it: {error}"


def _forgeries(texts: Sequence[str], remedy: str) -> Iterator[str]:
    for text in texts[:_SHOWN]:
        yield f"forged: {text:.500}; {remedy}"  # a forged value may have any length
    if len(texts) > _SHOWN:
        yield f"forged: and {len(texts) - _SHOWN} more of this kind"


def _name(key: tuple[Any, ...]) -> str:
    values: Mapping[str, Any] = dict(zip(CELL, key, strict=True))
    return ", ".join(f"{name} {value or 'none'}" for name, value in values.items())
