"""Adapter for the library `verifiers`, whose environments prime-rl also uses.

The harness plays the env with all wrappers in this process: requests contain the env's chat, and
`verifiers` records each context edit as a branch of the trace.

`verifiers` finds plugins by the name of a top-level module, `agentgym_verifiers`:

    vf-eval agentgym_verifiers --env.taskset.world ListWorld --env.taskset.options '{"items": 6,
    "removals": 2}'

Example:
    >>> env = load_environment("ListWorld", range(1_000), context="compaction", window=8_000)
    >>> async with env.serving():
    ...     episodes = [await env.run_slot(slot, model) for task in env.taskset for slot in env.slots(task, 8)]
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Iterator
from typing import Any, Literal

import openai
import verifiers.v1 as vf  # type: ignore[import-not-found,unused-ignore]  # not in the test environment
from pydantic import Field, create_model
from verifiers.v1.configs.agent import agent_config_fields  # type: ignore[import-not-found,unused-ignore]

import agentgym.assemble.registry as registry
from agentgym.training.integrations.datasets import group_of
from agentgym.training.integrations.reply_history import ReplyHistory
from agentgym.training.integrations.shared_episode import (
    ALONE,
    SharedEpisode,
    is_solvable,
    play_nothing,
)
from agentgym.training.rollout.endpoints.chat_completions import to_reply
from agentgym.training.rollout.models.plain_chat import as_text

# `verifiers` finds these classes under this module name.
PLUGIN = "agentgym_verifiers"


class WorldData(vf.TaskData):  # type: ignore[misc]
    """An instance of a world.

    `id` is the `group_id` of the instance's episodes, and `prompt` is the first observation.
    """

    world: str
    options: dict[str, Any]
    seed: int


class WorldTask(vf.Task[WorldData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """Scores the harness's episode; `trace.info["agentgym"]` describes the episode."""

    @property
    def key(self) -> str:
        """The key of a group, which is the same in every process."""
        return str(self.data.id)

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Report whether the oracle policy solves the instance."""
        data = self.data
        return await asyncio.to_thread(is_solvable, data.world, data.options, data.seed)

    @vf.reward  # type: ignore[untyped-decorator]
    async def world_score(self, trace: vf.Trace) -> float:
        """Return the episode's reward; a trace without replies scores like an idle episode."""
        return float((await self._played(trace))["reward"])

    @vf.metric  # type: ignore[untyped-decorator]
    async def outcome(self, trace: vf.Trace) -> dict[str, float]:
        """Return success, termination and truncation as 0 or 1, and the number of replies."""
        played = await self._played(trace)
        names = ("success", "terminated", "truncated", "turns")
        return {name: float(played[name]) for name in names}

    async def _played(self, trace: vf.Trace) -> dict[str, Any]:
        if "agentgym" not in trace.info:
            if trace.nodes:
                raise ValueError(
                    f"a world is played by the harness {PLUGIN!r}; omit harness.id, or set it to "
                    "that name"
                )
            data = self.data
            trace.info["agentgym"] = await play_nothing(data.world, data.options, data.seed)
        played = dict(trace.info["agentgym"])
        if played["invalid"]:
            raise RuntimeError(f"the episode is invalid: {played['invalid']}")
        return played


class WorldTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """The instances to play.

    Attributes:
        world: The id of a world.
        options: Keyword arguments of `agentgym.make`, as plain data.
        start: The first seed.
        stop: The end of the range of seeds, exclusive.
    """

    world: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    start: int = 0
    stop: int = 1_000


class WorldTasks:
    """Mixin for tasksets that make one task per seed."""

    config: WorldTasksetConfig

    def load(self) -> Iterator[WorldTask]:
        """Make the tasks lazily."""
        config = self.config
        world = registry.resolve(config.world)
        env = registry.make(config.world, **config.options)
        spec = env.spec.to_json() if env.spec else ""
        for seed in range(config.start, config.stop):
            chat, _ = env.reset(seed=seed)
            yield WorldTask(
                WorldData(
                    id=group_of(spec, seed),
                    name=f"{world}#{seed}",
                    prompt=as_text(chat.messages).to_openai(),
                    world=world,
                    options=config.options,
                    seed=seed,
                ),
                config.task,
            )


