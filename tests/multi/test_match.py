from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentgym import make, teams
from agentgym.envs.games.commons_world import CommonsWorld
from agentgym.multi.game import Game
from agentgym.multi.match import PLAYED
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.world.seated import COMMITTED, Move
from tests.multi.team_checks import call, cycle, newest

IDS = [entry.id for entry in teams()]
MATCHES = [env_id for env_id in IDS if "-match-" in env_id]


def commons(**options: Any) -> Game:
    env = make("CommonsWorld-match", **options).unwrapped
    env.reset(seed=0)
    return env.game


def take(units: int) -> str:
    return call("take", units=units)


@pytest.mark.family(env_id=IDS)
def test_nothing_arrives_before_the_end_of_the_cycle(env_id: str) -> None:
    # The diagram in docs/games.md shows this rule.
    policy, env = TeamPolicy(env_id), make(env_id, oracles="SP")
    env.reset(seed=3)
    game = env.unwrapped.game
    while not game.over:
        for agent in game.due:
            others = {name: chat for name, chat in game.chats.items() if name != agent}
            game.play(agent, policy([game.chats[agent]])[0].text)
            assert all(game.chats[name] is chat for name, chat in others.items())
            if game.team.ended:
                break
        game.end_cycle()
    assert game.score == 1.0


@pytest.mark.parametrize("env_id", MATCHES)
def test_the_order_of_simultaneous_replies_changes_nothing(env_id: str) -> None:
    ends = []
    for step in (1, -1):
        env = make(env_id, oracles="SP")
        env.reset(seed=5)
        game, policy = env.unwrapped.game, TeamPolicy(env_id, NoisyPolicy(env_id, 0.3))
        while not game.over:
            for agent in game.due[::step]:
                game.play(agent, policy([game.chats[agent]])[0].text)
            game.end_cycle()
        ends.append((game.chats, game.rewards))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("env_id", MATCHES)
def test_all_seats_see_one_game(env_id: str) -> None:
    env = make(env_id, budget_slack=200)
    env.reset(seed=1)
    game, policy = env.unwrapped.game, TeamPolicy(env_id, NoisyPolicy(env_id, 0.5))
    while not game.over:
        for number, agent in enumerate(game.due):
            reply = policy([game.chats[agent]])[0].text
            # Unreadable replies from one seat must not make the boards diverge.
            game.play(agent, "hm" if (game.cycle + number) % 3 == 0 else reply)
        game.end_cycle()
        assert len({world.board() for world in game.team.worlds.values()}) == 1
    assert game.terminated


def test_a_move_waits_for_the_other_seat() -> None:
    game = commons()
    first, second = game.agents
    cycle(game, take(1), "hm")
    assert newest(game, first) == COMMITTED
    assert game.due == [second], "who has moved waits"
    assert game.team.worlds[first].round == 0
    cycle(game, take(2))
    assert game.due == [first, second]
    for agent in game.agents:
        assert newest(game, agent).startswith(
            f"{PLAYED}\nRound 1: {first} took 1, {second} took 2."
        )
    assert [game.team.worlds[agent].turn for agent in game.agents] == [1, 2]


def test_a_refused_move_is_made_again() -> None:
    game = commons()
    cycle(game, take(99), take(0))
    assert "error: units must be from 0 to" in newest(game, "player_0")
    assert game.due == ["player_0"]
    assert game.team.worlds["player_0"].pending is None


def test_a_seat_without_turns_ends_the_match() -> None:
    game = commons(budget_factor=1.0, budget_slack=0)
    cycle(game, take(1), take(2))
    for _ in range(8):
        if not game.over:
            cycle(game, *[take(0) if agent == "player_0" else "hm" for agent in game.due])
    assert (game.over, game.terminated) == (True, False)
    worth = game.team.worlds["player_0"].report()["equilibrium"]
    assert game.rewards == {"player_0": 1 / worth, "player_1": 2 / worth}


def test_two_who_hold_back_earn_more_than_two_who_do_not() -> None:
    # Restraint never pays in the last round, so both players are greedy there.
    def earn(*shares: float) -> list[float]:
        game = commons(rounds=8)
        while not game.over:
            takes = []
            for agent, share in zip(game.agents, shares, strict=True):
                world = game.team.worlds[agent]
                most = world.legal_calls()[-1].arguments["units"]
                takes.append(take(most if world.round == 7 else round(most * share)))
            cycle(game, *takes)
        return [game.rewards[agent] for agent in game.agents]

    both, neither, mixed = earn(0.5, 0.5), earn(1.0, 1.0), earn(1.0, 0.5)
    assert both[0] == both[1] > neither[0] == neither[1]
    assert mixed[0] > mixed[1]


class Broken(CommonsWorld):
    """CommonsWorld in which a match hook fails once player_0 has taken 2."""

    hook = ""

    def fail(self, hook: str) -> None:
        if hook == self.hook and self.totals["player_0"] == 2:
            raise RuntimeError(f"{hook} is broken")

    def play(self, moves: Mapping[str, Move]) -> str:
        line = super().play(moves)
        self.fail("play")
        return line

    def payoff(self) -> float:
        self.fail("payoff")
        return super().payoff()


@pytest.mark.parametrize("hook", ["play", "payoff"])
def test_a_fault_of_the_game_itself_makes_the_episode_invalid(
    hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "hook", hook)
    game = Game(Broken, team="match", rounds=2)
    game.reset(make("CommonsWorld").unwrapped.np_random)
    cycle(game, take(1), take(1))
    cycle(game, take(1), take(0))
    assert (game.over, game.terminated) == (True, False)
    assert set(game.rewards.values()) == {0.0}
    for agent in game.agents:
        detail = game.infos[agent]["detail"]
        assert (detail.ended, detail.score) == ("fault", None)
        assert "could not be decided" in detail.invalid
    assert game.infos["player_0"]["detail"].faults[0].message == f"{hook} is broken"


def test_only_a_world_with_seats_can_be_a_match() -> None:
    with pytest.raises(ValueError, match="ListWorld has one seat; a match requires a SeatedWorld"):
        Game("agentgym.envs.lumina.list_world:ListWorld", team="match")
    with pytest.raises(ValueError, match="seats of a match are fixed: player_0, player_1; omit"):
        make("CommonsWorld-match", roles={"a": ["take"], "b": ["take"]})
