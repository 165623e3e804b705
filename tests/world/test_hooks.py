from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import agentgym
from agentgym import World, make, tool_env
from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.policies import Deficits, ThinkingPolicy
from agentgym.training.evaluation.ablation import Ablation
from agentgym.training.rollout.policies import PolicyConfig
from agentgym.training.rollout.rollouts import rollout
from agentgym.world.world import MissingHook
from agentgym.wrappers import DiscreteActions, FeatureObservations
from tests.world.guess_world import GuessWorld, WholeGuessWorld

BARE, WHOLE = "tests/GuessWorld-v0", "tests/WholeGuessWorld-v0"
EXAMPLE = "; an example is in agentgym/envs/lumina/list_world.py"
STRATEGIES = "+".join(
    name for name in agentgym.STRATEGIES if name != "programmatic"
)  # random programs would not test the hooks
SMALL: dict[str, Any] = {"context": "compaction", "window": 500}


def control(env_id: str) -> ControlPolicy:
    return ControlPolicy(env_id, Deficits())


def ablation(env_id: str) -> None:
    Ablation((env_id,), ("",), (3,), 1, PolicyConfig("random"))


def play(make_policy: Callable[[str], Any], **options: Any) -> Callable[[str], Any]:
    return lambda env_id: rollout(make_policy(env_id), make(env_id, **options), 0)


FEATURES: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "a random policy": (play(RandomPolicy), ()),
    "a random policy that is asked for summaries": (play(RandomPolicy, highest=200, **SMALL), ()),
    "labels": (play(RandomPolicy, labels=True), ()),
    "strategies": (play(RandomPolicy, context=STRATEGIES, window=9_000), ()),
    "the plan": (lambda env_id: make(env_id, oracles="P"), ("subtask",)),
    "the state": (lambda env_id: make(env_id, oracles="S"), ("state",)),
    "the state without history": (lambda env_id: make(env_id, oracles="SH"), ("state",)),
    "examples": (lambda env_id: make(env_id, shots=1), ("optimal_calls",)),
    "the oracle policy": (play(OraclePolicy), ("read_task", "read_result", "optimal_calls")),
    "the oracle policy with a state": (play(OraclePolicy, oracles="S"), ("state", "read_state")),
    "the noisy policy": (
        play(lambda env_id: NoisyPolicy(env_id, 0.5)),
        ("read_task", "read_result", "optimal_calls", "legal_calls"),
    ),
    "the control policy": (
        play(control),
        ("read_task", "read_result", "optimal_calls", "legal_calls"),
    ),
    "the control policy with a plan": (play(control, oracles="P"), ("subtask", "read_subtask")),
    "thinking": (play(lambda env_id: ThinkingPolicy(OraclePolicy(env_id))), ("state",)),
    "discrete actions": (lambda env_id: DiscreteActions(make(env_id)), ("action_catalog",)),
    "features": (lambda env_id: FeatureObservations(make(env_id)), ("features",)),
    "horizons": (ablation, ("config_for_horizon",)),
}
HOOKS = sorted({hook for _, hooks in FEATURES.values() for hook in hooks})
NEEDS = [(feature, hook) for feature, (_, hooks) in FEATURES.items() for hook in hooks]


def without(monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    monkeypatch.setattr(WholeGuessWorld, hook, vars(World)[hook])


@pytest.mark.parametrize("feature", FEATURES)
def test_a_world_with_all_hooks_has_every_feature(feature: str) -> None:
    FEATURES[feature][0](WHOLE)


@pytest.mark.parametrize(("feature", "hook"), NEEDS)
def test_a_feature_says_which_hook_it_needs(
    monkeypatch: pytest.MonkeyPatch, feature: str, hook: str
) -> None:
    without(monkeypatch, hook)
    with pytest.raises(
        MissingHook, match=rf"^\S.* needs WholeGuessWorld\.{hook}\(.*\) to [a-z].*{EXAMPLE}$"
    ):
        FEATURES[feature][0](WHOLE)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("feature", [name for name, (_, hooks) in FEATURES.items() if not hooks])
def test_some_features_need_no_hook(
    monkeypatch: pytest.MonkeyPatch, feature: str, hook: str
) -> None:
    without(monkeypatch, hook)
    FEATURES[feature][0](WHOLE)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_world_with_no_more_than_it_must_have_works_or_says_what_it_lacks(feature: str) -> None:
    run, hooks = FEATURES[feature]
    if not hooks:
        run(BARE)
        return
    with pytest.raises(NotImplementedError, match=rf" needs GuessWorld\..*{EXAMPLE}$"):
        run(BARE)


def test_every_open_hook_is_under_these_tests() -> None:
    world: Any = make(BARE).unwrapped.world_class(GuessWorld.Config(), 0)  # type: ignore[attr-defined]
    arguments: dict[str, Any] = {"subtask": (True,), "read_result": (None, ""), "legal_calls": ()}
    for hook in HOOKS:
        if hook == "optimal_calls":
            assert world.optimal_calls() is None
            continue
        taken = ("",) if hook.startswith("read_") else (3,) if hook == "config_for_horizon" else ()
        with pytest.raises(MissingHook, match=hook) as raised:
            getattr(world, hook)(*arguments.get(hook, taken))
        again = pickle.loads(pickle.dumps(raised.value))
        assert (str(again), again.world, again.hook) == (str(raised.value), GuessWorld, hook), (
            "workers hand errors on"
        )


@pytest.mark.parametrize(
    ("hook", "purpose"),
    [
        ("generate", "generate() to draw the instance from `self"),
        ("rules", "rules() to return the system message"),
        ("task", "task() to return the first user message"),
        ("score", "score() to return how well the task was done"),
    ],
)
def test_a_world_without_a_hook_that_it_must_have_cannot_be_registered_or_made(
    hook: str, purpose: str
) -> None:
    lacking: Any = type("Lacking", (GuessWorld,), {hook: vars(World)[hook]})
    before = agentgym.worlds()
    for use in (agentgym.register, agentgym.ToolEnv, lambda world: world(GuessWorld.Config(), 0)):
        with pytest.raises(MissingHook) as raised:
            use(lacking)
        assert str(raised.value).startswith(f"every world needs Lacking.{purpose}")
        assert str(raised.value).endswith(EXAMPLE)
    assert agentgym.worlds() == before


def test_a_world_needs_a_configuration() -> None:
    hooks = {hook: vars(GuessWorld)[hook] for hook in ("generate", "rules", "task", "score")}
    lacking: Any = type("Lacking", (World,), hooks)
    with pytest.raises(MissingHook, match=r"every world needs Lacking\.Config, a frozen dataclass"):
        agentgym.register(lacking)


def test_action_masks_need_the_legal_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    env = DiscreteActions(make(WHOLE))
    env.reset(seed=0)
    assert env.action_masks().all()
    without(monkeypatch, "legal_calls")
    with pytest.raises(MissingHook, match=r"action masks\) needs WholeGuessWorld\.legal_calls\(\)"):
        env.action_masks()


def test_a_random_policy_draws_from_the_schemas_where_it_must() -> None:
    trajectory = rollout(RandomPolicy(BARE), make(BARE, labels=True), 3)
    assert all(step.info["valid"] and step.info["optimal"] is None for step in trajectory.steps)
    again = rollout(RandomPolicy(BARE), make(BARE, labels=True), 3)
    other = rollout(RandomPolicy(BARE, seed=1), make(BARE, labels=True), 3)
    assert again == trajectory != other
    assert tool_env(make(WHOLE)).world_class is WholeGuessWorld
