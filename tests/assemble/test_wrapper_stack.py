from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

import agentgym
from agentgym import Chat, make, register_oracle, register_strategy, spec, strategies
from agentgym.assemble import wrapper_stack as stacks
from agentgym.assemble.registry import is_team, resolve
from agentgym.assemble.wrapper_order import Stage
from agentgym.oracles import HintOracle, OraclePolicy
from agentgym.training.evaluation.scoring import ordered_contexts
from agentgym.training.rollout.rollouts import rollout
from agentgym.wrappers import ContextWrapper
from tests.assemble.test_registry import MODULE as WORLD
from tests.cli.test_main import command

MODULE = '''
import agentgym
from agentgym.assemble.wrapper_order import Stage
from agentgym.wrappers import ContextWrapper


class Shout(ContextWrapper):
    """Marks the newest message."""

    stage = Stage.CLEAR_TOOL_RESULTS

    def __init__(self, env, budget=None, mark="!"):
        super().__init__(env, budget, mark=mark)
        self.mark = mark

    def edit(self):
        self.view.annotate(self.view.newest().id, "shout", self.mark)


agentgym.register_strategy("shout", Shout)
'''
MODULE += WORLD


class Cheer(HintOracle):
    tag = "cheer"

    def text(self) -> str:
        return "Go on!"


class Shout(ContextWrapper):
    stage = Stage.CLEAR_TOOL_RESULTS

    def __init__(self, env: Any, budget: Any = None, mark: str = "!") -> None:
        super().__init__(env, budget, mark=mark)
        self.mark = mark

    def edit(self) -> None:
        self.view.annotate(self.view.newest().id, "shout", self.mark)


@pytest.fixture
def registered() -> Iterator[None]:
    register_strategy("shout", Shout)
    register_oracle("E", "cheer", Cheer, lambda arm, scope: {"hint_scope": scope})
    yield
    del stacks._strategies["shout"], stacks._oracles["E"]


@pytest.mark.parametrize("arm", ["E", "E_", "SE", "PE", "SPE", "SHE"])
def test_a_scripted_policy_reads_past_the_hints_of_another_oracle(
    arm: str, registered: None
) -> None:
    for env_id in ("ListWorld", "TreeWorld", "LongContextQA", "SearchWorld"):
        env = make(env_id, oracles=arm, labels=True)
        assert rollout(OraclePolicy(env_id), env, 0).reward == 1.0


def test_the_package_has_the_strategies_of_the_papers_and_the_arms_of_lumina() -> None:
    names = "clear_results clear_thinking compaction awareness memory programmatic retrieval"
    assert " ".join(agentgym.STRATEGIES) == names
    assert agentgym.ARMS == ("", "S", "P", "SP", "SH", "SPH")


@pytest.mark.usefixtures("registered")
def test_a_strategy_of_a_user_is_made_like_any_other() -> None:
    options = {"shout": {"mark": "?"}}
    context = "compaction+shout+memory"
    asked = spec("ListWorld", context=context, window=9_000, context_options=options)
    names = [wrapper.name for wrapper in asked.additional_wrappers]
    assert names == ["MemoryTool", "Shout", "Compaction", "Trim"], "in the order of the stages"
    assert asked.additional_wrappers[1].kwargs == {"mark": "?", "budget": {"window": 9_000}}
    chat, _ = gymnasium.make(EnvSpec.from_json(asked.to_json())).reset(seed=0)
    assert chat.messages[-1].text.endswith("?")
    assert strategies() == (*agentgym.STRATEGIES, "shout")
    assert rollout(OraclePolicy("ListWorld"), make("ListWorld", context="shout"), 0).reward == 1.0
    why = r"no context strategy 'whisper'; strategies: clear_results, .*, shout, joined by \+"
    with pytest.raises(ValueError, match=why):
        make("ListWorld", context="whisper")


@pytest.mark.usefixtures("registered")
def test_an_oracle_of_a_user_is_an_arm_like_any_other() -> None:
    chat, _ = make("ListWorld", oracles="ES", hint_scope="ephemeral").reset(seed=0)
    assert "<cheer>\nGo on!\n</cheer>" in chat.messages[-1].text
    assert "<state>" in chat.messages[-1].text
    why = r"each of P \(plan\), S \(state\), .* and E \(cheer\) at most once, got 'X'"
    with pytest.raises(ValueError, match=why):
        make("ListWorld", oracles="X")


