from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from agentgym import Reply, make, teams
from agentgym.cli.common import join_seats
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.text.messages import Chat
from agentgym.training.evaluation import Ablation
from agentgym.training.rl import GRPO, Cloning, CloningConfig, GRPOConfig
from agentgym.training.rl import rows as token_rows
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rl.from_scratch import LearnConfig
from agentgym.training.rollout import (
    Collector,
    PolicyConfig,
    Renderer,
    SeatPolicies,
    Trajectory,
    collect,
    make_model,
    make_tokenizer,
    rollout,
)
from agentgym.training.rollout.seat_policies import against, agents_of

IDS = [entry.id for entry in teams()]
DUEL = "PuzzleWorld-duel"


def noisy(env_id: str, seed: int = 0) -> TeamPolicy:
    return TeamPolicy(env_id, NoisyPolicy(env_id, 0.3, seed))


@pytest.mark.family(env_id=IDS)
def test_equal_policies_in_separate_seats_play_like_one(env_id: str) -> None:
    agents = agents_of(make(env_id))
    seats = dict.fromkeys(agents, noisy(env_id))
    together = rollout(noisy(env_id), env_id, 5)
    assert rollout(seats, env_id, 5).to_json() == together.to_json()
    assert rollout({agent: noisy(env_id) for agent in reversed(agents)}, env_id, 5) == together
    assert Trajectory.from_json(together.to_json()) == together
    rewards = together.seat_rewards()
    assert set(rewards) == set(agents)
    for agent, numbers in together.by_agent().items():
        assert {together.steps[k].chat.agent for k in numbers} == {agent}
        assert rewards[agent] == together.reward_of(agent)


@pytest.mark.family(env_id=IDS)
def test_a_policy_sees_all_chats_of_its_seats_and_no_others(env_id: str) -> None:
    agents = agents_of(make(env_id))
    seen: dict[str, set[str]] = {}
    sizes: list[int] = []
    player = TeamPolicy(env_id)

    def watcher(name: str) -> Callable[[Sequence[Chat]], list[Reply]]:
        def play(chats: Sequence[Chat]) -> list[Reply]:
            seen.setdefault(name, set()).update(chat.agent for chat in chats)
            sizes.append(len(chats))
            return player(chats)

        return play

    shared = watcher("others")
    seats = dict.fromkeys(agents[1:], shared) | {agents[0]: watcher("first")}
    played = list(collect(seats, env_id, [3, 3], 2, ordered=True))
    assert played[0].steps == played[1].steps == rollout(player, env_id, 3).steps
    assert seen["first"] == {agents[0]}
    assert seen.get("others", set()) <= set(agents[1:])
    assert max(sizes) == 2, "chats of one policy are batched"


@pytest.mark.parametrize("engine", ["lockstep", "threads", "processes"])
def test_every_engine_asks_the_policy_of_the_seat(engine: str) -> None:
    seats = PolicyConfig("player_0=oracle,player_1=noisy:p=0.5:seed=3").make(DUEL)
    played = collect(seats, DUEL, range(4), 2, engine=engine, ordered=True)
    expected = [rollout(seats, DUEL, seed) for seed in range(4)]
    assert [(t.steps, t.outcomes()) for t in played] == [(t.steps, t.outcomes()) for t in expected]


def test_every_seat_resets_its_policy_at_the_start_of_each_episode() -> None:
    class Counting:
        def __init__(self) -> None:
            self.seeds: list[int] = []

        def reset(self, seed: int) -> None:
            self.seeds.append(seed)

        def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
            return TeamPolicy(DUEL)(chats)

        async def later(self, chats: Sequence[Chat]) -> list[Reply]:
            return self(chats)

    one, two = Counting(), Counting()
    for second in (two, two.later):
        list(collect({"player_0": one, "player_1": second}, DUEL, range(3)))
    assert one.seeds == [0, 1, 2, 0, 1, 2]
    assert two.seeds == [0, 1, 2], "a bound method has no hook"


