"""Rows of whole episodes in TRL's loss, compared with the rows of our own trainers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trl

import agentgym
from agentgym import ToolCall, render
from agentgym.training.integrations.trl import env_reward, prompts, rollout_func
from agentgym.training.rl import rows
from agentgym.training.rollout import Episode, make_model, make_tokenizer
from tests.training.integrations.test_trl import Engine
from tests.training.integrations.trl_trainer import FILTERS

pytestmark = FILTERS
STACK: dict[str, Any] = {
    "items": 5,
    "removals": 2,
    "max_failed_rounds": None,
    "oracles": "S",
    "hint_scope": "ephemeral",  # each turn starts a new training row
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    torch.set_num_threads(1)
    chat, _ = agentgym.make("ListWorld", **STACK).reset(seed=0)
    return make_tokenizer([chat.to_text()], 400)


@pytest.fixture
def trajectories(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    played: list[Any] = []
    record = Episode.trajectory

    def spied(episode: Episode) -> Any:
        """Count every other episode as solved to provide a learning signal."""
        trajectory = record(episode)
        last = replace(trajectory.steps[-1], reward=float(len(played) % 2))
        played.append(replace(trajectory, steps=(*trajectory.steps[:-1], last)))
        return played[-1]

    monkeypatch.setattr(Episode, "trajectory", spied)
    return played


class Trainer(trl.GRPOTrainer):
    trained: list[tuple[tuple[int, ...], tuple[int, ...], float]]

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        shown = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1).bool()
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        for k, row in enumerate(mask):
            whole, trained = ids[k][shown[k]].tolist(), inputs["completion_ids"][k][row].tolist()
            self.trained.append((tuple(whole), tuple(trained), float(inputs["advantages"][k])))
        return super().compute_loss(model, inputs, *arguments, **named)


@pytest.mark.rotation
def test_trl_trains_each_sampled_token_once_as_our_trainers_do(
    tokenizer: Any, trajectories: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, episodes = 8, 2
    spec = agentgym.spec("ListWorld", **STACK)
    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        report_to="none",
        use_cpu=True,
        bf16=False,
        max_steps=1,
        logging_steps=1,
        num_generations=count * episodes,
        per_device_train_batch_size=count,
        gradient_accumulation_steps=episodes,
        max_completion_length=6,
        scale_rewards="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=make_model(tokenizer, 32, layers=1, context=2_048),
        processing_class=tokenizer,
        args=config,
        rollout_func=rollout_func(spec, rows_per_episode=count),
        reward_funcs=[env_reward],
        train_dataset=prompts("ListWorld", range(4), **STACK),
    )
    trainer.trained = []
    trainer.train()
    ours = [row for trajectory in trajectories for row in rows(trajectory)]
    sampled = [tuple(k for k, one in zip(row.ids, row.sampled, strict=True) if one) for row in ours]
    theirs = [(context, trained) for context, trained, _ in trainer.trained if trained]
    assert len(trajectories) == episodes
    assert len(ours) > episodes, "the episodes were edited"
    assert len(trainer.trained) == count * episodes
    assert Counter(theirs) == Counter(zip([row.ids for row in ours], sampled, strict=True))
    assert sum(map(len, sampled)) == sum(
        len(step.reply.ids) for trajectory in trajectories for step in trajectory.steps
    )
    advantages = {
        row.ids: trajectory.reward - 0.5 for trajectory in trajectories for row in rows(trajectory)
    }
    assert all(
        advantages[context] == pytest.approx(advantage)
        for context, trained, advantage in trainer.trained
        if trained
    ), "the baseline is the mean of the episodes, however many rows each has"
    (left_out,) = [e["rows_left_out"] for e in trainer.state.log_history if "rows_left_out" in e]
    assert left_out == 0.0


def play(tokenizer: Any, count: int, seeds: list[int]) -> dict[str, Any]:
    engine = Engine(tokenizer, lambda _: render(ToolCall("pop", {"id": 4})))
    asked = [[{"role": "user", "content": "", "seed": seed}] for seed in seeds]
    return rollout_func(agentgym.spec("ListWorld", **STACK), rows_per_episode=count)(asked, engine)


def test_rows_that_an_episode_does_not_need_are_short_and_masked(tokenizer: Any) -> None:
    output = play(tokenizer, 50, [7] * 50)
    (whole,) = {len(each) for each in output.values()}
    empty = [k for k, mask in enumerate(output["env_mask"]) if not any(mask)]
    assert whole == 50 > len(empty) > 40
    assert all(len(output["prompt_ids"][k]) == len(output["completion_ids"][k]) == 1 for k in empty)
    assert all(output["completion_ids"][k] == [tokenizer.eos_token_id] for k in empty)
    assert [each["rows_left_out"] for each in output["env_facts"]] == [0.0] * 50


def test_rows_for_which_there_is_no_room_are_counted(tokenizer: Any) -> None:
    every = play(tokenizer, 50, [7] * 50)
    needed = sum(map(any, every["env_mask"]))
    output = play(tokenizer, 2, [7, 7, 8, 8])
    assert all(map(any, output["env_mask"]))
    shares = [each["rows_left_out"] for each in output["env_facts"]]
    assert shares[0] == pytest.approx(1 - 2 / needed)
    logged: dict[str, float] = {}
    assert env_reward(log_metric=logged.__setitem__, **output) == output["env_reward"]
    assert logged["rows_left_out"] == pytest.approx(sum(shares) / 4)


@pytest.mark.parametrize("seeds", [[7, 7, 7], [7, 8], [7, 7, 8, 9]])
def test_prompts_that_are_not_whole_episodes_are_refused(tokenizer: Any, seeds: list[int]) -> None:
    with pytest.raises(
        ValueError,
        match=r"rows_per_episode=2 consecutive prompts, .* multiples of rows_per_episode",
    ):
        play(tokenizer, 2, seeds)


def test_the_number_of_rows_has_bounds() -> None:
    with pytest.raises(ValueError, match="rows_per_episode"):
        rollout_func(agentgym.spec("ListWorld"), rows_per_episode=0)
