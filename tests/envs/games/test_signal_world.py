"""Compare SignalWorld with a search over all word sequences, and with a match played by hand."""

from __future__ import annotations

import itertools

import pytest

from agentgym import make
from agentgym.envs.games.signal_world import LISTENER, SPEAKER, Object, SignalConfig, SignalWorld
from agentgym.multi.game import Game
from agentgym.world.splits import draw
from tests.multi.team_checks import call, cycle, newest, play_match

OBJECTS: tuple[Object, ...] = (
    ("red", "circle", "small"),
    ("red", "circle", "large"),
    ("red", "square", "large"),
    ("green", "square", "large"),
)


def world_of(*targets: int) -> SignalWorld:
    world = SignalWorld(SignalConfig(), 0)
    world._start(OBJECTS, len(targets))
    world.targets, world.max_turns = targets, 99
    world.least = world._later(0)
    return world


def shortest(config: SignalConfig, seed: int) -> list[tuple[str, ...]]:
    """Return the shortest sequences of words after which the scripted listener picks the target."""
    target = draw(SignalWorld, config, seed)
    words = target.objects[target.targets[0]]
    for count in range(1, len(words) + 1):
        found = []
        for said in itertools.product(words, repeat=count):
            world = draw(SignalWorld, config, seed)
            for word in said:
                if not world.done:
                    world.say(word)
            if world.done:
                found.append(said)
        if found:
            return found
    raise AssertionError("no words suffice")


@pytest.mark.parametrize("objects", [5, 12, 20])
def test_the_least_number_of_words_is_that_of_the_shortest_sequences(objects: int) -> None:
    config = SignalConfig(rounds=1, objects=objects)
    for seed in range(8):
        best = shortest(config, seed)
        world = draw(SignalWorld, config, seed)
        assert world.least == len(best[0])
        first = {call.arguments["text"] for call in world.optimal_calls()}
        assert first == {said[0] for said in best}
        for word in best[0]:
            world.say(word)
        assert world.score() == 1.0


def test_one_word_too_many_loses_a_later_round() -> None:
    world = world_of(1, 3)
    assert world.least == 3, "two for the large red circle, one for the green square"
    assert {call.arguments["text"] for call in world.optimal_calls()} == {"circle", "large"}
    assert world.say("circle") == (
        "Round 1: speaker_0 says circle. Said in this round: circle. Wrong picks in it: none. "
        "Words and wrong picks so far: 1\n"
        "Round 1: listener_0 says more. Said in this round: circle. Wrong picks in it: none. "
        "Words and wrong picks so far: 1"
    )
    world.say("red")
    assert list(world.optimal_calls()) == []
    assert world.say("large").endswith(
        "Round 1: listener_0 says B: right. Said in this round: none. Wrong picks in it: none. "
        "Words and wrong picks so far: 3"
    )
    world.say("green")
    assert (world.done, world.score()) == (True, 0.0)


def test_the_listener_knows_the_words_alone() -> None:
    # Every target is red, so the word "red" does not distinguish the targets.
    seats = [world_of(target) for target in (0, 1, 2)]
    for world in seats:
        world.join(LISTENER)
        world.play({SPEAKER: "red"})
    assert len({world.state() for world in seats}) == 1
    assert len({world.restate() for world in seats if world.least == 1}) == 1
    assert [list(world.optimal_calls()) for world in seats] == [list(seats[0].optimal_calls())] * 3
    assert "Object of" not in seats[0].task()


def test_both_earn_the_same_and_a_lucky_guess_more() -> None:
    def guess(game: Game, agent: str) -> str:
        fits = game.team.worlds[agent].candidates
        return (
            call("say", text="ABCDEFGHIJKL"[fits[0]])
            if agent == LISTENER and len(fits) == 2
            else ""
        )

    waits = play_match("SignalWorld-match", 4, rounds=3)
    guesses = play_match("SignalWorld-match", 4, guess, rounds=3)
    assert waits.rewards == {SPEAKER: 1.0, LISTENER: 1.0}
    report = guesses.infos[SPEAKER]["detail"].report
    assert set(guesses.rewards.values()) == {report["least"] / report["cost"]}
    assert report["cost"] != report["least"]


def test_a_wrong_pick_counts_and_excludes_the_object() -> None:
    env = make("SignalWorld-match")
    env.reset(seed=4)
    game = env.unwrapped.game
    world = game.team.worlds[LISTENER]
    target = game.team.worlds[SPEAKER].targets[0]
    word = world.objects[target][0]
    cycle(game, call("say", text="A"))
    assert newest(game, SPEAKER).startswith("error: text must be one of")
    cycle(game, call("say", text=word))
    wrong = next(each for each in world.candidates if each != target)
    cycle(game, call("say", text="ABCDEFGHIJKL"[wrong]))
    assert (world.cost, world.wrong) == (2, (wrong,))
    assert wrong not in world.candidates
    assert game.due == [SPEAKER]


def test_a_wrong_pick_may_save_a_word() -> None:
    world = world_of(1)
    world.join(SPEAKER)
    world.play({SPEAKER: "red"})
    world.play({LISTENER: "A"})
    # After the wrong pick A, "circle" alone identifies the target; otherwise "large" is needed too.
    assert [each.arguments["text"] for each in world.optimal_calls()] == ["circle"]