@pytest.mark.parametrize(
    ("given", "env_id", "message"),
    [
        ({}, DUEL, "no seat has a policy"),
        ({"player_0": 0}, DUEL, "the seat 'player_1' has no policy"),
        ({"player_0": 0, "player_1": 0, "player_2": 0}, DUEL, "no seat 'player_2' in this team"),
        ({"player_0": 0}, "ListWorld", "the seats player_0, but the world has only one agent"),
    ],
)
def test_wrong_seats_are_refused_before_play(
    given: dict[str, Any], env_id: str, message: str
) -> None:
    policies = {agent: noisy(DUEL, seed) for agent, seed in given.items()}
    with pytest.raises(ValueError, match=message):
        rollout(policies, env_id, 0)
    with Collector(env_id) as collector, pytest.raises(ValueError, match=message):
        collector.collect(policies, [0])
    if given:
        name = ",".join(f"{agent}=oracle" for agent in given)
        with pytest.raises(ValueError, match=message):
            Ablation((env_id,), ("",), (4,), 1, PolicyConfig(name))


def test_the_name_of_a_team_of_policies_is_read_strictly() -> None:
    config = PolicyConfig("player_0=noisy:p=0.2,player_1=noisy:p=0.2")
    seats = config.make(DUEL).seats  # type: ignore[attr-defined]
    assert seats["player_0"] is seats["player_1"], "equal texts share a policy"
    for name, message in (
        ("player_0=oracle,player_0=random", "'player_0' is named twice"),
        ("player_0=oracle,player_1=orakel", "there is no policy 'orakel'"),
        ("player_0=noisy:q=1,player_1=oracle", "'q'"),
    ):
        with pytest.raises(ValueError, match=message):
            PolicyConfig(name)
    with pytest.raises(ValueError, match="the frozen seat 'player_2' has no policy"):
        SeatPolicies({"player_0": noisy(DUEL)}, frozen=["player_2"])


def test_outcomes_follow_from_the_episode_itself() -> None:
    """The chats determine the puzzle's winner, and the moves determine who earned more."""
    kinds = set()
    seats = {f"player_{k}": noisy(DUEL, k) for k in range(2)}
    for trajectory in collect(seats, DUEL, range(24), ordered=True):
        solved = {}
        for agent, numbers in trajectory.by_agent().items():
            if trajectory.steps[numbers[-1]].info["success"]:
                solved[agent] = len(numbers)
        last = trajectory.steps[-1].info["detail"]["report"]["team"]["winners"]
        outcomes = trajectory.outcomes()
        names = ["won", "drew"][len(last) == 2]
        assert outcomes == {a: names if a in last else "lost" for a in seats} or not last
        assert sum(trajectory.seat_rewards().values()) == (1.0 if last else 0.0)
        kinds |= set(outcomes.values())
        assert set(solved) <= set(last) or not last
    assert {"won", "lost"} <= kinds


def test_a_model_over_its_window_ends_the_game_for_all() -> None:
    def full(chats: Sequence[Chat]) -> list[Reply]:
        return [Reply("", ended="over_window") for _ in chats]

    trajectory = rollout({"player_0": TeamPolicy(DUEL), "player_1": full}, DUEL, 0)
    assert trajectory.truncated
    assert trajectory.steps[-1].info["detail"]["ended"] == "over_window"
    assert set(trajectory.outcomes().values()) == {"unsolved"}


class Words:
    """A tokenizer and a renderer for the texts of a team's episode."""

    def __init__(self, env_id: str, **options: Any) -> None:
        played = rollout(TeamPolicy(env_id), make(env_id, **options), 0)
        texts = [message.raw or message.text for message in played.last.messages]
        self.tokenizer = make_tokenizer(texts, 400)
        self.renderer = Renderer(self.tokenizer)


@pytest.mark.family(env_id=IDS)
def test_frozen_seats_have_no_tokens(env_id: str) -> None:
    text = {"render": "scene"} if "Multimodal" in env_id else {}
    words, agents = Words(env_id, **text), agents_of(make(env_id))
    teacher = Tokenized(TeamPolicy(env_id), words.renderer)
    whole = rollout(teacher, make(env_id, **text), 1)
    frozen = agents[1:]
    seats = against(teacher, dict.fromkeys(frozen, teacher), agents)
    part = rollout(seats, make(env_id, **text), 1)
    assert [step.reply.text for step in part.steps] == [step.reply.text for step in whole.steps]
    rows = token_rows(part)
    numbers = whole.by_agent()[agents[0]]
    assert sorted(k for row in rows for k in row.steps) == list(numbers)
    assert sum(sum(row.sampled) for row in rows) == sum(
        len(whole.steps[k].reply.ids) for k in numbers
    )
    assert {row.agent for row in rows} == {agents[0]}
    for row in token_rows(whole):
        assert {whole.agent_of(k) for k in row.steps} == {row.agent}


