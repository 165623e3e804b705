"""Trajectories: the chats, replies and rewards of an episode, one JSON line each.

Evaluation, figures and training read nothing else.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from itertools import pairwise
from operator import index
from pathlib import Path
from typing import Any, Self

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


@dataclass(frozen=True, slots=True)
class Step:
    """One decision.

    Attributes:
        chat: The chat that the policy was shown.
        reply: The reply that it wrote.
        reward: The reward of the step.
        info: The info of the env, as JSON-able data.
    """

    chat: Chat
    reply: Reply
    reward: float
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode.

    Of a team, each step is the reply of one agent to its own chat; `Step.info["agent"]` says of
    whom.

    Attributes:
        spec: The spec of the env with its wrappers, as the JSON text of
            `gymnasium.envs.registration.EnvSpec`.
        seed: The seed of the reset. `spec`, `seed` and the replies determine the episode.
        steps: The decisions in order.
        last: The chat after the last one; of a team, to the agent that made it.
        terminated: The episode ended by itself.
        truncated: A limit ended it.
        labels: Labels of the run, such as the policy's name or the arm.
        failure: The cause, if the episode says nothing about the policy: a worker that died or
            hung, an endpoint that did not answer, or an env that calls it invalid
            (`StepInfo.invalid`: its scorer broke, a limit of the host was met). It is neither
            scored nor trained on.
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
        """Return the sum of the rewards; of a team, its score."""
        return sum(step.reward for step in self.steps)

    def own_rewards(self) -> tuple[float, ...]:
        """Return the reward of each step to the agent that took it.

        The score of a team comes with the last step of the episode, whoever took it. Here each
        agent has its own part of it, as the report of the team says, with its own last step.
        """
        rewards = [step.reward for step in self.steps]
        detail = self.steps[-1].info.get("detail", {}) if self.steps else {}
        shares = ((detail.get("report") or {}).get("team") or {}).get("rewards")
        if shares is not None:
            rewards[-1] -= detail.get("score") or 0.0
            for agent, numbers in self.by_agent().items():
                rewards[numbers[-1]] += shares.get(agent, 0.0)
        return tuple(rewards)

    def reward_of(self, agent: str) -> float:
        """Return the sum of the rewards of an agent; that of an episode without a team has an empty
        name.
        """
        rewards = self.own_rewards()
        return sum(rewards[k] for k in self.by_agent().get(agent, ()))

    def agent_of(self, step: int) -> str:
        """Return the agent that took a step; the name is empty in an episode without a team."""
        return _agent(self.steps[step].info)

    def segments(self) -> list[Sequence[int]]:
        """Return the steps, cut where a prompt does not begin with the prompt before and its reply:
        where the context was edited.

        Each segment is one training row, its last prompt and reply, in which the replies of its
        steps are what was sampled. Every step is in exactly one segment. The steps of each agent of
        a team are cut for themselves.
        """
        return sorted(
            (part for steps in self.by_agent().values() for part in self._cut(steps)),
            key=lambda part: part[0],
        )

    def by_agent(self) -> dict[str, Sequence[int]]:
        """Return the steps of each agent, in order; those of an episode without a team are all
        under an empty name.
        """
        numbers: dict[str, list[int]] = {}
        for number, step in enumerate(self.steps):
            numbers.setdefault(_agent(step.info), []).append(number)
        return {agent: tuple(own) if agent else range(len(own)) for agent, own in numbers.items()}

    def _cut(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        starts = [
            0,
            *(
                k
                for k, (one, two) in enumerate(pairwise(numbers), 1)
                if not _continues(self.steps[one], self.steps[two].chat)
            ),
        ]
        return (numbers[start:end] for start, end in pairwise([*starts, len(numbers)]))

    def _deltas(self) -> tuple[list[tuple[ChatDelta, ReplyDelta]], ChatDelta]:
        """Return what each step adds to the one before of its agent, and the last chat to the last
        step.
        """
        newest: dict[str, tuple[Chat, Reply]] = {}
        deltas = []
        for step in self.steps:
            chat, reply = newest.get(_agent(step.info), _NOTHING)
            deltas.append((ChatDelta.of(step.chat, chat), ReplyDelta.of(step.reply, reply)))
            newest[_agent(step.info)] = step.chat, step.reply
        return deltas, ChatDelta.of(self.last, self.steps[-1].chat if self.steps else Chat())

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts from which a pickle rebuilds it, which grow as those of `to_json`."""
        deltas, last = self._deltas()
        parts = [
            (*delta, step.reward, step.info) for step, delta in zip(self.steps, deltas, strict=True)
        ]
        ends = self.terminated, self.truncated, self.labels, self.failure
        return _rebuilt, (type(self), self.spec, self.seed, parts, last, ends)

    def to_json(self) -> str:
        """Return one line of JSON.

        Each chat and each prompt is written as what it adds to the one before of its agent, so the
        line grows with the new text and tokens only.
        """
        deltas, last = self._deltas()
        steps = [
            {
                **_chat_to_json(chat),
                "reply": _reply_to_json(reply),
                "reward": step.reward,
                "info": dict(step.info),
            }
            for step, (chat, reply) in zip(self.steps, deltas, strict=True)
        ]
        data = {
            "spec": json.loads(self.spec),
            "seed": self.seed,
            "labels": dict(self.labels),
            **({"failure": self.failure} if self.failure else {}),
            "last": _chat_to_json(last),
            "terminated": self.terminated,
            "truncated": self.truncated,
            "steps": steps,
        }
        return json.dumps(data, default=_plain)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Rebuild a trajectory from its line.

        Raises:
            ValueError: The line is not a trajectory.
        """
        try:
            data = json.loads(line)
            parts = [
                (
                    _chat_from_json(item),
                    _reply_from_json(item["reply"]),
                    item["reward"],
                    item["info"],
                )
                for item in data["steps"]
            ]
            steps, last = _follow(parts, _chat_from_json(data["last"]))
            ends = data["terminated"], data["truncated"], data["labels"], data.get("failure", "")
            _check_types(data, steps)
            return cls(json.dumps(data["spec"]), data["seed"], steps, last, *ends)
        except _UNREADABLE as error:
            raise ValueError(
                f"this is not the JSON line of a trajectory ({error!r}): {line[:80]!r}"
            ) from error


class TrajectoryLog:
    """A file of trajectories that survives being killed: whole lines are kept, a torn last line is
    dropped. It has one writer at a time.

    Args:
        path: The file; it is made on the first append. One that ends in `.zst` is compressed.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self._lock, self._turn = RunLock(path, folder=False), threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return TrajectoryLog, (self.path,)

    @property
    def settings(self) -> Path:
        """Return the file beside it in which `agentgym rollout` keeps the settings of its run."""
        return self.path.with_name(self.path.name + ".settings.json")

    def __iter__(self) -> Iterator[Trajectory]:
        """Yield the trajectories.

        Raises:
            DamagedFileError: A line before the last is none.
        """
        for number, line in whole_lines(self.path):
            try:
                yield Trajectory.from_json(line.decode("utf-8"))
            except ValueError as error:
                raise DamagedFileError(self.path, str(error), number) from None

    def of_run(
        self, spec: str, labels: Mapping[str, Any], *, alone: bool = False
    ) -> Iterator[Trajectory]:
        """Yield the trajectories of an env with these labels.

        Args:
            spec: The spec of the env, as JSON text.
            labels: All labels of the trajectories.
            alone: The log may hold nothing else, as that of `agentgym rollout`.

        Raises:
            OtherRunError: The log belongs to another run: one with these labels is of another env, or
                it may hold nothing else and does.
        """
        data = json.loads(spec)
        alone = alone or self.settings.exists()
        for trajectory in self:
            is_like = trajectory.labels == labels, json.loads(trajectory.spec) == data
            if all(is_like):
                yield trajectory
            elif alone or is_like[0]:
                raise OtherRunError(
                    f"{self.path} holds an episode of another run "
                    f"({json.loads(trajectory.spec).get('id')}, seed {trajectory.seed}, labels "
                    f"{trajectory.labels}); choose another file or delete it"
                )

    def readable(self) -> Iterator[tuple[int, Trajectory | None]]:
        """Yield the trajectories with the numbers of their lines; None for one that is damaged."""
        for number, line in whole_lines(self.path):
            try:
                yield number, Trajectory.from_json(line.decode("utf-8"))
            except ValueError:
                yield number, None

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Keep other writers out; the file and its folder are made if they are missing, and a last
        line that was not written whole is cut off.

        Raises:
            RunLockedError: Somebody else writes to it.
            OSError: The file cannot be written.
        """
        with self._lock:
            cut_torn_line(self.path)
            append_bytes(self.path, b"")
            yield self

    def append(self, *lines: str) -> None:
        """Write the lines of trajectories (`Trajectory.to_json`) at the end of the file.

        Raises:
            RunLockedError: Somebody else writes to it.
            OSError: They cannot be written; the file is as it was before.
        """
        with self._lock, self._turn:
            data = (line.encode("utf-8") + b"\n" for line in lines)
            append_bytes(self.path, encode_lines(self.path, data))

    def repair(self) -> None:
        """Cut off a last line that was not written whole."""
        if self.path.exists():
            with self._lock:
                cut_torn_line(self.path)


def _continues(step: Step, chat: Chat) -> bool:
    """Return whether a chat begins with the chat and the reply of a step, word for word."""
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


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: item for name, item in asdict(value).items() if item not in ((), "")}
    raise TypeError(f"{type(value).__name__} is not JSON-able")


_TYPES = {"spec": dict, "seed": int, "labels": dict, "terminated": bool, "truncated": bool}


def _check_types(data: Mapping[str, Any], steps: Sequence[Step]) -> None:
    """Raise `TypeError` if a part that readers compute with is of another type."""
    for name, kind in _TYPES.items():
        if not isinstance(data[name], kind):
            raise TypeError(f"{name} is {data[name]!r}")
    for step in steps:
        if not isinstance(step.reward, (int, float)) or not isinstance(step.info, dict):
            raise TypeError("a step has no reward or no info")


_NOTHING = Chat(), Reply("")
"""What comes before the first step of an agent."""
_UNREADABLE = (LookupError, AttributeError, OverflowError, RecursionError, TypeError, ValueError)
"""Errors of a line of another form."""
_Part = tuple[ChatDelta, ReplyDelta, float, Mapping[str, Any]]


def _follow(parts: Iterable[_Part], last: ChatDelta) -> tuple[tuple[Step, ...], Chat]:
    """Return the steps that some deltas make, and the last chat."""
    newest: dict[str, tuple[Chat, Reply]] = {}
    steps: list[Step] = []
    for chat, reply, reward, info in parts:
        before = newest.get(_agent(info), _NOTHING)
        before = newest[_agent(info)] = (chat.after(before[0]), reply.after(before[1]))
        steps.append(Step(*before, reward, info))
    return tuple(steps), last.after(steps[-1].chat if steps else Chat())


def _rebuilt(
    kind: type[Trajectory], spec: str, seed: int, parts: list[_Part], last: ChatDelta, ends: Any
) -> Trajectory:
    """Return a trajectory from what `Trajectory.__reduce__` gives."""
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


def _chat_from_json(data: Mapping[str, Any]) -> ChatDelta:
    return ChatDelta(
        data["kept"],
        tuple(map(Message.from_dict, data["messages"])),
        tuple(Tool(**tool) for tool in data["tools"]) if "tools" in data else None,
    )


def _reply_to_json(delta: ReplyDelta) -> dict[str, Any]:
    """Return a reply without what is empty; `prompt_ids` are those after the `kept_ids`."""
    data = {
        "text": delta.text,
        "kept_ids": delta.kept,
        "prompt_ids": delta.new,
        "ids": delta.ids,
        "logprobs": delta.logprobs,
    }
    return {name: value for name, value in data.items() if value}


def _reply_from_json(data: Mapping[str, Any]) -> ReplyDelta:
    """Read a reply; older lines have no `kept_ids` and the whole prompt."""
    new, ids, logprobs = (tuple(data.get(name, ())) for name in ("prompt_ids", "ids", "logprobs"))
    return ReplyDelta(data.get("text", ""), index(data.get("kept_ids", 0)), new, ids, logprobs)
