"""A small model trained on reward alone, without tool results, finds what a world's prompts leak."""

from __future__ import annotations

import numpy as np
import pytest

from agentgym import make, tool_env
from agentgym.testing import AuditConfig, run_audit
from agentgym.testing.battery import Ceiling, score_interval
from agentgym.testing.optimiser import TURNS, MaskedPolicy, OptimisedShortcut, optimise
from agentgym.testing.playing import Transcript, play, start
from agentgym.text.messages import ToolCall
from tests.testing import leaky_worlds

# Toy worlds whose prompts or answers leak; leaks through results are invisible to the model.
TOLD = ["BudgetTells", "LengthTells", "ConstantAnswer", "FirstOption", "SecondLastOption", "AnyEnd"]
INSTANCES, SEEDS = 40, 50


def trained_score(name: str, instances: int = INSTANCES) -> list[float]:
    """Return a trained policy's scores on held-out instances."""
    env = tool_env(make(name))
    shortcut = OptimisedShortcut(optimise(env, range(10**6, 10**6 + instances)))
    return [play(start(env, seed), shortcut.act)[0] for seed in range(SEEDS)]


@pytest.mark.rotation(name=TOLD)
def test_rewards_alone_lead_to_what_is_given_away(name: str) -> None:
    ceiling = Ceiling(1 / leaky_worlds.SIZE, "enumerated")
    assert ceiling.verdict(score_interval(trained_score(name))) == "leak"


@pytest.mark.rotation
def test_an_id_that_tells_the_answer_is_found() -> None:
    """The last letter of the id in the prompt reveals whether the answer is yes."""
    assert score_interval(trained_score("IdTells")).low > 0.5


@pytest.mark.rotation(name=["CleanNotes", "YesOrNo"])
def test_a_clean_world_leaves_nothing_to_find(name: str) -> None:
    chance = 0.5 if name == "YesOrNo" else 1 / leaky_worlds.SIZE
    scores = trained_score(name)
    assert Ceiling(chance, "enumerated").verdict(score_interval(scores)) != "leak"


def test_results_are_not_seen() -> None:
    """Results do not influence the choices."""
    env = tool_env(make("BudgetTells"))
    env.reset(seed=0)
    policy, calls = (
        MaskedPolicy(),
        [ToolCall("list_notes", {"page": 1}), ToolCall("read", {"id": "a"})],
    )
    policy.weights[:] = np.random.default_rng(0).normal(size=policy.weights.size)
    task, tools = env.chat.messages[1].text, env.chat.tools
    made = [
        policy.choose(
            Transcript(task, tools, [[(call, text)] for call in calls]), np.random.default_rng(1)
        )
        for text in ("starred amber", "error: there is no such note")
    ]
    assert made[0][0] == made[1][0]
    for one, other in zip(made[0][1], made[1][1], strict=True):
        assert (one.features == other.features).all()
        assert one.chosen == other.chosen


def test_the_same_seeds_give_the_same_weights_and_others_do_not() -> None:
    env = tool_env(make("FirstOption"))
    weights = [optimise(env, range(first, first + 6)).weights for first in (0, 0, 6)]
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()


def test_an_episode_ends_after_so_many_calls() -> None:
    env = tool_env(make("CleanNotes"))
    shortcut = OptimisedShortcut(MaskedPolicy())
    begun = start(env, 0)
    seen = Transcript(begun.chat.messages[1].text, begun.chat.tools, [[]] * TURNS)
    assert shortcut.act(seen) == ()
    assert len(shortcut.act(seen.before(1))) == 1


def test_every_schema_of_a_registered_world_can_be_called() -> None:
    """Arguments follow the schema, whatever their type."""
    for env_id in ("PuzzleWorld", "LongContextQA", "GridWorld"):
        env = tool_env(make(env_id))
        env.reset(seed=0)
        seen = Transcript(env.chat.messages[1].text, env.chat.tools, ())
        for k in range(60):
            call, _ = MaskedPolicy().choose(seen, np.random.default_rng(k))
            (schema,) = [tool.parameters for tool in env.tools if tool.name == call.name]
            assert set(call.arguments) == set(schema.get("required", ()))


@pytest.mark.rotation
def test_the_audit_plays_it_as_one_more_shortcut() -> None:
    audit = run_audit(AuditConfig("AnyEnd", seeds=20, demonstrations=4, optimise=8))
    (row,) = [row for row in audit.rows if row.name == OptimisedShortcut.name]
    assert (row.kind, row.seeds) == ("shortcut", 20)
    assert row.name not in {
        row.name for row in run_audit(AuditConfig("AnyEnd", seeds=4, demonstrations=4)).rows
    }
