from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import WrapperSpec

import agentgym
import tests.training.rl.echo_world  # noqa: F401 - known to Gymnasium from then on
from agentgym import Chat, ToolCall, render, tool_env

pytest.importorskip(
    "skyrl_gym", reason="SkyRL-Gym is not installed: pip install 'agentgym-suite[skyrl]'"
)

import skyrl_gym
from skyrl_gym.error import RegistrationError

from agentgym.training.integrations.skyrl import prompts, register

SMALL: dict[str, Any] = {"items": 5, "removals": 2}
STACKS: list[tuple[str, dict[str, Any]]] = [
    ("ListWorld", {}),
    ("GridWorld", {"oracles": "SP", "dialect": "python"}),
    ("TreeWorld", {"shots": 2}),
    ("ListWorld", {"context": "memory+awareness", "oracles": "SP"}),
    ("TreeWorld", {"context": "programmatic+memory"}),
    ("CodeWorld", {"oracles": "SP"}),
    ("DocumentWorld", {"parallel_calls": False}),
    ("MultimodalWorld", {"render": "scene"}),
]


@pytest.fixture(autouse=True)
def names_are_given_back() -> Iterator[None]:
    before = set(skyrl_gym.registry)
    yield
    for name in set(skyrl_gym.registry) - before:
        del skyrl_gym.registry[name]


def started(env_id: str, seed: int = 3, **options: Any) -> tuple[Any, list[dict[str, str]]]:
    register("world", env_id, **options)
    row = prompts("world", [seed])[0]
    prompt, name = row.pop("prompt"), row.pop("env_class")
    env = skyrl_gym.make(name, env_config={}, extras={**row, "max_turns": 1_000})
    history, _ = env.init(prompt)
    assert history == prompt
    return env, history


def as_shown(chat: Chat) -> list[tuple[str, str]]:
    """Return a chat as roles and text; results become user messages, and adjacent messages of one
    role are joined."""
    said = [
        (
            "user" if m.role == "tool" else m.role,
            m.raw or "\n".join(filter(None, [m.text, *map(render, m.calls)])),
        )
        for m in chat.messages
    ]
    return [
        (role, "\n\n".join(text for _, text in group))
        for role, group in groupby(said, key=itemgetter(0))
    ]


def check_end(env: Any, step: Any, turns: int, ended: str, *, success: bool) -> None:
    ends = {"terminated": success, "truncated": not success, "success": success}
    assert step["metadata"] == {**ends, "ended": ended, "invalid": ""}
    assert env.get_metrics() == {"turns": turns, **ends}


@pytest.mark.parametrize(("env_id", "options"), STACKS)
def test_the_optimal_calls_earn_the_reward_and_see_the_chat_of_the_env(
    env_id: str, options: dict[str, Any]
) -> None:
    env, history = started(env_id, **options)
    twin = agentgym.make(env_id, **options)
    chat, _ = twin.reset(seed=3)
    rewards, done = [], False
    while not done:
        assert [(message["role"], message["content"]) for message in history] == as_shown(chat)
        reply = f"Next.\n{render(tool_env(twin).world.optimal_calls()[0], options.get('dialect', 'auto'))}"
        chat, reward, terminated, truncated, info = twin.step(reply)
        step = env.step(reply)
        history += [{"role": "assistant", "content": reply}, *step["observations"]]
        assert (step["reward"], step["done"]) == (reward, terminated or truncated)
        rewards.append(step["reward"])
        done = step["done"]
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    check_end(env, step, info["turn"], "world", success=True)
    env.close()


def test_several_calls_of_one_reply_are_answered_in_one_message() -> None:
    env, _ = started("tests/EchoWorld-v0", turns=2)
    word = tool_env(env._env).world.word
    step = env.step("".join(render(ToolCall("say", {"word": each})) for each in (word, "?")))
    assert step["observations"] == [{"role": "user", "content": "again\n\nagain"}]
    assert not step["done"]
    step = env.step(word)
    assert (step["reward"], step["done"]) == (1.0, True), "two right words in two turns"


def test_the_turns_of_the_generator_truncate_with_the_score_so_far() -> None:
    register("world", "TreeWorld", nodes=20)
    env = skyrl_gym.make("world", env_config={}, extras={"seed": 1, "max_turns": 2})
    env.init([])
    assert not env.step("One.")["done"]
    step = env.step("Two.")
    assert step["done"]
    assert step["reward"] == tool_env(env._env).world.score()
    check_end(env, step, 2, "max_turns", success=False)


def test_the_last_turn_of_the_generator_may_succeed() -> None:
    register("world", "ListWorld", **SMALL)
    env = skyrl_gym.make("world", extras={"seed": 1, "max_turns": 3})
    env.init([])
    steps = [env.step(render(tool_env(env._env).world.optimal_calls()[0])) for _ in range(3)]
    assert [step["reward"] for step in steps] == [0.0, 0.0, 1.0]
    assert steps[-1]["metadata"]["terminated"]


def test_an_env_is_played_by_whichever_thread_is_free() -> None:
    """SkyRL plays its envs in a thread pool."""
    env, _ = started("TreeWorld", context="programmatic", nodes=20)
    code = render(ToolCall("run_python", {"code": "print(1 + 1)"}))
    seen = []
    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(lambda: (threading.get_ident(), env.step(code))).result())
    assert all("2" in step["observations"][0]["content"] for _, step in seen)


def rewrite(chat: Chat) -> Chat:
    first, *others = chat.messages
    system = agentgym.Message("system", f"{len(others)}", id=first.id)
    return Chat((system, *others), chat.tools)


class Rewriter(gymnasium.wrappers.TransformObservation):  # type: ignore[type-arg]
    def __init__(self, env: Any) -> None:
        super().__init__(env, rewrite, env.observation_space)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"context": "memory+compaction"}, "compaction"),
        ({"context": "clear_results"}, "clear_results"),
        ({"context": "clear_thinking"}, "clear_thinking"),
        ({"oracles": "SPH"}, "oracle H"),
        ({"window": 1_000}, "window"),
        ({"oracles": "S", "hint_scope": "ephemeral"}, "hint_scope=ephemeral"),
    ],
)
def test_edits_are_refused(options: dict[str, Any], what: str) -> None:
    message = f"SkyRL keeps the history, so {what} cannot be used; .* training.export"
    with pytest.raises(ValueError, match=message):
        register("world", "ListWorld", **options)


def test_what_cannot_work_is_refused() -> None:
    register("world", "ListWorld", **SMALL)
    with pytest.raises(RegistrationError):
        register("world", "ListWorld")
    with pytest.raises(ValueError, match="needs an integer 'seed', got None; make the dataset wit"):
        skyrl_gym.make("world", extras={"max_turns": 3})
    with pytest.raises(ValueError, match="max_turns must be"):
        skyrl_gym.make("world", extras={"seed": 3, "max_turns": 0})
    rewriter = WrapperSpec("Rewriter", f"{__name__}:Rewriter", {})
    register("rewritten", "ListWorld", wrappers=[rewriter])
    env = skyrl_gym.make("rewritten", extras={"seed": 3})
    env.init([])
    with pytest.raises(ValueError, match="a wrapper of this env edits earlier messages, but"):
        env.step("x")