class WorldTaskset(WorldTasks, vf.Taskset[WorldTask, WorldTasksetConfig]):  # type: ignore[misc]
    """One task per seed."""


class WorldHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]
    """Options of `WorldHarness`.

    Attributes:
        tools: `text` sends only messages; `native` also sends the tool schemas, for servers that
            parse calls only if given schemas.
    """

    id: str = PLUGIN
    tools: Literal["text", "native"] = "text"


class WorldHarness(vf.Harness[WorldHarnessConfig]):  # type: ignore[misc]
    """Play an episode in this process, with every model call through the endpoint of `verifiers`.

    The limits of `verifiers` truncate the episode with its current score. A failure that is not the
    policy's fault becomes an error of the trace, which then has no reward. For a team, `TeamSeats`
    sets the episode (`shared`) and the harness's `seat`.
    """

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    shared: SharedEpisode | None = None
    seat = ALONE

    async def setup(self, runtime: vf.Runtime) -> None:
        """Raise `ValueError` if a sandbox is requested, because it would remain unused."""
        if runtime.config.type != "subprocess":
            raise ValueError(
                f"worlds are played in this process, not in {runtime.config.type!r}; set "
                "runtime.type to 'subprocess'"
            )

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: WorldData,
    ) -> vf.ProgramResult:
        """Play the episode of a task, which must be a `WorldData` without a system prompt."""
        if not isinstance(data, WorldData):
            raise ValueError(
                f"the harness {PLUGIN!r} plays worlds, not a {type(data).__name__}; set taskset.id "
                f"to {PLUGIN!r}"
            )
        if data.system_prompt is not None:
            raise ValueError(
                "a world has its own rules, so system_prompt cannot be set; change the rules of "
                "the world"
            )
        shared = self.shared or await SharedEpisode.begin(data.world, data.options, data.seed)
        try:
            shared.join(self.seat)
            async with openai.AsyncOpenAI(
                base_url=endpoint, api_key=secret, timeout=None
            ) as client:
                await self._play(shared, client, ctx.model, trace)
        finally:
            if self.shared is None:
                shared.close()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def _play(
        self, shared: SharedEpisode, client: openai.AsyncOpenAI, model: str, trace: vf.Trace
    ) -> None:
        history = ReplyHistory()
        try:
            while trace.stop_condition is None and await shared.is_due(self.seat):
                chat = shared.chat(self.seat)
                request: Any = {"model": model, "messages": history.messages(chat)}
                if self.config.tools == "native":
                    request["tools"] = [tool.to_openai() for tool in chat.tools]
                completion = (await client.chat.completions.create(**request)).model_dump()
                reply = to_reply(completion, shared.dialect)
                await shared.play(reply)
                message = completion["choices"][0]["message"]
                history.remember(shared.chat(self.seat), reply.text, message)
        except openai.APIStatusError:
            # `verifiers` refuses calls beyond its limits.
            if trace.stop_condition is None:
                raise
        except asyncio.CancelledError:
            # After a timeout, `verifiers` scores the steps that were played.
            await shared.end("timeout")
            trace.info["agentgym"] = shared.outcome(self.seat)
            raise
        await shared.end(trace.stop_condition or "")
        if shared.failure:  # `verifiers` scores a failed trace too, and omits it
            trace.info["agentgym"] = {"invalid": shared.failure}
            raise RuntimeError(f"the episode is invalid: {shared.failure}")
        outcome = trace.info["agentgym"] = shared.outcome(self.seat)
        if outcome["truncated"]:
            trace.stop(outcome["ended"])


class WorldEnvConfig(vf.SingleAgentEnvConfig):  # type: ignore[misc]
    """Options of an env with one agent, which runs in this process."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class WorldEnv(vf.Env[WorldEnvConfig]):  # type: ignore[misc]
    """One agent that plays one episode of a task."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play the task."""
        await agents.agent.run(task)


