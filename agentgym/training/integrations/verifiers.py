"""The worlds in verifiers, and so in prime-rl, which trains on verifiers' environments.

A task is an instance of a world, and a group is the episodes of one task. The harness plays the
whole stack in this process: what the model is asked is the chat of the env, edited contexts
included, and verifiers records each as a branch of the trace. The rules say how to call tools;
`tools="native"` sends their schemas as well. A call that comes back structured goes on standing so.

Verifiers finds plugins by the name of a top-level module, which is `agentgym_verifiers`:

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
from agentgym.play.env import tool_env
from agentgym.text.messages import Chat, Message
from agentgym.training.integrations.datasets import group_of
from agentgym.training.rollout import Episode
from agentgym.training.rollout.endpoints.chat_completions import to_reply
from agentgym.training.rollout.models.plain_chat import as_text, join_messages

PLUGIN = "agentgym_verifiers"
"""The name by which verifiers knows these classes."""
_KEPT = ("role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls")


class WorldData(vf.TaskData):  # type: ignore[misc]
    """An instance of a world.

    `id` is the `group_id` of its episodes, `prompt` what is shown first.
    """

    world: str
    options: dict[str, Any]
    seed: int


class WorldTask(vf.Task[WorldData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """Scores the episode that the harness has played; what happened is in
    `trace.info["agentgym"]`.
    """

    @property
    def key(self) -> str:
        """The same for all episodes of a group, in every process."""
        return str(self.data.id)

    @vf.reward  # type: ignore[untyped-decorator]
    async def world_score(self, trace: vf.Trace) -> float:
        """The reward of the episode."""
        return float(_played(trace)["reward"])

    @vf.metric  # type: ignore[untyped-decorator]
    async def outcome(self, trace: vf.Trace) -> dict[str, float]:
        """Return whether the task was solved and how the episode ended, as 0 or 1, and the replies
        it took.
        """
        return {
            name: float(_played(trace)[name])
            for name in ("success", "terminated", "truncated", "turns")
        }


class WorldTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which instances are played.

    Attributes:
        world: The id of a world.
        options: Keyword arguments of `agentgym.make`, as JSON-able data.
        start: The first seed.
        stop: The seed after the last one.
    """

    world: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    start: int = 0
    stop: int = 1_000


class WorldTaskset(vf.Taskset[WorldTask, WorldTasksetConfig]):  # type: ignore[misc]
    """One task for each seed."""

    def load(self) -> Iterator[WorldTask]:
        """Make the tasks as they are asked for.

        Raises:
            ValueError: The id or an option is not right.
        """
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


class WorldHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]
    """Options of `WorldHarness`.

    Attributes:
        tools: `text` sends messages alone; `native` sends the schemas of the tools too, for servers
            that read calls only then.
    """

    id: str = PLUGIN
    tools: Literal["text", "native"] = "text"


class WorldHarness(vf.Harness[WorldHarnessConfig]):  # type: ignore[misc]
    """Plays an episode in this process, every model call through verifiers' endpoint.

    A limit of verifiers truncates the episode, with the score as it is, as the turn budget of the
    world does. What fails without being the policy's doing is an error of the trace, which has no
    reward then.
    """

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def setup(self, runtime: vf.Runtime) -> None:
        """Check that no box is asked for, since nothing would run in it.

        Raises:
            ValueError: One is.
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
            ValueError: The task is not of a world, or brings rules of its own.
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
                # A step that has begun is finished, though the rollout be cancelled: nothing else
                # may touch the env meanwhile.
                await run_shielded(asyncio.to_thread(episode.play, reply))
                history.remember(episode.chat, reply.text, completion["choices"][0]["message"])
        except openai.APIStatusError:
            if (
                trace.stop_condition is None
            ):  # it was not verifiers that refused the call, for one of its limits
                raise
        except asyncio.CancelledError:
            trace.info["agentgym"] = _outcome(
                episode, "timeout"
            )  # verifiers scores what was played before it
            raise
        outcome = trace.info["agentgym"] = _outcome(episode, trace.stop_condition or "")
        if cause := episode.trajectory().failure:  # verifiers leaves out a trace with an error
            raise RuntimeError(f"the episode says nothing about the policy: {cause}")
        if outcome["truncated"]:
            trace.stop(outcome["ended"])


class _History:
    """The chat as chat-completions messages, in which each reply stands as the server gave it.

    So verifiers finds the reply that it has recorded, and a trainer its tokens; written anew, each
    would begin another branch.
    """

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, dict[str, Any]]] = {}

    def remember(self, chat: Chat, text: str, completion: dict[str, Any]) -> None:
        """Keep what the server said for the newest reply of the chat, which has this text."""
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
        """The request for a chat.

        Structured calls are answered by tool messages; all other results are the user's.
        """
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
            elif waiting:  # the env could not read the calls and says so
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


def _played(trace: vf.Trace) -> dict[str, Any]:
    if "agentgym" not in trace.info:
        raise ValueError(
            f"a world is played by the harness {PLUGIN!r}; leave harness.id out, or set it to that"
        )
    return dict(trace.info["agentgym"])


def _outcome(episode: Episode, reason: str) -> dict[str, Any]:
    """Return how an episode has ended; one that goes on ends now, with the score as it is."""
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
    """The env's options; its one agent is played in this process."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class WorldEnv(vf.Env[WorldEnvConfig]):  # type: ignore[misc]
    """One agent, which plays one episode of a task."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play the task."""
        await agents.agent.run(task)


def load_environment(
    env_id: str, seeds: range, *, tools: Literal["text", "native"] = "text", **options: Any
) -> vf.Env:
    """A world as a verifiers environment.

    Args:
        env_id: The id of a world.
        seeds: The seeds of its tasks.
        tools: The way tools are shown; see `WorldHarnessConfig`.
        **options: Keyword arguments of `agentgym.make`, as JSON-able data.

    Raises:
        ValueError: The id or an option is not right, or the seeds have gaps.
    """
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
