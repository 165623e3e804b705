"""What GSM-Agent reports (Zhu et al., tables 2 and 7), from trajectories alone.

The paper's text and its tables differ in places; the definitions here are those that its tables bear out, and the others stand
beside them (`extra_turns`, `tokens_all`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan, nan
from typing import Any

import gymnasium

from agentgym.envs.gsm_agent.loaders import Ask
from agentgym.envs.gsm_agent.numbers import MARK, parse_number
from agentgym.messages import Chat, Message
from agentgym.parsing import NO_CALL, explain, parse
from agentgym.policy import Policy
from agentgym.training.evaluation.tables import Table
from agentgym.training.rollout.rollouts import rollout
from agentgym.training.rollout.trajectory import Step, Trajectory

Count = Callable[[str], int]
"""The number of tokens of a text, for replies that carry no ids."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The figures of one episode; NaN is what the trajectory does not tell.

    Attributes:
        success: Whether the answer was the right number.
        rounds: Turns with at least one search that was carried out.
        seconds: Wall time from the reset to the end, if `timed` recorded it.
        complete: Whether the results showed all documents of the task.
        extra: Searches (pages too) after the one that showed the last missing document; NaN if it is not complete.
        extra_turns: The same in turns.
        followed_format: Whether the episode ended with an answer that holds a number.
        early_stops: Stops that the env did not take as an end: replies without a call and without a number, and answers before
            `min_rounds`.
        tokens: Completion tokens of the turns with a search; 0 if there is none.
        tokens_all: Completion tokens of all turns.
    """

    success: bool
    rounds: int
    seconds: float
    complete: bool
    extra: float
    extra_turns: float
    followed_format: bool
    early_stops: int
    tokens: float
    tokens_all: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means over episodes, under the names of the paper's tables; `Acc`, `SC` and `FF` are shares.

    Attributes:
        Acc: Right answers.
        SR: Search rounds, in turns.
        Dur: Seconds.
        SC: Search-complete episodes.
        ER: Extra searches of these; `ER_turns` counts turns.
        FF: Episodes that end with a number.
        PremT: Early stops of an episode: a count, not a share.
        TotTok: Completion tokens of turns with a search; `TotTok_all` of all turns.
        TokR: Tokens of a search round: the mean, over episodes that have one, of each episode's own ratio.
    """

    Acc: float
    SR: float
    Dur: float
    SC: float
    ER: float
    ER_turns: float
    FF: float
    PremT: float
    TotTok: float
    TotTok_all: float
    TokR: float


def timed(env: gymnasium.Env[Any, Any], policy: Policy, seed: int, labels: Mapping[str, Any] | None = None) -> Trajectory:
    """Play an episode, and label its trajectory with the `seconds` it took; infos hold no times, so that they can be replayed."""
    start = time.perf_counter()
    trajectory = rollout(env, policy, seed, labels)
    return replace(trajectory, labels={**trajectory.labels, "seconds": time.perf_counter() - start})


def asker(policy: Policy) -> Ask:
    """A policy, such as one for an endpoint, as the model that the hooks of `agentgym.envs.gsm_agent.loaders` ask."""

    def ask(prompt: str) -> str:
        (reply,) = policy([Chat((), ()).add(Message("user", prompt, id="ask"))])
        return reply.text

    return ask


def searches(trajectory: Trajectory) -> Mapping[str, Any]:
    """What SearchWorld reported at the end of an episode.

    Raises:
        ValueError: It has not ended, or was not played in SearchWorld.
    """
    report = (trajectory.steps[-1].info["detail"].get("report") if trajectory.steps else None) or {}
    if "oracle_documents" not in report:
        raise ValueError(f"the trajectory of seed {trajectory.seed} has no report of SearchWorld at its end")
    found: Mapping[str, Any] = report
    return found


def outcome(trajectory: Trajectory, count: Count | None = None) -> SearchResult:
    """The figures of an episode.

    Args:
        trajectory: The episode.
        count: Counts the tokens of replies that carry no ids; without it they are NaN, never 0.

    Raises:
        ValueError: The trajectory is not one of SearchWorld.
    """
    report = searches(trajectory)
    log = report["searches"]
    turns = {entry["turn"] for entry in log}
    acts = [step for step in trajectory.steps if not _summing_up(step)]
    after = _after_last(log, report["oracle_documents"])
    stops = sum(_stopped(step) for step in acts)
    return SearchResult(
        success=bool(trajectory.steps[-1].info["success"]),
        rounds=len(turns),
        seconds=float(trajectory.labels.get("seconds", nan)),
        complete=after is not None,
        extra=nan if after is None else float(len(log) - after),
        extra_turns=nan if after is None else float(sum(turn > log[after - 1]["turn"] for turn in turns)),
        followed_format=report["answer"] is not None and parse_number(report["answer"]) is not None,
        early_stops=report["early_stops"] + stops,
        tokens=float(sum(_tokens(step, count) for step in acts if step.info["turn"] in turns)),
        tokens_all=float(sum(_tokens(step, count) for step in acts)),
    )


def metrics(outcomes: Sequence[SearchResult]) -> Metrics:
    """The means over episodes.

    Raises:
        ValueError: There is no episode.
    """
    if not outcomes:
        raise ValueError("there are no episodes to take the mean of")

    def mean(values: Iterable[float]) -> float:
        found = list(values)
        return sum(found) / len(found) if found else nan

    complete = [each for each in outcomes if each.complete]
    return Metrics(
        Acc=mean(each.success for each in outcomes),
        SR=mean(each.rounds for each in outcomes),
        Dur=mean(each.seconds for each in outcomes),
        SC=mean(each.complete for each in outcomes),
        ER=mean(each.extra for each in complete),
        ER_turns=mean(each.extra_turns for each in complete),
        FF=mean(each.followed_format for each in outcomes),
        PremT=mean(each.early_stops for each in outcomes),
        TotTok=mean(each.tokens for each in outcomes),
        TotTok_all=mean(each.tokens_all for each in outcomes),
        TokR=mean(each.tokens / each.rounds for each in outcomes if each.rounds),
    )


def summary(settings: Mapping[str, Sequence[SearchResult]]) -> Table:
    """The table of the paper: a row for each setting. What is not known is left empty."""
    names = {"TokR": "Tok/R", "Dur": "Dur (s)"}
    rows = []
    for setting, outcomes in settings.items():
        found = asdict(metrics(outcomes))
        cells = [_cell(value, share=name in ("Acc", "SC", "FF")) for name, value in found.items()]
        rows.append([setting, *cells])
    return "GSM-Agent", ["setting", *(names.get(name, name) for name in Metrics.__slots__)], rows


def _cell(value: float, share: bool) -> str:
    return "" if isnan(value) else f"{100 * value:.2f}%" if share else f"{value:.2f}"


def _after_last(log: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> int | None:
    """How many searches it took until all documents were shown; None if they never were."""
    missing = set(wanted)
    for number, entry in enumerate(log, 1):
        missing -= set(entry["ids"])
        if not missing:
            return number
    return None


def _summing_up(step: Step) -> bool:
    return bool(step.info.get("context", {}).get("phase") == "summary")


def _stopped(step: Step) -> bool:
    """Whether a reply did not try to call a tool and gave no answer either."""
    text = step.reply.text
    if parse(text, "auto", step.chat.tools).calls or MARK in text:
        return False
    return (explain(text, "auto", step.chat.tools) or NO_CALL).startswith(NO_CALL) and step.info["detail"]["calls"] == 0


def _tokens(step: Step, count: Count | None) -> float:
    return len(step.reply.ids) if step.reply.ids else count(step.reply.text) if count else nan
