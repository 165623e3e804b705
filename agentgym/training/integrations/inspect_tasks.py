"""Inspect adapter: worlds as `inspect_ai` tasks, and trajectories as Inspect logs.

The solver plays the env with all wrappers in this process. Each sample's metadata contains the
trajectory.

    inspect eval agentgym/world -T world=ListWorld -T oracles=SP --model openai/gpt-5
"""

# mypy runs without this package.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from anyio.to_thread import run_sync
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    read_eval_log,
    write_eval_log,
)
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentImage,
    ContentReasoning,
    ContentText,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolInfo, ToolParams

import agentgym
import agentgym.assemble.registry as registry
from agentgym.play.env import tool_env
from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import Dialect
from agentgym.training.evaluation.study_folder import log_of
from agentgym.training.rollout import Episode, Trajectory
from agentgym.training.rollout.endpoints.answers import call_text
from agentgym.training.rollout.models.plain_chat import as_text
from agentgym.world.world import load_world

# The metadata key of a sample's trajectory.
KEY = "agentgym"
# Inspect adds the package's name to task names, except in an editable install.
_INSTALLED = {"site-packages", "dist-packages"} & set(Path(__file__).parts)


@task(name="world" if _INSTALLED else "agentgym/world")
def world(
    world: str = "ListWorld",
    seeds: int = 100,
    start: int = 0,
    horizon: int = 0,
    tools: Literal["text", "native"] = "text",
    **options: Any,
) -> Task:
    """Return an Inspect task that plays instances of a world.

    Args:
        world: The id of a world.
        seeds: The number of instances.
        start: The first seed.
        horizon: The task size in turns of optimal play, as in `agentgym ablate`; 0 leaves the size
            to the options.
        tools: `text` explains calls in the prompt; `native` also sends the tool schemas.
        **options: Keyword arguments of `agentgym.make`, such as `oracles` and `context`.

    Raises:
        ValueError: The id or an option is invalid, or no seat of a team is selected.
    """
    name = registry.resolve(world)
    options.setdefault("labels", True)
    if horizon:
        kind = load_world(registry.spec(world).kwargs["world"])
        options = {**kind.config_for_horizon(horizon), **options}
    registry.one_agent_spec(world, **options)
    samples = []
    for seed in range(start, start + seeds):
        samples.append(Sample(input=f"{name}, seed {seed}", id=seed))
    return Task(
        dataset=MemoryDataset(samples, name=name),
        solver=play(name, horizon, tools, options),
        scorer=world_score(),
        version=0,
        metadata={"world": name, "options": options, "version": agentgym.__version__},
    )


@solver
def play(world: str, horizon: int, tools: str, options: dict[str, Any]) -> Solver:
    """Return the solver that plays a sample's instance."""
    labels = {
        "world": world.rpartition("/")[2].partition("-v")[0],
        "arm": options.get("oracles") or "",
        "context": options.get("context") or "none",
        "horizon": horizon,
        "axis": "horizon",
    }

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        # A limit of Inspect waits for these threads, so that nothing else uses the env meanwhile.
        env = await run_sync(partial(registry.make, world, **options))
        played_by = {"policy": str(get_model()), "sample": state.epoch - 1}
        own = {**labels, **played_by}
        episode = await run_sync(Episode, env, int(state.sample_id), own)
        native = tools == "native"
        try:
            while not episode.over:
                state.messages = _messages(episode.chat, native)
                schemas: list[ToolInfo] = []
                if native:
                    schemas = list(map(_tool_info, episode.chat.tools))
                state.output = await get_model().generate(state.messages, schemas)
                reply = Reply(_reply_text(state.output, tool_env(env).dialect))
                await run_sync(episode.play, reply)
            state.messages = _messages(episode.chat, native)
        finally:  # also runs if an Inspect limit cancels the sample
            if not episode.over:
                episode.leave()
            state.metadata[KEY] = json.loads(episode.trajectory().to_json())
            env.close()
        state.completed = True
        return state

    return solve


@scorer(metrics=[mean(), stderr()])
def world_score() -> Scorer:
    """Return the scorer that reads the episode's reward."""

    async def score(state: TaskState, target: Target) -> Score:
        return _score(_trajectory(state.metadata[KEY]))

    return score


def _score(trajectory: Trajectory) -> Score:
    last = trajectory.steps[-1].info["detail"] if trajectory.steps else {}
    explanation = trajectory.failure or f"ended by {last.get('ended') or 'its player'}"
    if trajectory.failure:  # not the policy's fault
        return Score.unscored(explanation=explanation)
    return Score(value=trajectory.reward, explanation=explanation)


