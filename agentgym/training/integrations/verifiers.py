"""verifiers adapter, and so prime-rl, which trains on verifiers' environments.

A group contains one task's episodes. The harness plays the whole stack in this process: the model's
requests are the env's chat, and verifiers records each context edit as a branch of the trace.

verifiers finds plugins by the name of a top-level module, `agentgym_verifiers`:

    vf-eval agentgym_verifiers --env.taskset.world ListWorld --env.taskset.options '{"items": 6,
    "removals": 2}'

Example:
    >>> env = load_environment("ListWorld", range(1_000), context="compaction", window=8_000)
    >>> async with env.serving():
    ...     episodes = [await env.run_slot(slot, model) for task in env.taskset for slot in env.slots(task, 8)]
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import openai
import verifiers.v1 as vf  # type: ignore[import-not-found,unused-ignore]  # not in the test environment
from pydantic import Field
from verifiers.v1.utils.aio import run_shielded  # type: ignore[import-not-found,unused-ignore]

import agentgym.assemble.registry as registry
from agentgym.oracles import OraclePolicy
from agentgym.play.env import tool_env
from agentgym.text.messages import Chat, Message
from agentgym.training.integrations.datasets import group_of
from agentgym.training.rollout import Episode
from agentgym.training.rollout.endpoints.chat_completions import to_reply
from agentgym.training.rollout.models.plain_chat import as_text, join_messages

# the module name under which verifiers finds these classes
PLUGIN = "agentgym_verifiers"
_KEPT = ("role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls")


class WorldData(vf.TaskData):  # type: ignore[misc]
    """An instance of a world.

    `id` is the `group_id` of its episodes, and `prompt` its first observation.
    """

    world: str
    options: dict[str, Any]
    seed: int


class WorldTask(vf.Task[WorldData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """Scores the harness's episode; `trace.info["agentgym"]` describes it."""

    @property
    def key(self) -> str:
        """The key shared by all episodes of a group, in every process."""
        return str(self.data.id)

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Report whether the oracle policy solves the instance without hints or context limits."""
        return await asyncio.to_thread(_is_solvable, self.data)

    @vf.reward  # type: ignore[untyped-decorator]
    async def world_score(self, trace: vf.Trace) -> float:
        """Return the episode's reward; an untouched trace scores like doing nothing."""
        return float((await self._played(trace))["reward"])

    @vf.metric  # type: ignore[untyped-decorator]
    async def outcome(self, trace: vf.Trace) -> dict[str, float]:
        """Return success and the kind of end as 0 or 1, and the number of replies."""
        played = await self._played(trace)
        names = ("success", "terminated", "truncated", "turns")
        return {name: float(played[name]) for name in names}

    async def _played(self, trace: vf.Trace) -> dict[str, Any]:
        if "agentgym" not in trace.info:
            if trace.nodes:
                raise ValueError(
                    f"a world is played by the harness {PLUGIN!r}; leave harness.id out, or set it "
                    "to that"
                )
            trace.info["agentgym"] = await asyncio.to_thread(_do_nothing, self.data)
        return dict(trace.info["agentgym"])


class WorldTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """The instances to play.

    Attributes:
        world: The id of a world.
        options: Keyword arguments of `agentgym.make`, as plain data.
        start: The first seed.
        stop: The seed after the last one.
    """

    world: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    start: int = 0
    stop: int = 1_000


