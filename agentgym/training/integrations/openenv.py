"""OpenEnv: serve any stack as an OpenEnv environment, and play a served stack as a Gymnasium env.

An observation contains only messages that the policy has not seen yet.

Example:
    >>> app = create_app([Stack("ListWorld", {"oracles": "SP"})])
    >>> env = RemoteEnv("http://127.0.0.1:8000")
    >>> chat, info = env.reset(seed=7)
"""

# mypy runs without this package.
# mypy: disable-error-code="import-not-found,misc,no-any-return"

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import gymnasium
from fastapi import FastAPI
from gymnasium.envs.registration import EnvSpec
from openenv.core import GenericEnvClient
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import (
    Action,
    ConcurrencyConfig,
    EnvironmentMetadata,
    Observation,
    State,
)
from pydantic import Field, model_validator
from starlette.types import ASGIApp

import agentgym
import agentgym.assemble.registry as registry
from agentgym.play.env import ToolEnv, tool_env
from agentgym.play.spaces import ActionSpace, ChatSpace
from agentgym.text.messages import Chat, Image, Message
from agentgym.text.tools import Tool, first_paragraph
from agentgym.text.validation import check_choice, check_int
from agentgym.training.integrations.common import truncate
from agentgym.training.integrations.http_server import RequireToken
from agentgym.training.rollout.models.plain_chat import to_encodable
from agentgym.world.splits import SPLITS
from agentgym.world.step_info import StepInfo
from agentgym.world.world import load_world

# Number of tasks per split. Task `index` is the instance that `reset(seed=index)` draws from the
# split.
TASKS = 1_000_000
# Number of tasks that `list_tasks` returns; clients can get other tasks by index.
PREVIEW = 100
# Split name of worlds that have no splits.
ALL = "all"


class WorldAction(Action):
    """A reply of the policy.

    Attributes:
        text: The reply, including any tool calls.
        stop: Whether to end the episode with its current score.
    """

    text: str
    stop: bool = False

    @model_validator(mode="before")
    @classmethod
    def _read_reply(cls, data: Any) -> Any:
        """Accept an object without `text`, because some clients parse a JSON reply."""
        if isinstance(data, Mapping) and "text" not in data:
            return {"text": json.dumps(data, ensure_ascii=False)}
        return data


class WorldObservation(Observation):
    """Change of the chat since the previous observation.

    Attributes:
        keep: The number of messages kept from the previous observation.
        messages: The new messages that follow, as chat-completions dicts with their `id`.
        tools: The tool schemas if they have changed; None otherwise.
    """

    keep: int = 0
    messages: list[dict[str, Any]] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None


class WorldState(State):
    """The session state that a client may read, without the task and its answer."""

    world: str = ""
    split: str = ALL
    dialect: str = "auto"


@dataclass(frozen=True)
class Stack:
    """A world and its wrappers, to be served; `options` are plain data for `agentgym.make`."""

    env_id: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        registry.one_agent_spec(self.env_id, **self.options)

    def spec(self, split: str) -> EnvSpec:
        """Return the spec for episodes of a split."""
        options = dict(self.options)
        if split != ALL:
            options["split"] = split
        return registry.spec(self.env_id, **options)

    @cached_property
    def splits(self) -> list[str]:
        """The split in the stack's options; by default, all splits of the world."""
        if self.options.get("split"):
            return [self.options["split"]]
        return [ALL, *filter(self._has, SPLITS)]

    def _has(self, split: str) -> bool:
        try:
            self.spec(split)
        except ValueError:  # too few instances
            return False
        return True


