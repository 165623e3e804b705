from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym.assemble.registry import worlds
from agentgym.cli import app
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import Reply
from agentgym.text.messages import SYSTEM_ID, TASK_ID, Chat, Message, ToolCall
from agentgym.text.parsing import parse
from agentgym.training.rollout import Episode

pytest.importorskip("inspect_ai", reason="inspect-ai has an environment of its own: make adapters")

from inspect_ai import eval as inspect_eval
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from agentgym.training.integrations import inspect_tasks
from agentgym.training.integrations.inspect_tasks import KEY, read_log, world, write_log

# Inspect leaves streams and event loops to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
IDS = [entry.id for entry in worlds()]
# A scripted policy cannot see pixels.
OPTIONS = {"agentgym/MultimodalWorld-v0": {"render": "scene"}}
ONE = ModelUsage(
    input_tokens=1, output_tokens=1, total_tokens=2
)  # otherwise Inspect downloads a tokenizer
Answer = Callable[[list[Any]], ModelOutput]


def run(task: Any, answer: Answer, folder: Path, **options: Any) -> Any:
    def outputs(messages: list[Any], tools: Any, choice: Any, config: Any) -> ModelOutput:
        output = answer(messages)
        output.usage = ONE
        return output

    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = inspect_eval(task, model=model, log_dir=str(folder), display="none", **options)
    assert log.status == "success", log.error
    return log


def to_chat(messages: list[Any]) -> Chat:
    read = []
    for number, message in enumerate(messages):
        calls = getattr(message, "tool_calls", None) or ()
        read.append(
            Message(
                message.role,
                message.text,
                calls=tuple(ToolCall(call.function, call.arguments, call.id) for call in calls),
                call_id=getattr(message, "tool_call_id", None) or "",
                id={0: SYSTEM_ID, 1: TASK_ID}.get(number, f"m{number}"),
            )
        )
    return Chat(tuple(read))


def oracle(world_id: str) -> Answer:
    policy = OraclePolicy(world_id)

    def answer(messages: list[Any]) -> ModelOutput:
        (call, *_) = parse(policy([to_chat(messages)])[0].text, "auto").calls
        return ModelOutput.for_tool_call("mockllm", call.name, dict(call.arguments))

    return answer


@pytest.mark.family(world_id=IDS)
def test_native_calls_solve_every_world(world_id: str, tmp_path: Path) -> None:
    task = world(world_id, seeds=2, tools="native", **OPTIONS.get(world_id, {}))
    log = run(task, oracle(world_id), tmp_path)
    assert log.results.scores[0].metrics["mean"].value == 1.0


def test_doing_nothing_scores_zero_and_the_trajectory_is_kept(tmp_path: Path) -> None:
    task = world("ListWorld", seeds=3, oracles="SP", start=5)
    log = run(task, lambda messages: ModelOutput.from_content("mockllm", "Let me think."), tmp_path)
    assert log.results.scores[0].metrics["mean"].value == 0.0
    played = list(read_log(Path(log.location)))
    assert [each.seed for each in played] == [5, 6, 7]
    assert {each.labels["arm"] for each in played} == {"SP"}
    assert {each.labels["policy"] for each in played} == {"mockllm/model"}
    assert all(step.reply.text == "Let me think." for each in played for step in each.steps)


def test_a_limit_of_inspect_truncates_the_episode(tmp_path: Path) -> None:
    task = world("ListWorld", seeds=1)
    answer: Answer = lambda messages: ModelOutput.from_content("mockllm", "Hm.")  # noqa: E731
    (played,) = read_log(Path(run(task, answer, tmp_path, message_limit=6).location))
    assert (played.truncated, played.reward) == (True, 0.0)
    assert len(played.steps) < 5