class WorldTasks:
    """Mixin of tasksets that make one task per seed."""

    config: WorldTasksetConfig

    def load(self) -> Iterator[WorldTask]:
        """Make the tasks lazily."""
        config = self.config
        world, env = registry.resolve(config.world), registry.make(config.world, **config.options)
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
            only then parse calls.
    """

    id: str = PLUGIN
    tools: Literal["text", "native"] = "text"


class WorldHarness(vf.Harness[WorldHarnessConfig]):  # type: ignore[misc]
    """Play an episode in this process, with every model call through verifiers' endpoint.

    verifiers' limits truncate the episode with its current score, like the turn budget. A failure
    through no fault of the policy is an error of the trace, which then has no reward.
    """

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def setup(self, runtime: vf.Runtime) -> None:
        """Check that no box is requested, because nothing would run in it.

        Raises:
            ValueError: A box is requested.
        """
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
        """Play the episode of a task.

        Raises:
            ValueError: The task does not belong to a world, or has its own rules.
        """
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
        env = await asyncio.to_thread(registry.make, data.world, **data.options)
        try:
            episode = await run_shielded(asyncio.to_thread(Episode, env, data.seed))
            async with openai.AsyncOpenAI(
                base_url=endpoint, api_key=secret, timeout=None
            ) as client:
                await self._play(episode, client, ctx.model, trace)
        finally:
            env.close()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def _play(
        self, episode: Episode, client: openai.AsyncOpenAI, model: str, trace: vf.Trace
    ) -> None:
        history = _History()
        try:
            while not episode.over and trace.stop_condition is None:
                request: Any = {"model": model, "messages": history.messages(episode.chat)}
                if self.config.tools == "native":
                    request["tools"] = [tool.to_openai() for tool in episode.chat.tools]
                completion = (await client.chat.completions.create(**request)).model_dump()
                reply = to_reply(completion, tool_env(episode.env).dialect)
                # Finish a started step even if the rollout is cancelled, because nothing else may
                # touch the env meanwhile.
                await run_shielded(asyncio.to_thread(episode.play, reply))
                history.remember(episode.chat, reply.text, completion["choices"][0]["message"])
        except openai.APIStatusError:
            if (
                trace.stop_condition is None
            ):  # verifiers did not refuse the call for one of its limits
                raise
        except asyncio.CancelledError:
            trace.info["agentgym"] = _outcome(
                episode, "timeout"
            )  # verifiers scores the steps before it
            raise
        outcome = trace.info["agentgym"] = _outcome(episode, trace.stop_condition or "")
        if cause := episode.trajectory().failure:  # verifiers omits a trace with an error
            raise RuntimeError(f"the episode does not measure the policy: {cause}")
        if outcome["truncated"]:
            trace.stop(outcome["ended"])


class _History:
    """The chat as chat-completions messages, with replies kept verbatim.

    A rewritten reply would start another branch of the trace.
    """

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, dict[str, Any]]] = {}

    def remember(self, chat: Chat, text: str, completion: dict[str, Any]) -> None:
        newest = next(
            (message for message in reversed(chat.messages) if message.role == "assistant"), None
        )
        if newest is not None and newest.raw == text:
            self._said[newest.id] = (
                text,
                {
                    "content": "",
                    **{
                        name: completion[name] for name in _KEPT if completion.get(name) is not None
                    },
                },
            )

    def messages(self, chat: Chat) -> list[dict[str, Any]]:
        """Return the request for a chat; only tool messages answer structured calls."""
        messages: list[Message] = []
        forms: list[dict[str, Any]] = []
        waiting: list[str] = []
        for message in chat.messages:
            if message.role == "assistant":
                forms.append(self._form(message))
                waiting = [call["id"] for call in forms[-1].get("tool_calls", ())]
                messages.append(message)
            elif waiting and message.role == "tool":
                messages.append(replace(message, call_id=waiting.pop(0)))
            elif waiting:  # the env's error about unreadable calls
                messages += [Message("tool", message.text, call_id=each) for each in waiting]
                waiting = []
            else:
                reply = Message(
                    "user" if message.role == "tool" else message.role,
                    message.text,
                    images=message.images,
                )
                messages.append(
                    join_messages(messages.pop(), reply)
                    if messages and messages[-1].role == reply.role == "user"
                    else reply
                )
        remaining = iter(forms)
        return [
            next(remaining) if each["role"] == "assistant" else each
            for each in Chat(tuple(messages)).to_openai()
        ]

    def _form(self, message: Message) -> dict[str, Any]:
        text, completion = self._said.get(message.id, ("", {}))
        if completion and text == message.raw:
            return completion
        if (
            message.calls and "tool_calls" in completion
        ):  # edited, and still answered by the ids of its calls
            return {**Chat((message,)).to_openai()[0], "tool_calls": completion["tool_calls"]}
        return as_text([message]).to_openai()[0]


def _is_solvable(data: WorldData) -> bool:
    wrappers = registry.spec.__kwdefaults__ or {}
    options = {name: value for name, value in data.options.items() if name not in wrappers}
    env = registry.make(data.world, **options)
    try:
        episode = Episode(env, data.seed)
        policy = OraclePolicy(data.world)
        while not episode.over:
            episode.play(policy([episode.chat])[0])
        return episode.trajectory().reward == 1.0
    finally:
        env.close()


def _do_nothing(data: WorldData) -> dict[str, Any]:
    env = registry.make(data.world, **data.options)
    try:
        return _outcome(Episode(env, data.seed), "untouched")
    finally:
        env.close()


def _outcome(episode: Episode, reason: str) -> dict[str, Any]:
    trajectory = episode.trajectory()
    reward, terminated, truncated = trajectory.reward, trajectory.terminated, trajectory.truncated
    if not episode.over:
        _, reward, terminated, truncated, _ = tool_env(episode.env).truncate(reason)
    ended = trajectory.steps[-1].info["detail"]["ended"] if episode.over else reason
    return {
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "ended": ended,
        "success": reward >= 1.0,
        "turns": len(trajectory.steps),
        "seed": episode.seed,
    }


class WorldEnvConfig(vf.SingleAgentEnvConfig):  # type: ignore[misc]
    """The env's options; its one agent runs in this process."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class WorldEnv(vf.Env[WorldEnvConfig]):  # type: ignore[misc]
    """One agent that plays one episode of a task."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play the task."""
        await agents.agent.run(task)


def load_environment(
    env_id: str = "ListWorld",
    seeds: range = range(1_000),
    *,
    tools: Literal["text", "native"] = "text",
    **options: Any,
) -> vf.Env:
    """Return a world as a verifiers environment with one task per seed; see `WorldHarnessConfig`."""
    registry.spec(env_id, **options)
    if seeds.step != 1:
        raise ValueError(f"seeds must be a range without gaps, got {seeds!r}")
    config = {
        "taskset": {
            "id": PLUGIN,
            "world": env_id,
            "options": options,
            "start": seeds.start,
            "stop": seeds.stop,
        },
        "agent": {"harness": {"id": PLUGIN, "tools": tools}},
    }
    return vf.load_environment(vf.resolve_env_config(config))
