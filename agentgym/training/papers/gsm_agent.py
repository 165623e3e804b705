"""GSM-Agent's benchmark (Zhu et al., tables 2 and 7, figure 4), computed from trajectories.

Where the paper's text and tables differ, the definitions follow the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agentgym.envs.gsm_agent.database import Database
from agentgym.envs.gsm_agent.decomposition import decompose, read_parts
from agentgym.envs.gsm_agent.loaders import as_folder, load_folder, load_problems
from agentgym.envs.gsm_agent.numbers import MARK, parse_number
from agentgym.play.policy import Policy
from agentgym.text.messages import Chat
from agentgym.text.parsing import NO_CALL, explain, parse
from agentgym.text.tokens import counter
from agentgym.training.evaluation import (
    Command,
    Paper,
    Table,
    describe_failures,
    is_unreadable,
    register_paper,
    to_markdown,
)
from agentgym.training.evaluation.registry import figure_style
from agentgym.training.papers.reasoning_graph import (
    figures,
    graph_summary,
    mean,
    means_table,
    paths_of,
    search_report,
)
from agentgym.training.rollout import PolicyConfig, RunLock, Step, Trajectory, TrajectoryLog
from agentgym.training.rollout.storage import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Matches the parts of a rejection reason that vary between tasks.
_OWN = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9][0-9/.]*")
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Metrics of one episode; NaN where the trajectory lacks the data.

    Attributes:
        rounds: Turns with at least one executed search.
        seconds: Wall time of the episode, as recorded in the label `seconds`.
        complete: Whether the search results included all documents of the task.
        extra: Searches, including requests for further pages, after all documents of the task had
            appeared; NaN if some never appeared.
        early_stops: Stops that the env did not accept: replies without a call and without a number,
            and answers before `min_rounds`.
        tokens: Completion tokens in turns with a search.
    """

    success: bool
    rounds: int
    seconds: float
    complete: bool
    extra: float
    followed_format: bool
    early_stops: int
    tokens: float
    unreadable: int = 0

    @property
    def tokens_per_round(self) -> float:
        """Return the mean number of completion tokens per turn with a search."""
        return self.tokens / self.rounds


def outcome(trajectory: Trajectory, count: Count | None = None) -> SearchResult:
    """Return an episode's metrics.

    `count` counts tokens in replies without token ids; without `count`, token metrics are NaN. An
    episode of a world other than SearchWorld raises `ValueError`.
    """
    report = search_report(trajectory)
    log = report["searches"]
    turns = {entry["turn"] for entry in log}
    acts = []
    for step in trajectory.steps:
        if step.info.get("context", {}).get("phase") != "summary":
            acts.append(step)
    after = _searches_needed(log, report["oracle_documents"])
    return SearchResult(
        success=bool(trajectory.steps[-1].info["success"]),
        rounds=len(turns),
        seconds=float(trajectory.labels.get("seconds", nan)),
        complete=after is not None,
        extra=nan if after is None else float(len(log) - after),
        followed_format=report["answer"] is not None and parse_number(report["answer"]) is not None,
        early_stops=report["early_stops"] + sum(map(_stopped, acts)),
        tokens=float(sum(_tokens(step, count) for step in acts if step.info["turn"] in turns)),
        unreadable=sum(is_unreadable(step.info) for step in acts),
    )