def test_a_limit_waits_for_the_step_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def slow(episode: Episode, reply: Reply, play: Any = Episode.play) -> None:
        events.append("begin")
        time.sleep(0 if reply.ended else 2)  # longer than the limit
        play(episode, reply)
        events.append("end")

    monkeypatch.setattr(Episode, "play", slow)
    answer: Answer = lambda messages: ModelOutput.from_content("mockllm", "Hm.")  # noqa: E731
    log = run(world("ListWorld", seeds=1), answer, tmp_path, time_limit=1)
    (played,) = read_log(Path(log.location))
    assert events == ["begin", "end"] * 2
    assert [step.reply.text for step in played.steps] == ["Hm.", ""]


def test_arguments_that_cannot_be_read_are_no_call_without_arguments(tmp_path: Path) -> None:
    def answer(messages: list[Any]) -> ModelOutput:
        output = ModelOutput.for_tool_call("mockllm", "done", {})
        output.message.tool_calls[0].parse_error = "Error parsing the arguments: {"
        return output

    log = run(world("ListWorld", seeds=1, tools="native"), answer, tmp_path)
    (played,) = read_log(Path(log.location))
    assert [step.info["detail"].calls for step in played.steps] == [0] * len(played.steps)
    assert "not valid JSON" in played.last.messages[-1].text


def test_trajectories_survive_a_log(tmp_path: Path) -> None:
    log = run(world("TreeWorld", seeds=2, tools="native"), oracle("TreeWorld"), tmp_path)
    played = list(read_log(Path(log.location)))
    path = tmp_path / "copy.eval"
    assert write_log(played, path, "oracle") == 2
    copied = read_eval_log(str(path))
    assert copied.results is not None
    assert copied.results.scores[0].metrics["mean"].value == 1.0
    assert list(read_log(path)) == played
    write_log([replace(played[0], failure="the scorer failed"), played[1]], path, "oracle")
    results = read_eval_log(str(path)).results
    assert results is not None
    assert (results.total_samples, results.completed_samples) == (2, 1)
    assert copied.samples is not None
    del copied.samples[0].metadata[KEY]
    inspect_tasks.write_eval_log(copied, str(path))
    with pytest.raises(ValueError, match="without an agentgym trajectory; use a log of the task"):
        list(read_log(path))
    with pytest.raises(ValueError, match="there are no episodes to write"):
        write_log([], path, "none")


def test_wrong_arguments_are_refused_before_anything_is_played() -> None:
    with pytest.raises(ValueError, match="has no option 'itmes'"):
        world("ListWorld", itmes=3)
    with pytest.raises(
        ValueError, match="is a team, and this bridge plays one agent; name its seat"
    ):
        world("ListWorld-team")


def test_logs_are_compared_with_runs(tmp_path: Path) -> None:
    for arm in ("none", "P"):
        task = world(
            "ListWorld", seeds=3, horizon=4, tools="native", oracles=arm.replace("none", "")
        )
        run(task, oracle("ListWorld"), tmp_path / arm)
    logs = [str(path) for arm in ("none", "P") for path in (tmp_path / arm).glob("*.eval")]
    study = tmp_path / "run"
    words = ["--world", "ListWorld", "--horizons", "4", "--oracles", "none", "--episodes", "3"]
    made = CliRunner().invoke(
        app, ["ablate", "--policy", "noisy:p=0.9", *words, "--out", str(study)]
    )
    assert made.exit_code == 0, made.output
    out = tmp_path / "compared"
    result = CliRunner().invoke(app, ["compare", *logs, str(study), "--out", str(out)])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert len(rows) == 9
    assert {(row["policy"], row["arm"], row["horizon"]) for row in rows} == {
        ("mockllm/model", "", 4),
        ("mockllm/model", "P", 4),
        ("noisy:p=0.9", "", 4),
    }
    assert len({row["instance"] for row in rows}) == 3
    log = tmp_path / "exported.eval"
    exported = CliRunner().invoke(app, ["export", str(study), str(log), "--to", "inspect"])
    assert exported.exit_code == 0, exported.output
    assert len(list(read_log(log))) == 3
    (study / "trajectories.jsonl.zst").write_bytes(b"null")
    exported = CliRunner().invoke(app, ["export", str(study), f"{log}.json", "--to", "inspect"])
    assert exported.exit_code == 2
    assert "trajectories.jsonl.zst contains no complete episode" in exported.output
