from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import agentgym
from agentgym.training.evaluation import log_of
from agentgym.training.rl import FineTuneConfig, FineTuning, LearnConfig, Learning
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rl.self_play import SelfPlay, SelfPlayConfig
from agentgym.training.rl.token_rows import rows
from agentgym.training.rollout import PolicyConfig, collect, load_policy, make_model, make_tokenizer
from agentgym.training.rollout.models.pretrained import save_model

POOL = ("current", "noisy:p=0.5", "past")
TINY = LearnConfig(
    world="PursuitWorld-match",
    options={"size": 3, "wall_density": 0.0},
    teacher="noisy:p=0.5",
    pool=POOL,
    width=16,
    layers=1,
    heads=2,
    context=1_024,
    max_new_tokens=40,
    cloning_steps=2,
    rl_steps=4,
    groups=2,
    evaluations=2,
    episodes=1,
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_policy(folder).model.state_dict())


def test_a_killed_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = Learning(TINY, tmp_path / "whole").run()

    def kill(phase: str, step: int, steps: int) -> None:
        if phase == "rl" and step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Learning(TINY, tmp_path / "cut").run(kill)
    cut = Learning(TINY, tmp_path / "cut").run()
    assert [replace(point, seconds=0.0) for point in cut] == [
        replace(point, seconds=0.0) for point in whole
    ]
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(one[name], two[name]) for name in one)
    snapshots = sorted(path.name for path in (tmp_path / "cut" / "rl" / "past").iterdir())
    assert snapshots == ["000000", "000002"]


def test_the_model_trains_one_seat_at_a_time_unless_it_plays_itself(tmp_path: Path) -> None:
    env = agentgym.spec(TINY.world, size=4, catches=1, max_failed_rounds=1)
    teacher = PolicyConfig("noisy:p=0.5").make(TINY.world)
    texts = [message.text for t in collect(teacher, env, [0]) for message in t.last.messages]
    tokenizer = make_tokenizer(texts, 300)
    model = make_model(tokenizer, 16, 1, 2)
    config = SelfPlayConfig(max_new_tokens=40, pool=POOL, snapshot_every=2)
    training = SelfPlay(model, tokenizer, env, config, tmp_path)
    player = Tokenized(teacher, training.renderer)
    seats = []
    for step in range(6):
        episodes = training.play(player, range(8), 2, step).episodes
        trained = {row.agent for episode in episodes for row in rows(episode)}
        seats.append(sorted(trained))
    assert list(training.learn([])) == []
    # At first, the model plays itself. Later, the model plays one seat and then the other seat
    # against other opponents. The untrained snapshot forfeits before the evader moves.
    both, pursuer, evader = ["evader_0", "pursuer_0"], ["pursuer_0"], ["evader_0"]
    assert seats == [both, pursuer, pursuer, both, evader, []]


def test_a_saved_model_plays_itself_and_its_past_too(tmp_path: Path) -> None:
    """Both the training curve and the final evaluation play against the teacher."""
    chat, _ = agentgym.make(TINY.world, **TINY.options).reset(seed=0)
    tokenizer = make_tokenizer([chat.to_text()], 300)
    save_model(make_model(tokenizer, 16, 1, 2), tokenizer, tmp_path / "model")
    config = FineTuneConfig(
        model=str(tmp_path / "model"),
        world=TINY.world,
        options={"size": 5, "catches": 1},
        teacher="noisy:p=0.5",
        method="grpo",
        pool=("current", "past"),
        rl_steps=2,
        groups=1,
        group_size=2,
        save_every=1,
        curve_episodes=2,
        episodes=1,
        max_new_tokens=4,
    )
    points = FineTuning(config, tmp_path / "run").run()
    assert {point.phase for point in points} == {"rl"}
    assert len(list((tmp_path / "run" / "rl" / "past").iterdir())) == 2
    (after,) = log_of(tmp_path / "run" / "after")
    assert set(after.by_agent()) <= {"pursuer_0", "evader_0"}
    assert after.outcomes()["pursuer_0"] == "lost", "it writes nonsense"
    with pytest.raises(ValueError, match=r"pool=.* has no effect with method='clone'"):
        replace(config, method="clone")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pool": ()}, "at least one"),
        ({"pool": ("nobody",)}, "there is no policy 'nobody'"),
    ],
)
def test_a_pool_is_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SelfPlayConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"world": "ListWorld", "options": {}, "teacher": "oracle"}, "ListWorld has one agent"),
        ({"opponents": {"evader_0": "random"}}, "omit opponents"),
    ],
)
def test_a_pool_needs_a_team_without_fixed_seats(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TINY, **settings)
