"""Groups that start from branch points: shared prefixes, trained parts, uniform choice of steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rl import GRPO, GRPOConfig, HorizonCurriculum
from agentgym.training.rl.batches import Experience
from agentgym.training.rl.episodes import Branches
from agentgym.training.rollout import Collector, make_model
from tests.training.rl.echo_trainers import small_model
from tests.training.rl.echo_world import make_env


def five_turns() -> Any:
    return make_env(5)


class Spy:
    def __init__(self, tokenizer: Any, env: Any, **options: Any) -> None:
        model = make_model(tokenizer, width=32, layers=1, heads=2, context=8_192)
        config = GRPOConfig(branch=True, max_new_tokens=3, **options)
        self.trainer = GRPO(model, tokenizer, env, config)
        self.data: list[Experience] = []
        self.trainer.optimise = self._keep  # type: ignore[method-assign]

    def _keep(self, data: Experience) -> Any:
        self.data.append(data)
        return iter(())


STACKS: dict[str, Any] = {
    "plain": five_turns,
    "edited": agentgym.spec(
        "ListWorld",
        items=4,
        removals=3,
        max_failed_rounds=None,
        context="clear_results",
        window=700,
    ),
    "hinted": agentgym.spec("ListWorld", items=4, removals=3, max_failed_rounds=None, oracles="SP"),
}


@pytest.mark.parametrize("stack", STACKS)
def test_a_group_shares_all_until_its_branch_and_trains_each_token_after_it_once(
    tokenizer: Any, stack: str
) -> None:
    spy = Spy(tokenizer, STACKS[stack], groups=3, group_size=3, entropy=0.1)
    played = spy.trainer.play_groups(0)
    groups: dict[int, list[Any]] = {}
    for trajectory in played.episodes:
        groups.setdefault(trajectory.seed, []).append(trajectory)
    assert [len(group) for group in groups.values()] == [3] * 3
    begun_late = 0
    for group in groups.values():
        first = [t.steps[0] for t in group]
        assert len({tuple(step.reply.prompt_ids) for step in first}) == 1, "the same ids before"
        assert all(step.chat == first[0].chat for step in first)
        assert len({step.info["turn"] for step in first}) == 1
        begun_late += first[0].info["turn"] > 1
    assert begun_late, "some begin after the first turn"
    list(spy.trainer.learn(played.episodes))
    (data,) = spy.data
    sampled = [i for t in played.episodes for step in t.steps for i in step.reply.ids]
    assert data.ids[data.sampled].tolist() == sampled
    assert (data.shares > 0).sum() == len(sampled)
    drift = (spy.trainer.predict(data).logprobs - data.logprobs).abs().max()
    assert drift < 1e-4, "sampled after the very ids that are trained"


def test_a_curriculum_goes_on_between_groups_not_within_one(tokenizer: Any) -> None:
    # Everything is solved, so each round of whole episodes ends a stage; branched episodes do not
    # count.
    stages = [[agentgym.spec("ListWorld", items=4, removals=k)] for k in (1, 2, 3)]
    curriculum = HorizonCurriculum(stages, threshold=1.0)
    trainer = GRPO(
        small_model(tokenizer),
        tokenizer,
        stages[0][0],
        GRPOConfig(branch=True),
        curriculum=curriculum,
    )
    teacher = OraclePolicy("ListWorld")
    for stage in (1, 2):
        played = trainer.actor.play(teacher, trainer.source.seeds(4), 3, 0)
        assert curriculum.stage == stage
        lengths = {t.steps[-1].info["turn"] for t in played.episodes}
        assert lengths == {stage + 1}


def test_a_branch_goes_on_as_the_episode_did(tokenizer: Any) -> None:
    spec = agentgym.spec("ListWorld", items=6, removals=4)
    branches = Branches()
    with Collector(branches.factory(spec), 4) as collector:
        policy = OraclePolicy("ListWorld")
        whole = {t.seed: t for t in collector.collect(policy, range(8))}
        branches.open = True
        again = list(collector.collect(policy, [*range(8), *range(8)]))
    assert {point.step for point in branches.points.values()} > {0}
    for trajectory in again:
        assert trajectory == branches.cut(whole[trajectory.seed])
        assert trajectory.reward == 1.0


def test_each_step_is_as_likely_as_any_other() -> None:
    branches = Branches()
    env = branches.factory(five_turns)()
    counts: Counter[int] = Counter()
    for seed in range(500):
        env.reset(seed=seed)
        while not any(env.step("one")[2:4]):
            pass
        counts[branches.points[seed].step] += 1
    assert sorted(counts) == [0, 1, 2, 3, 4]
    # Binomial(500, 1/5): mean 100, standard deviation 9; four of them.
    assert all(abs(count - 100) < 36 for count in counts.values())


def test_copies_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    # An episode of n steps needs about log(n) copies.
    copies = 0
    original = agentgym.clone

    def count(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        nonlocal copies
        copies += 1
        return original(env)

    monkeypatch.setattr("agentgym.training.rl.episodes.clone", count)
    env = Branches().factory(
        agentgym.spec("ListWorld", items=60, removals=50, max_failed_rounds=None)
    )()
    for seed in range(20):
        env.reset(seed=seed)
        steps = 1
        while not any(env.step("nothing")[2:4]):
            steps += 1
        assert steps > 60
    assert copies < 20 * 6