def test_a_strategy_that_cannot_be_used_is_refused_at_once() -> None:
    class Placeless(gymnasium.ObservationWrapper[Chat, str, Chat]):
        """A context wrapper that belongs to no stage."""

    with pytest.raises(ValueError, match="Placeless has no stage; set its attribute `stage`"):
        register_strategy("placeless", Placeless)
    why = r"Placeless edits the context \(stage trim\), so it must take `budget`"
    with pytest.raises(ValueError, match=why):
        register_strategy("placeless", Placeless, Stage.TRIM)
    for name in ("trim", "budget", "none", "a+b", "a:b", ""):
        with pytest.raises(ValueError, match="cannot name a context strategy"):
            register_strategy(name, Shout)
    assert strategies() == agentgym.STRATEGIES


def test_a_module_may_stand_before_what_it_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shouting.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    registry = agentgym.assemble.registry
    tables: list[Any] = [stacks._strategies, registry._worlds, registry._teams, gymnasium.registry]
    known = [dict(table) for table in tables]
    try:
        env = make("shouting:GuessWorld", context="shouting:shout")
        assert env.reset(seed=0)[0].messages[-1].text.endswith("!")
        assert resolve("shouting:GuessWorld") == "agentgym/GuessWorld-v0"
        assert is_team("shouting:GuessWorld-team")
        again: Any = make("GuessWorld", context="shout")
        assert again.spec.additional_wrappers[0].entry_point == "shouting:Shout"
        contexts = ["none", "compaction", "shouting:shout", "shouting:shout+memory"]
        rows: Any = [type("Row", (), {"context": context}) for context in reversed(contexts)]
        assert ordered_contexts(rows) == contexts
    finally:
        for table, content in zip(tables, known, strict=True):
            table.clear()
            table.update(content)
        sys.modules.pop("shouting", None)
    with pytest.raises(ValueError, match="the module of 'nowhere:shout' cannot be imported"):
        make("ListWorld", context="nowhere:shout")


@pytest.mark.rotation
def test_ablate_compares_a_strategy_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "shouting.py").write_text(MODULE)
    line = "ablate --world ListWorld --oracles none --horizons 3 --episodes 2 --policy oracle"
    more = f"--context none,shouting:shout --workers 2 --out {tmp_path / 'runs'}"
    shown = command(*f"{line} {more}".split(), cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "shouting:shout" in shown.stdout
    rows = [
        json.loads(line) for line in (tmp_path / "runs" / "results.jsonl").read_text().splitlines()
    ]
    assert [row["context"] for row in rows].count("shouting:shout") == 2
    again = command("--import", "shouting", "score", str(tmp_path / "runs"), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    line = "ablate --world shouting:GuessWorld --oracles none --context shout --horizons 3"
    loaded = command(*line.split(), cwd=tmp_path)
    assert loaded.stderr.startswith("error: ControlPolicy needs GuessWorld.read_task(task) to ")


@pytest.mark.rotation
@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ("ablate --policy control", "ControlPolicy needs GuessWorld.read_task(task)"),
        ("ablate --policy random", "a horizon needs GuessWorld.config_for_horizon(steps)"),
        ("rollout --policy oracle", "OraclePolicy needs GuessWorld.read_task(task)"),
        (
            "rollout --policy random --oracles P",
            "oracles='P' needs GuessWorld.subtask(with_state)",
        ),
        (
            "play --oracles S",
            "oracles='S' (and the summary of a scripted policy) needs GuessWorld.state()",
        ),
        ("rollout --policy random", ""),
    ],
)
def test_the_command_line_says_what_a_world_of_the_user_lacks(
    tmp_path: Path, arguments: str, missing: str
) -> None:
    (tmp_path / "shouting.py").write_text(MODULE)
    name, *options = arguments.split()
    world = ["--world", "shouting:GuessWorld"] if name == "ablate" else ["shouting:GuessWorld"]
    shown = command(name, *world, *options, cwd=tmp_path)
    if not missing:
        assert shown.returncode == 0, shown.stderr
        assert "of 1" in shown.stdout
        return
    assert shown.returncode == 2
    assert shown.stderr.startswith(f"error: {missing}")
    assert shown.stderr.count("\n") == 1