def metrics(outcomes: Sequence[SearchResult]) -> dict[str, float]:
    """Return means over episodes, named as in the paper's tables; NaN if no episode has the data.

    Returns:
        Acc: The share of successful episodes.
        SR: Search rounds, which are turns with a search.
        Dur (s): Wall time in seconds.
        SC: The share of search-complete episodes.
        ER: Extra searches in search-complete episodes.
        FF: The share of episodes that end with a number.
        PremT: Early stops per episode (a count, not a share).
        TotTok: Completion tokens in turns with a search.
        Tok/R: The mean number of tokens per search round, over episodes with a search.
    """
    if not outcomes:
        raise ValueError("there are no episodes to average")
    complete = [each for each in outcomes if each.complete]
    searching = [each for each in outcomes if each.rounds]

    def over(name: str, some: Sequence[SearchResult] = outcomes) -> float:
        return mean([getattr(each, name) for each in some])

    return {
        "Acc": over("success"),
        "SR": over("rounds"),
        "Dur (s)": over("seconds"),
        "SC": over("complete"),
        "ER": over("extra", complete),
        "FF": over("followed_format"),
        "PremT": over("early_stops"),
        "TotTok": over("tokens"),
        "Tok/R": over("tokens_per_round", searching),
    }


def summary(settings: Mapping[str, Sequence[SearchResult]]) -> Table:
    """Return the paper's table; unknown values are empty."""
    means = {setting: metrics(outcomes) for setting, outcomes in settings.items()}
    return means_table("GSM-Agent", means, shares=("Acc", "SC", "FF"))


def _searches_needed(log: Sequence[Mapping[str, Any]], documents: Sequence[str]) -> int | None:
    missing = set(documents)
    for number, entry in enumerate(log, 1):
        missing -= set(entry["ids"])
        if not missing:
            return number
    return None


def _stopped(step: Step) -> bool:
    text = step.reply.text
    tried = parse(text, "auto", step.chat.tools).calls or step.info["detail"]["calls"]
    if tried or MARK in text:
        return False
    return (explain(text, "auto", step.chat.tools) or NO_CALL).startswith(NO_CALL)


def _tokens(step: Step, count: Count | None) -> float:
    if step.reply.ids:
        return len(step.reply.ids)
    if count:
        return count(step.reply.text)
    return nan


def _gsm(
    settings: Annotated[
        list[str], "name=FILE for each setting: a file of trajectories of SearchWorld."
    ],
    out: Annotated[Path, "Folder for the tables and the figure."] = Path("runs/gsm"),
    nodes: Annotated[
        int | None,
        "The number of graph clusters; derived from the number of documents if not given.",
    ] = None,
    embed: Annotated[
        str, "wordllama or package.module:function; latent semantic analysis if not given."
    ] = "",
    count: Annotated[bool, "Count tokens with cl100k_base for replies without ids."] = False,
) -> Iterator[str]:
    """Write the tables of GSM-Agent, and a plot of accuracy against the revisit ratio."""
    by_setting = dict(map(_read, settings))
    length = counter("cl100k_base").length if count else None
    with RunLock(out):
        for path in write_report(by_setting, out, nodes, embed, length):
            yield f"wrote {path}"
    for episodes in by_setting.values():
        yield from describe_failures(episodes)


def _read(setting: str) -> tuple[str, list[Trajectory]]:
    name, _, file = setting.partition("=")
    if not name or not file:
        raise ValueError(f"a setting must be name=FILE, got {setting!r}")
    trajectories = list(TrajectoryLog(Path(file)))
    if all(trajectory.failure for trajectory in trajectories):
        raise ValueError(f"setting {name!r}: {file} contains no trajectories")
    return name, trajectories