class WorldEnvironment(Environment[WorldAction, WorldObservation, WorldState]):
    """The envs of one session, one per split."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self._stack = stack
        self._world = registry.resolve(stack.env_id)
        self._envs: dict[str, gymnasium.Env[Any, Any]] = {}
        self._env: gymnasium.Env[Any, Any] | None = None
        self._state = WorldState(world=self._world, split=stack.splits[0])

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        form: str = "openai",
    ) -> WorldObservation:
        """Start an episode.

        Args:
            seed: None continues the session's random stream.
            episode_id: A name for the episode, returned in the state.
            split: The name of a split; by default, the split of the previous episode.
            index: A task's index in the split, used instead of a seed; `IndexError` if out of
                range.
            form: `openai` for chat-completions dicts, or `records` for all fields of `Message` and
                `Tool`.
        """
        split = self._check_split(split or self._state.split)
        check_choice("form", form, ("openai", "records"))
        if split not in self._envs:
            self._envs[split] = gymnasium.make(self._stack.spec(split))
        env = self._env = self._envs[split]
        chat, _ = env.reset(seed=seed if index is None else self._check_index(index))
        self._state = WorldState(
            episode_id=episode_id, world=self._world, split=split, dialect=tool_env(env).dialect
        )
        self._sent = _SentChat(form == "records")
        return self._sent.observe(chat)

    def step(
        self, action: WorldAction, timeout_s: float | None = None, **kwargs: Any
    ) -> WorldObservation:
        """Play a reply."""
        if self._env is None:
            raise ValueError("this session has no episode; call reset before step")
        if action.stop:
            outcome = truncate(self._env, "stopped")
        else:
            outcome = self._env.step(action.text)
        chat, reward, terminated, truncated, info = outcome
        self._state.step_count += 1
        observation = self._sent.observe(chat)
        observation.reward, observation.done = float(reward), terminated or truncated
        # Omit other entries of `info`, because hints, labels and reports may contain the answer.
        observation.metadata = {
            "turn": info["turn"],
            "valid": info["valid"],
            "success": info["success"],
            "truncated": truncated,
            "invalid": bool(info["detail"].invalid),
        }
        return observation

    @property
    def state(self) -> WorldState:
        """The session."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the name and the summary of the world."""
        world = load_world(self._stack.spec(ALL).kwargs["world"])
        return EnvironmentMetadata(
            name=self._world,
            description=first_paragraph(world.__doc__),
            version=agentgym.__version__,
        )

    # OpenEnv's Task API.

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return self._stack.splits

    def num_tasks(self, split: str) -> int:
        """Return the number of tasks in a split."""
        self._check_split(split)
        return TASKS

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a task: its id, and the arguments of `reset` that select it."""
        self._check_split(split)
        self._check_index(index)
        return {"id": f"{self._world}/{split}/{index}", "split": split, "index": index}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the first tasks of a split."""
        return self.get_task_range(split, 0, PREVIEW)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        """Return a slice of at most 10,000 tasks of a split."""
        chosen = range(TASKS)[start:stop]
        check_int("the number of tasks in a range", len(chosen), 0, 10_000)
        return [self.get_task(split, index) for index in chosen]

    def _check_split(self, split: str) -> str:
        check_choice("split", split, self._stack.splits)
        return split

    def _check_index(self, index: int) -> int:
        if not 0 <= index < TASKS:
            raise IndexError(f"index must be in [0, {TASKS - 1}], got {index}")
        return index

    def close(self) -> None:
        """Close the envs of the session."""
        for env in self._envs.values():
            env.close()
        self._envs, self._env = {}, None


class _SentChat:
    """Record of the chat sent so far. If one message of an observation is edited, all its messages
    are resent, because tool images must follow their results.
    """

    def __init__(self, as_records: bool) -> None:
        self._as_records = as_records
        self._chat = Chat()
        self._parts: list[tuple[int, int]] = []  # (messages, dicts) per observation

    def observe(self, chat: Chat) -> WorldObservation:
        unchanged = chat.shared_prefix(self._chat)
        messages = sum(count for count, _ in self._parts)
        while messages > unchanged:
            messages -= self._parts.pop()[0]
        keep = sum(count for _, count in self._parts)
        new = chat.messages[messages:]
        dicts = Chat(new).to_openai()
        tools = [tool.to_openai() for tool in chat.tools]
        if self._as_records:
            dicts = [_record(message) for message in new]
            tools = [asdict(tool) for tool in chat.tools]
        self._parts.append((len(new), len(dicts)))
        is_changed = chat.tools != self._chat.tools
        self._chat = chat
        return WorldObservation(
            keep=keep, messages=to_encodable(dicts), tools=tools if is_changed else None
        )


