from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agentgym import make, teams
from agentgym.multi.channel import NOISE_NOTE, Channel
from agentgym.oracles import TeamPolicy
from agentgym.training.rollout import rollout
from tests.multi.team_checks import call, cycle, newest

TALKING = [entry.id for entry in teams() if entry.id.endswith(("-team-v0", "-manager-v0"))]
TEXT = "\n".join(f"word{k} and  more{k}" for k in range(2_000))


def start(env_id: str, seed: int = 0, **options: Any) -> Any:
    env = make(env_id, **options).unwrapped
    env.reset(seed=seed)
    return env.game


def test_words_are_paid_once_for_the_episode() -> None:
    game = start("ListWorld-team", message_words=5)
    assert "can send 5 words in the episode" in game.chats["closer_0"].messages[0].text

    def tell(text: str) -> str:
        cycle(game, call("tell", agent="closer_0", text=text), "hm")
        return newest(game, "actor_0")

    assert "will be shown" in tell("I popped 0,")
    assert tell("x" * 41) == (
        "error: you can send 2 more words in this episode, got 3; shorten the text"
    ), "20 characters are a word"
    assert "will be shown" in tell("x" * 40)
    assert tell("x").startswith("error: you can send 0 more words")
    assert game.team.words == {"actor_0": 5, "closer_0": 0}
    assert game.team.messages == 2


def test_a_sub_task_and_a_report_cost_words() -> None:
    game = start("ListWorld-manager", message_words=3)
    cycle(game, call("delegate", task="one two three four"))
    assert newest(game, "manager_0").startswith("error: you can send 3 more words")
    cycle(game, call("delegate", task="one two three"))
    cycle(game, call("report", text="four five"))
    assert game.team.words == {"manager_0": 3, "worker_0": 2}


def test_noise_loses_half_of_the_words_it_hits_and_moves_the_others() -> None:
    sent = TEXT.split()
    for noise in (0.0, 0.1, 0.5, 1.0):
        channel = Channel(message_noise=noise)
        text = channel.garble(TEXT, "moment")
        assert text == channel.garble(TEXT, "moment")
        assert (text == channel.garble(TEXT, "another")) == (noise == 0)
        arrived = text.split()
        assert not Counter(arrived) - Counter(sent), "no word is invented"
        assert abs(1 - len(arrived) / len(sent) - noise / 2) < 0.02
        kept = Counter(arrived)
        in_order = [word for word in sent if kept[word]][: len(arrived)]
        assert (in_order == arrived) == (noise == 0), "some words swap places"


def test_noise_follows_from_the_seed_and_the_message() -> None:
    def arrive(seed: int) -> list[str]:
        game = start("ListWorld-team", seed, message_noise=0.5)
        assert NOISE_NOTE in game.chats["actor_0"].messages[0].text
        texts = []
        for _ in range(2):
            cycle(game, call("tell", agent="closer_0", text="a b c d e f g h"), "hm")
            texts.append(newest(game, "closer_0"))
        return texts

    first, second = arrive(0)
    assert first != second
    heading, _, text = first.partition("\n")
    assert heading == f"actor_0 tells you ({len(text)} characters):"
    assert arrive(0) == [first, second] != arrive(1)


@pytest.mark.family(env_id=TALKING)
def test_a_scripted_team_bears_noise(env_id: str) -> None:
    for noise in (0.1, 1.0):
        env = make(env_id, message_noise=noise, max_cycles=40)
        last = rollout(TeamPolicy(env_id), env, 0).steps[-1]
        assert last.info["detail"]["ended"] in ("world", "max_turns", "max_cycles", "failed_rounds")


@pytest.mark.parametrize("env_id", ["PuzzleWorld-duel", "PuzzleWorld-host", "CommonsWorld-match"])
def test_a_team_without_messages_has_no_channel(env_id: str) -> None:
    for option in ({"message_words": 3}, {"message_noise": 0.1}):
        with pytest.raises(ValueError, match="cannot send messages; omit message_words and"):
            make(env_id, **option)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"message_words": 0}, r"message_words must be an integer in \[1, 1000000000\], got 0"),
        ({"message_noise": 1.5}, r"message_noise must be a number in \[0.0, 1.0\], got 1.5"),
    ],
)
def test_options_of_the_channel_are_checked(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make("ListWorld-team", **options)
