"""Trajectories, which store an episode's chats, replies and rewards as one JSON line."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from itertools import chain, pairwise
from operator import index
from pathlib import Path
from typing import Any, Literal, Self, get_args

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.tools import Tool
from agentgym.training.rollout.engines.deltas import ChatDelta, ReplyDelta
from agentgym.training.rollout.lines import encode_lines
from agentgym.training.rollout.storage import (
    DamagedFileError,
    OtherRunError,
    RunLock,
    append_bytes,
    cut_torn_line,
    whole_lines,
)
from agentgym.world.step_info import StepInfo

Outcome = Literal["won", "drew", "lost", "unsolved"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# The entry point in the spec of an env whose reward is one seat's reward, not the team's score.
_SEAT_ENV = "agentgym.training.rollout.seat_env:SeatEnv"


@dataclass(frozen=True, slots=True)
class Step:
    """One reply of the policy, with the chat before it and the resulting info."""

    chat: Chat
    reply: Reply
    reward: float
    info: Mapping[str, Any]

    @property
    def ended(self) -> str:
        """Why the policy ended the episode instead of replying; empty if the policy replied."""
        # Replies read from a log lack `ended`, so take it from the step's info.
        ended = (self.info.get("detail") or {}).get("ended", "")
        return self.reply.ended or (ended if ended in ("left", "over_window") else "")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode. In a team, `Step.info["agent"]` names the agent that took the step.

    Attributes:
        spec: Spec of the env and its wrappers, as a `gymnasium.envs.registration.EnvSpec` in JSON.
            `spec`, `seed` and the replies determine the episode.
        last: The chat after the last step; in a team, the chat of the agent that took that step.
        labels: Labels of the run, such as the policy's name or the arm.
        failure: The reason why the episode is not a valid measurement of the policy, such as a
            dead worker, an unresponsive endpoint or an invalid episode (`StepInfo.invalid`).
            Failed episodes are neither scored nor trained on.
    """

    spec: str
    seed: int
    steps: tuple[Step, ...]
    last: Chat
    terminated: bool
    truncated: bool
    labels: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def reward(self) -> float:
        """Sum of the rewards; for a team without `seat`, the team's score."""
        return sum(step.reward for step in self.steps)

    def own_rewards(self) -> tuple[float, ...]:
        """Return each step's reward for the agent that took the step. Each agent's last step
        includes the agent's share of the team's score.
        """
        rewards = [step.reward for step in self.steps]
        if (shares := self.seat_rewards()) and not self.seat:
            rewards[-1] -= self.steps[-1].info["detail"].get("score") or 0.0
            for agent, numbers in self.by_agent().items():
                rewards[numbers[-1]] += shares.get(agent, 0.0)
        return tuple(rewards)

    def reward_of(self, agent: str) -> float:
        """Return the sum of an agent's rewards."""
        rewards = self.own_rewards()
        return sum(rewards[k] for k in self.by_agent().get(agent, ()))

    @property
    def seat(self) -> str:
        """The seat that a single-agent env plays (`SeatEnv`), or an empty string."""
        return self.agent_of(-1) if self.steps and _SEAT_ENV in self.spec else ""

    def seat_rewards(self) -> dict[str, float]:
        """Return each agent's reward, or an empty dict if there is no team or no score."""
        return dict(self._team_report().get("rewards", {}))

    def outcomes(self) -> dict[str, Outcome]:
        """Return each rival's outcome (`seat_outcomes`), or an empty dict without rivals."""
        return seat_outcomes(self._team_report())

    def _team_report(self) -> Mapping[str, Any]:
        detail = self.steps[-1].info.get("detail", {}) if self.steps else {}
        return (detail.get("report") or {}).get("team") or {}

    def agent_of(self, step: int) -> str:
        """Return the agent that took a step, or an empty string if there is no team."""
        return _agent(self.steps[step].info)

    def segments(self) -> list[Sequence[int]]:
        """Split each agent's steps into training rows, wherever a prompt does not extend the
        previous prompt and reply.
        """
        parts = chain.from_iterable(map(self._cut, self.by_agent().values()))
        return sorted(parts, key=lambda part: part[0])

    def by_agent(self) -> dict[str, Sequence[int]]:
        """Return each agent's step indices; without a team, the only key is an empty string."""
        numbers: dict[str, list[int]] = {}
        for number, step in enumerate(self.steps):
            numbers.setdefault(_agent(step.info), []).append(number)
        return {agent: tuple(own) if agent else range(len(own)) for agent, own in numbers.items()}

    def _cut(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        start = 0
        for k, (one, two) in enumerate(pairwise(numbers), 1):
            if not _continues(self.steps[one], self.steps[two].chat):
                yield numbers[start:k]
                start = k
        yield numbers[start:]

    def _deltas(self) -> tuple[list[tuple[ChatDelta, ReplyDelta]], ChatDelta]:
        newest: dict[str, tuple[Chat, Reply]] = {}
        deltas = []
        for step in self.steps:
            chat, reply = newest.get(_agent(step.info), _NOTHING)
            deltas.append((ChatDelta.of(step.chat, chat), ReplyDelta.of(step.reply, reply)))
            newest[_agent(step.info)] = step.chat, step.reply
        return deltas, ChatDelta.of(self.last, self.steps[-1].chat if self.steps else Chat())

    def __reduce__(self) -> tuple[Any, ...]:
        # Steps are stored as deltas, so that the size grows only with new text.
        deltas, last = self._deltas()
        parts = [
            (*delta, step.reward, step.info) for step, delta in zip(self.steps, deltas, strict=True)
        ]
        ends = self.terminated, self.truncated, self.labels, self.failure
        return _rebuilt, (type(self), self.spec, self.seed, parts, last, ends)

    def to_json(self) -> str:
        """Return one line of JSON, whose length grows only with new text and tokens."""
        deltas, last = self._deltas()
        steps = []
        for step, (chat, reply) in zip(self.steps, deltas, strict=True):
            data = _chat_to_json(chat)
            data["reply"] = _reply_to_json(reply)
            data["reward"], data["info"] = step.reward, to_jsonable(step.info)
            steps.append(data)
        data = {
            "spec": json.loads(self.spec),
            "seed": self.seed,
            "labels": dict(self.labels),
        }
        if self.failure:
            data["failure"] = self.failure
        data["last"] = _chat_to_json(last)
        data |= {"terminated": self.terminated, "truncated": self.truncated, "steps": steps}
        return json.dumps(data)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Parse a trajectory from a JSON line, or raise `ValueError`."""
        try:
            data = json.loads(line)
            parts = []
            for item in data["steps"]:
                chat = _chat_from_json(item, _agent(item["info"]))
                reply = _reply_from_json(item["reply"])
                parts.append((chat, reply, item["reward"], with_detail(item["info"])))
            agent = _agent(parts[-1][3]) if parts else ""
            steps, last = _follow(parts, _chat_from_json(data["last"], agent))
            ends = data["terminated"], data["truncated"], data["labels"], data.get("failure", "")
            _check_types(data, steps)
            return cls(json.dumps(data["spec"]), data["seed"], steps, last, *ends)
        except _UNREADABLE as error:
            raise ValueError(
                f"the line must be a trajectory in JSON format ({error!r}), got {line[:80]!r}"
            ) from error


def seat_outcomes(team: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return each rival's outcome from a team's report; empty if the agents do not compete.

    If the report names no winners, the agents with the largest reward win, or the game is unsolved
    if all rewards are equal. Several winners draw.
    """
    if "winners" not in team:
        return {}
    rewards = team["rewards"]
    best = max(rewards.values())
    largest = [agent for agent, reward in rewards.items() if reward == best]
    leaders = team["winners"] or largest
    top: Outcome = "won" if len(leaders) == 1 else "drew"
    if not team["winners"] and len(leaders) == len(rewards):
        top = "unsolved"
    return {agent: top if agent in leaders else "lost" for agent in rewards}


class TrajectoryLog:
    """File of trajectories with one writer at a time; a `.zst` file is compressed.

    After a writer is killed, the next writer removes an incomplete last line.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self._lock, self._turn = RunLock(path, folder=False), threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return TrajectoryLog, (self.path,)

    @property
    def settings(self) -> Path:
        """Path of the file in which `agentgym rollout` stores the run's settings."""
        return self.path.with_name(self.path.name + ".settings.json")

    def __iter__(self) -> Iterator[Trajectory]:
        """Yield the trajectories; raise `DamagedFileError` if a complete line is unreadable."""
        for number, line in whole_lines(self.path):
            try:
                yield Trajectory.from_json(line.decode("utf-8"))
            except ValueError as error:
                raise DamagedFileError(self.path, str(error), number) from None

    def of_run(
        self, spec: str, labels: Mapping[str, Any], *, alone: bool = False
    ) -> Iterator[Trajectory]:
        """Yield an env's trajectories with the given labels.

        Raises:
            OtherRunError: The log contains another env with these labels or, with `alone`, any
                other episode.
        """
        data = json.loads(spec)
        alone = alone or self.settings.exists()
        for trajectory in self:
            is_like = trajectory.labels == labels, json.loads(trajectory.spec) == data
            if all(is_like):
                yield trajectory
            elif alone or is_like[0]:
                raise OtherRunError(
                    f"{self.path} contains an episode of another run "
                    f"({json.loads(trajectory.spec).get('id')}, seed {trajectory.seed}, labels "
                    f"{trajectory.labels}); choose another file, or delete this file"
                )

    def readable(self) -> Iterator[tuple[int, Trajectory | None]]:
        """Yield line numbers and trajectories, with None for a damaged line."""
        for number, line in whole_lines(self.path):
            try:
                yield number, Trajectory.from_json(line.decode("utf-8"))
            except ValueError:
                yield number, None

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Lock the log for writing, create a missing file, and remove an incomplete last line."""
        with self._lock:
            cut_torn_line(self.path)
            append_bytes(self.path, b"")
            yield self

    def append(self, *lines: str) -> None:
        """Append lines of `Trajectory.to_json`; after an error, the file is unchanged."""
        with self._lock, self._turn:
            data = (line.encode("utf-8") + b"\n" for line in lines)
            append_bytes(self.path, encode_lines(self.path, data))

    def repair(self) -> None:
        """Remove an incomplete last line."""
        if self.path.exists():
            with self._lock:
                cut_torn_line(self.path)


def _continues(step: Step, chat: Chat) -> bool:
    length = len(step.chat.messages)
    reply = chat.messages[length] if length < len(chat.messages) else None
    return (
        reply is not None
        and reply.role == "assistant"
        and reply.raw == step.reply.text
        and chat.tools == step.chat.tools
        and chat.shared_prefix(step.chat) == length
    )


def _agent(info: Mapping[str, Any]) -> str:
    return str(info.get("agent", ""))


def with_detail(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an info dict with `detail` converted to a `StepInfo`."""
    detail = info.get("detail")
    return {**info, "detail": StepInfo.from_dict(detail)} if isinstance(detail, dict) else info


_LEAVES = frozenset({str, int, float, bool, type(None)})


@cache
def _names(kind: Any) -> list[str]:
    return [item.name for item in fields(kind)]


def to_jsonable(value: Any) -> Any:
    """Convert a value from an info dict to JSON-able data."""
    if isinstance(value, (tuple, list)):
        return [to_jsonable(item) for item in value]
    kind: Any = type(value)
    items: Iterable[tuple[str, Any]]
    if is_dataclass(value):
        items = [(name, getattr(value, name)) for name in _names(kind)]
    elif isinstance(value, Mapping):
        items = value.items()
    else:
        return value
    # Check leaves first, because most items are leaves and this function runs at every step.
    return {name: item if type(item) in _LEAVES else to_jsonable(item) for name, item in items}


_TYPES = {
    "spec": dict,
    "seed": int,
    "labels": dict,
    "terminated": bool,
    "truncated": bool,
    "failure": str,
}
_DETAIL = {
    "calls": int,
    "ended": str,
    "invalid": str,
    "score": (int, float, type(None)),
    "report": (dict, type(None)),
}


def _check_types(data: Mapping[str, Any], steps: Sequence[Step]) -> None:
    _check_kinds({"failure": "", **data}, _TYPES)
    spec = data["spec"]
    if not isinstance(spec.get("id"), str) or not isinstance(spec.get("kwargs", {}), dict):
        raise TypeError("spec must have an id and kwargs")
    for step in steps:
        if not isinstance(step.reply.text, str) or not isinstance(step.info, dict):
            raise TypeError("each step must have a reply and info")
        math.isfinite(step.reward)  # raises if it is no number or a too large integer
        if (detail := step.info.get("detail")) is not None:
            _check_kinds(detail, _DETAIL)


def _check_kinds(data: Any, kinds: Mapping[str, Any]) -> None:
    for name, kind in kinds.items():
        if not isinstance(data[name], kind):
            raise TypeError(f"{name} is {data[name]!r}")


# Empty chat and reply, from which the deltas of an agent's first step are computed.
_NOTHING = Chat(), Reply("")
_UNREADABLE = (LookupError, AttributeError, OverflowError, RecursionError, TypeError, ValueError)
_Part = tuple[ChatDelta, ReplyDelta, float, Mapping[str, Any]]


def _follow(parts: Iterable[_Part], last: ChatDelta) -> tuple[tuple[Step, ...], Chat]:
    newest: dict[str, tuple[Chat, Reply]] = {}
    steps: list[Step] = []
    for chat, reply, reward, info in parts:
        old_chat, old_reply = newest.get(_agent(info), _NOTHING)
        now = newest[_agent(info)] = chat.after(old_chat), reply.after(old_reply)
        steps.append(Step(*now, reward, info))
    return tuple(steps), last.after(steps[-1].chat if steps else Chat())


def _rebuilt(
    kind: type[Trajectory], spec: str, seed: int, parts: list[_Part], last: ChatDelta, ends: Any
) -> Trajectory:
    steps, chat = _follow(parts, last)
    return kind(spec, seed, steps, chat, *ends)


def _chat_to_json(delta: ChatDelta) -> dict[str, Any]:
    data: dict[str, Any] = {
        "kept": delta.kept,
        "messages": [message.to_dict() for message in delta.messages],
    }
    if delta.tools is not None:
        data["tools"] = [asdict(tool) for tool in delta.tools]
    return data


def _chat_from_json(data: Mapping[str, Any], agent: str) -> ChatDelta:
    kept, messages = data["kept"], tuple(map(Message.from_dict, data["messages"]))
    tools = None
    if "tools" in data:
        tools = tuple(Tool(**tool) for tool in data["tools"])
    return ChatDelta(kept, messages, tools, agent)


def _reply_to_json(delta: ReplyDelta) -> dict[str, Any]:
    """Return the non-empty fields; `prompt_ids` omits the first `kept_ids` ids."""
    data = {
        "text": delta.text,
        "kept_ids": delta.kept,
        "prompt_ids": delta.new,
        "ids": delta.ids,
        "logprobs": delta.logprobs,
    }
    return {name: value for name, value in data.items() if value}


def _reply_from_json(data: Mapping[str, Any]) -> ReplyDelta:
    # Older lines lack `kept_ids` and store the whole prompt.
    new, ids, logprobs = (tuple(data.get(name, ())) for name in ("prompt_ids", "ids", "logprobs"))
    return ReplyDelta(data.get("text", ""), index(data.get("kept_ids", 0)), new, ids, logprobs)