def create_app(
    stacks: Sequence[Stack], max_sessions: int = 64, idle_seconds: float = 1_800.0, token: str = ""
) -> ASGIApp:
    """Return an OpenEnv server for one stack, or for several stacks at `/0`, `/1`, and so on.

    Clients send the token, if any, as `Authorization: Bearer TOKEN`.
    """
    if not stacks:
        raise ValueError("there are no stacks to serve; name at least one world")
    apps = [_app(stack, max_sessions, idle_seconds) for stack in stacks]
    app: FastAPI = apps[0]
    if len(apps) > 1:
        app = FastAPI()
        for number, each in enumerate(apps):
            app.mount(f"/{number}", each)
    return RequireToken(app, token) if token else app


def _app(stack: Stack, max_sessions: int, idle_seconds: float) -> FastAPI:
    limits = ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=idle_seconds)
    return create_fastapi_app(
        partial(WorldEnvironment, stack),
        WorldAction,
        WorldObservation,
        concurrency_config=limits,
        env_name=registry.resolve(stack.env_id).rpartition("/")[2],
        state_cls=WorldState,
        mode="simulation",
    )


def _record(message: Message) -> dict[str, Any]:
    """Return a message without its image descriptions, because policies must not see them."""
    images = tuple(Image(image.png) for image in message.images)
    return replace(message, images=images).to_dict()


class RemoteEnv(gymnasium.Env[Chat, str]):
    """A stack on an OpenEnv server as a Gymnasium env.

    `reset_options`, such as `{"split": "test"}`, are passed to each reset. The dialect and the
    action space are unknown before the first reset.
    """

    metadata = ToolEnv.metadata

    def __init__(
        self, base_url: str, token: str = "", reset_options: Mapping[str, Any] | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._client = GenericEnvClient(base_url=base_url, headers=headers).sync()
        self._options = dict(reset_options or {})
        self._chat = Chat()
        self.observation_space = ChatSpace()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Chat, dict[str, Any]]:
        """Start an episode; `options` are passed to OpenEnv's reset."""
        chosen = self._options | (options or {})
        if seed is not None:
            chosen["seed"] = seed
        self._chat = Chat()
        self._read(self._client.reset(**(chosen | {"form": "records"})))
        self.dialect = self._client.state()["dialect"]
        self.action_space = ActionSpace(self._chat.tools, self.dialect)
        return self._chat, {}

    def step(self, action: str) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        """Play a reply."""
        return self._play({"text": action})

    def truncate(self, reason: str) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        """End the episode with its current score; return the same values as `step`."""
        return self._play({"text": "", "stop": True})

    def _play(self, action: dict[str, Any]) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        result = self._client.step(action)
        info = self._read(result)
        truncated = bool(info.pop("truncated"))
        invalid = "the server reports an invalid episode" if info.pop("invalid") else ""
        info["detail"] = StepInfo(invalid=invalid)
        return (
            self._chat,
            float(result.reward or 0.0),
            bool(result.done) and not truncated,
            truncated,
            info,
        )

    def _read(self, result: Any) -> dict[str, Any]:
        seen = result.observation
        tools = self._chat.tools
        if seen["tools"] is not None:
            tools = tuple(Tool(**each) for each in seen["tools"])
        kept = Chat(self._chat.messages, tools).first(seen["keep"])
        self._chat = kept.add(*map(Message.from_dict, seen["messages"]))
        return dict(result.metadata or seen.get("metadata") or {})

    def close(self) -> None:
        """Close the session."""
        self._client.close()