def _reply_text(output: ModelOutput, dialect: Dialect) -> str:
    message = output.message
    parts: list[str] = []
    content = message.content
    if isinstance(content, str):
        content = [ContentText(text=content)]
    for part in content:
        if isinstance(part, ContentReasoning):
            parts.append(f"<think>\n{part.reasoning}\n</think>")
        elif isinstance(part, ContentText):
            parts.append(part.text)
    for call in message.tool_calls or ():
        # Arguments that Inspect cannot parse stay unreadable, instead of becoming a call without any.
        parts.append(call_text(call.function, call.parse_error or call.arguments, dialect))
    return "\n".join(filter(None, parts))


def _messages(chat: Chat, native: bool) -> list[ChatMessage]:
    shown = chat if native else as_text(chat.messages)
    return list(map(_message, shown.messages))


def _message(message: Message) -> ChatMessage:
    images: list[Content] = [ContentImage(image=image.to_data_url()) for image in message.images]
    content: str | list[Content] = message.text
    if images:
        content = [ContentText(text=message.text), *images]
    if message.role == "system":
        return ChatMessageSystem(content=content)
    if message.role == "user":
        return ChatMessageUser(content=content)
    if message.role == "tool":
        return ChatMessageTool(content=content, tool_call_id=message.call_id)
    if message.thinking:
        content = [ContentReasoning(reasoning=message.thinking), ContentText(text=message.text)]
    calls = [
        InspectCall(id=call.id, function=call.name, arguments=dict(call.arguments))
        for call in message.calls
    ]
    return ChatMessageAssistant(content=content, tool_calls=calls or None)


def _tool_info(tool: Any) -> ToolInfo:
    parameters = {"properties": {}, "required": [], **tool.parameters}
    schema = {name: parameters[name] for name in ("properties", "required")}
    return ToolInfo(
        name=tool.name,
        description=tool.description,
        parameters=ToolParams.model_validate(schema),
    )


def write_log(trajectories: Iterable[Trajectory], path: Path, model: str) -> int:
    """Write trajectories as an `.eval` or `.json` log, and return their number."""
    played = list(trajectories)
    if not played:
        raise ValueError(f"there are no episodes to write to {str(path)!r}")
    samples = [_sample(number, each) for number, each in enumerate(played, 1)]
    values = [each.reward for each in played if not each.failure]
    metrics = {"mean": EvalMetric(name="mean", value=sum(values) / max(1, len(values)))}
    results = EvalScore(name="world_score", scorer="world_score", metrics=metrics)
    log = EvalLog(
        status="success",
        eval=EvalSpec(
            created=datetime.now(UTC).isoformat(),
            task="agentgym/world",
            dataset=EvalDataset(name="agentgym", samples=len(samples)),
            model=model,
            config=EvalConfig(),
        ),
        results=EvalResults(
            total_samples=len(samples), completed_samples=len(values), scores=[results]
        ),
        samples=samples,
    )
    write_eval_log(log, str(path))
    return len(samples)


def _sample(number: int, trajectory: Trajectory) -> EvalSample:
    labels = ", ".join(f"{key}={value}" for key, value in trajectory.labels.items())
    world = json.loads(trajectory.spec)["id"]
    reply = trajectory.steps[-1].reply.text if trajectory.steps else ""
    return EvalSample(
        id=number,
        epoch=1,
        input=f"{world}, seed {trajectory.seed}, {labels}",
        target="",
        messages=_messages(trajectory.last, native=True),
        output=ModelOutput.from_content("agentgym", reply),
        scores={"world_score": _score(trajectory)},
        metadata={KEY: json.loads(trajectory.to_json())},
    )


def read_log(path: Path) -> Iterator[Trajectory]:
    """Yield an Inspect log's trajectories; `ValueError` if another task wrote the log."""
    samples: Sequence[EvalSample] = read_eval_log(str(path)).samples or []
    for sample in samples:
        if KEY not in sample.metadata:
            raise ValueError(
                f"{str(path)!r} contains sample {sample.id} without an agentgym trajectory; use a "
                "log of the task agentgym/world"
            )
        yield _trajectory(sample.metadata[KEY])


def to_run_folder(log: Path, folder: Path) -> None:
    """Write an Inspect log's trajectories into a folder that `load_results` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    trajectories = log_of(folder)
    with trajectories.writing():
        trajectories.append(*(each.to_json() for each in read_log(log)))


def _trajectory(data: dict[str, Any]) -> Trajectory:
    return Trajectory.from_json(json.dumps(data))