class Recorded(GRPO):
    def learn(self, played: Sequence[Trajectory]) -> Any:
        self.played, self.values = list(played), self.advantages(played)
        return super().learn(played)


def test_grpo_trains_the_seats_without_opponents() -> None:
    words = Words(DUEL)
    model = make_model(words.tokenizer, 16, 1, 2, context=4_096)
    config = GRPOConfig(steps=1, groups=2, group_size=3, num_envs=6, max_new_tokens=4)
    opponents = {"player_1": noisy(DUEL)}
    trainer = Recorded(model, words.tokenizer, DUEL, config, opponents=opponents)
    trainer.train()
    assert len(trainer.played) == 6
    for trajectory, values in zip(trainer.played, trainer.values, strict=True):
        for step, value in zip(trajectory.steps, values, strict=True):
            assert bool(step.reply.ids) is (step.info["agent"] == "player_0")
            assert value == 0.0 or step.reply.ids
    figures = trainer.records.figures()
    assert figures["reward"] == sum(t.seat_rewards()["player_0"] for t in trainer.played) / 6
    steps = CloningConfig(episodes=2, steps=1, num_envs=2)
    cloning = Cloning(TeamPolicy(DUEL), model, words.tokenizer, DUEL, steps, opponents=opponents)
    for trajectory in cloning.source.play(cloning.teacher, [5, 6], 0).episodes:
        assert {row.agent for row in token_rows(trajectory)} == {"player_0"}
    for wrong, message in (
        (dict.fromkeys(("player_0", "player_1"), noisy(DUEL)), "play all seats"),
        ({"player_7": noisy(DUEL)}, "no seat 'player_7'"),
    ):
        with pytest.raises(ValueError, match=message):
            Recorded(model, words.tokenizer, DUEL, config, opponents=wrong).train()


def learning(env_id: str, **options: Any) -> LearnConfig:
    for horizon in (3, 7, 12):  # no office task takes 3 turns
        with suppress(ValueError):
            return LearnConfig(world=env_id, horizons=(horizon,), **options)
    return LearnConfig(world=env_id, horizons=(24,), **options)


@pytest.mark.family(env_id=IDS)
def test_every_team_can_be_trained(env_id: str) -> None:
    first, *others = learning(env_id, teacher="noisy:p=0.2").agents()
    opponents = dict.fromkeys(others, "oracle")
    config = learning(env_id, teacher="noisy:p=0.2", opponents=opponents)
    seats = against(config.make_teacher(), config.make_opponents(), config.agents())
    trajectory = rollout(seats, config.specs(config.cells())[0], 2)
    assert trajectory.steps
    assert not trajectory.failure
    assert set(trajectory.by_agent()) <= {first, *others}


@pytest.mark.parametrize(
    ("names", "seats", "expected"),
    [
        ("player_0=oracle player_1=random", "01", [("", "player_0=oracle,player_1=random")]),
        ("player_0=oracle other=random", "01", [("player_0", "oracle"), ("other", "random")]),
        ("player_0=oracle player_1=random", "", [("player_0", "oracle"), ("player_1", "random")]),
        (
            "a=player_0=x,player_1=y player_0=y,player_1=x",
            "01",
            [("a", "player_0=x,player_1=y"), ("", "player_0=y,player_1=x")],
        ),
        ("player_0=oracle", "01", [("", "player_0=oracle")]),
        ("oracle random", "01", [("", "oracle"), ("", "random")]),
    ],
)
def test_names_are_seats_only_if_all_are(
    names: str, seats: str, expected: list[tuple[str, str]]
) -> None:
    assert join_seats(names.split(), [f"player_{seat}" for seat in seats]) == expected