class TeamSeatsConfig(vf.EnvConfig):  # type: ignore[misc]
    """Options of a team's env, to which `env_types` adds one agent per seat.

    Attributes:
        frozen: Seats whose tokens are not trained, such as the seats of a fixed opponent.
    """

    # Each seat waits for the others, so all seats must run concurrently.
    max_concurrent_agents: int | None = None
    frozen: list[str] = Field(default_factory=list)


class TeamSeats:
    """Mixin for envs in which each seat of a team has its own model, trace and reward."""

    config: TeamSeatsConfig

    async def setup(self, agents: vf.Agents) -> None:
        """Mark the frozen seats; raise if a seat is unknown or seats cannot play concurrently."""
        limit = self.config.max_concurrent_agents
        if limit is not None and limit < len(agent_config_fields(self.config)):
            raise ValueError(
                f"all seats of a team play concurrently, but max_concurrent_agents is {limit}; "
                "omit max_concurrent_agents"
            )
        for seat in self.config.frozen:
            getattr(agents, seat).trainable = False

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play one episode with all seats."""
        data = task.data
        shared = await SharedEpisode.begin(data.world, data.options, data.seed)
        try:
            async with asyncio.TaskGroup() as group:
                for seat in shared.seats:
                    group.create_task(self._seat(task, getattr(agents, seat), shared, seat))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # raise a single error, not the group
        finally:
            shared.close()

    async def _seat(self, task: vf.Task, agent: Any, shared: SharedEpisode, seat: str) -> None:
        if not isinstance(agent.harness, WorldHarness):
            raise ValueError(
                f"the seat {seat!r} has the harness {agent.harness.config.id!r}; teams play with "
                f"{PLUGIN!r}, so omit the seat's harness"
            )
        agent.harness.shared, agent.harness.seat = shared, seat
        prompt = as_text(shared.chat(seat).messages).to_openai()
        own = type(task)(WorldData(**{**task.data.model_dump(), "prompt": prompt}), task.config)
        trace = await agent.run(own)
        await shared.leave(seat, "" if trace.ok else str(trace.last_error.message))


def env_types(env_id: str, **options: Any) -> tuple[type[vf.Env], type[vf.EnvConfig]]:
    """Return an environment's class and the class of its configuration, which lists a team's seats."""
    if not registry.is_team(env_id) or "seat" in options:
        return WorldEnv, WorldEnvConfig
    env: Any = registry.make(env_id, **options)
    agent = vf.AgentConfig(runtime=vf.SubprocessConfig())
    seats: Any = dict.fromkeys(env.unwrapped.game.agents, (vf.AgentConfig, agent))
    env.close()
    config = create_model("SeatsConfig", __base__=TeamSeatsConfig, **seats)
    return types.new_class("SeatsEnv", (TeamSeats, vf.Env[config])), config


def load_environment(
    env_id: str = "ListWorld",
    seeds: range = range(1_000),
    *,
    tools: Literal["text", "native"] = "text",
    **options: Any,
) -> vf.Env:
    """Return a stack as a verifiers environment with one task per seed.

    `env_id` is a world, or a team whose seats are verifiers' agents; `options` are plain data for
    `agentgym.make`; for `tools`, see `WorldHarnessConfig`.
    """
    registry.spec(env_id, **options)
    if seeds.step != 1:
        raise ValueError(f"seeds must be a range with step 1, got {seeds!r}")
    env_type, config_type = env_types(env_id, **options)
    taskset: dict[str, Any] = {"id": PLUGIN, "world": env_id, "options": options}
    taskset |= {"start": seeds.start, "stop": seeds.stop}
    agents = agent_config_fields(config_type())
    seats = {name: {"harness": {"id": PLUGIN, "tools": tools}} for name in agents}
    return env_type(config_type.model_validate({"taskset": taskset, **seats}))