def write_report(
    settings: Mapping[str, Sequence[Trajectory]],
    out: Path,
    nodes: int | None = None,
    embed: str = "",
    count: Count | None = None,
) -> list[Path]:
    """Write `summary.md` and `revisits.png`, and return their paths.

    For `nodes` and `embed`, see `graph_of`; `count` counts tokens in replies without token ids.
    """
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    outcomes, paths, points, counts, lacking = {}, {}, {}, {}, []
    for name, episodes in settings.items():
        complete = [each for each in episodes if not each.failure]
        outcomes[name] = [outcome(each, count) for each in complete]
        paths[name] = paths_of(complete, embed, nodes)
        points[name] = figures(paths[name])["Rvst"], metrics(outcomes[name])["Acc"]
        replies = sum(len(each.steps) for each in complete)
        unreadable = sum(each.unreadable for each in outcomes[name])
        missing = len(episodes) - len(complete)
        if missing:
            lacking.append(f"{name} lacks {missing}")
        counts[name] = [str(len(complete)), str(missing), f"{100 * unreadable / replies:.1f}"]
    out.mkdir(parents=True, exist_ok=True)
    summary_file, figure_file = out / "summary.md", out / "revisits.png"
    texts = []
    for title, header, lines in (summary(outcomes), graph_summary(paths)):
        for line in lines:
            line.extend(counts[line[0]])
        table = title, [*header, "episodes", "missing", "unreadable (%)"], lines
        texts.append(to_markdown(table) + "\n")
    write_text(summary_file, "\n".join(texts))
    figure = revisits_figure(points)
    if lacking:
        drawing.add_note(figure, f"{', '.join(lacking)} episodes")
    drawing.save(figure, figure_file)
    return [summary_file, figure_file]


@figure_style()
def revisits_figure(points: Mapping[str, tuple[float, float]]) -> Figure:
    """Plot accuracy against the revisit ratio, both given as fractions (figure 4)."""
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    drawable = {name: pair for name, pair in points.items() if not any(map(isnan, pair))}
    figure = drawing.new_figure(drawing.COLUMN, 2.4)
    panel = figure.subplots()
    styles = drawing.line_styles(list(drawable))
    for name, (revisit, accuracy) in drawable.items():
        style = {**styles[name], "linestyle": "none"}
        panel.plot(100 * revisit, 100 * accuracy, label=name, **style)
    most = 100 * max((revisit for revisit, _ in drawable.values()), default=0.0)
    panel.set(xlabel="revisit ratio (%)", ylabel="accuracy (%)")
    panel.set(xlim=(-1, 1.15 * most + 5), ylim=(-3, 103))
    panel.grid()
    drawing.add_legend(figure, panel.lines)
    return figure


def _decompose(
    data: Annotated[Path, "GSM8K as JSONL, a folder of such files, or of templates (TOML)."],
    *,
    out: Annotated[Path, "Folder for tasks and documents, which `data=` plays."],
    policy: Annotated[
        str, "package.module:factory, or the folder of a trained model; nothing for punctuation."
    ] = "",
    parts: Annotated[
        Path | None, "JSON lines with id, question, premises and documents, written by hand."
    ] = None,
    tasks: Annotated[int, "Problems to draw from templates."] = 1_000,
    seed: Annotated[int, "Seed of the draws from templates."] = 0,
) -> Iterator[str | Table]:
    """Decompose GSM8K problems for SearchWorld, and report why tasks are rejected. Rerunning the
    command resumes an interrupted run.
    """
    problems = load_problems(data, tasks, seed)
    with RunLock(out):
        if policy:
            decompose(problems, out, partial(_ask, PolicyConfig(policy).make("SearchWorld")))
        else:
            if parts:
                problems = read_parts(problems, parts)
            as_folder(problems, out)
    rejected = Database.of(*load_folder(out), "words").rejected
    yield f"wrote {len(problems)} tasks to {out}; searching can solve {len(problems) - len(rejected)}"
    if rejected:
        examples: dict[str, list[str]] = {}
        for name, reason in rejected.items():
            examples.setdefault(_OWN.sub("...", reason), []).append(name)
        lines = [[reason, str(len(names)), names[0]] for reason, names in examples.items()]
        yield "rejected (static)", ["reason", "tasks", "such as"], lines


def _ask(policy: Policy, prompt: str) -> str:
    (reply,) = policy([Chat.from_openai([{"role": "user", "content": prompt}])])
    return reply.text


_COMMANDS = (Command(_gsm, "gsm"), Command(_decompose, "decompose", resumable=True))
register_paper(Paper("GSM-Agent", commands=_COMMANDS))
