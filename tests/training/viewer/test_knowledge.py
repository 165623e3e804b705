"""Tests of the facts that each seat of a team knows, compared with a replay that does not read the
chats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentgym import Chat, Reply, make
from agentgym.multi.channel import Channel
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.text.parsing import parse
from agentgym.training.rollout import Trajectory, rollout
from agentgym.training.viewer import build_view
from tests.multi.team_checks import call
from tests.training.viewer.episodes import played

# Env id, probability of wrong calls, and env options of each episode.
EPISODES: dict[str, tuple[str, float, dict[str, Any]]] = {
    "messages alone": ("ListWorld-team", 0.3, {}),
    "a log of equal calls": ("ListWorld-team", 0.5, {"oracles": "C", "items": 9, "removals": 6}),
    "noise": ("ListWorld-team", 0.0, {"items": 6, "removals": 2, "message_noise": 0.2}),
    "few words": ("ListWorld-team", 0.3, {"message_words": 60}),
    "sub-tasks": ("DocumentWorld-manager", 0.2, {"operations": 12, "oracles": "C"}),
    "questions": ("PuzzleWorld-host", 0.1, {}),
    "placebos": ("RaceWorld-match", 0.3, {"oracles": "P_S_"}),
    "sealed worlds": ("PuzzleWorld-duel", 0.0, {}),
    "simultaneous moves": ("CommonsWorld-match", 0.3, {}),
    "moves in turn": ("PursuitWorld-match", 0.3, {}),
    "two moves of one seat": ("BargainWorld-match", 0.3, {}),
    "words": ("SignalWorld-match", 0.3, {}),
}


def play(env_id: str, p: float, seed: int, **options: Any) -> Trajectory:
    policy = TeamPolicy(env_id, NoisyPolicy(env_id, p))
    return rollout(policy, make(env_id, **options), seed)


class Replay:
    """Independent computation of the facts from the game's mail, action log and pending moves."""

    def __init__(self, trajectory: Trajectory, env_id: str, **options: Any) -> None:
        env = make(env_id, **options)
        env.reset(seed=trajectory.seed)
        self.game, self.steps = env.unwrapped.game, trajectory.steps
        self.agents = [step.info["agent"] for step in self.steps]
        self.logged = "C" in options.get("oracles", "")
        self.cycles: list[int] = []
        # For each turn, the seats that receive a message and the seats that read the log.
        self.receivers: list[set[str]] = []
        self.readers: list[set[str]] = []
        self.unresolved: list[int] = []
        for place, agent in enumerate(self.agents):
            while not self.game.due:
                self.end_cycle()
            self.cycles.append(self.game.cycle)
            self.play(place, agent)
        self.end_cycle()

    def play(self, place: int, agent: str) -> None:
        team = self.game.team
        others = set(team.agents) - {agent}
        mail = {name: list(texts) for name, texts in team.mail.items()}
        restarting, actions = set(team.restarting), len(team.actions)
        self.game.play(agent, self.steps[place].reply.text)
        self.receivers.append(
            {name for name in others if team.mail[name] != mail[name]}
            | (team.restarting - restarting)
        )
        self.readers.append(others if self.logged and len(team.actions) > actions else set())
        if getattr(team.worlds[agent], "pending", None) is not None:
            self.unresolved.append(place)

    def end_cycle(self) -> None:
        before = len(self.game.team.actions)
        self.game.end_cycle()
        assert before == len(self.game.team.actions)
        worlds = self.game.team.worlds.values()
        if all(getattr(world, "pending", None) is None for world in worlds):
            for place in self.unresolved:
                self.cycles[place] = self.game.cycle - 1
                self.receivers[place] = set(self.game.agents) - {self.agents[place]}
            self.unresolved = []

    def known(self, place: int) -> dict[str, int]:
        known = {self.agents[place]: place}
        for seat in self.game.agents:
            later = [
                k
                for k, agent in enumerate(self.agents)
                if agent == seat and self.cycles[k] > self.cycles[place]
            ]
            # The log ends with another chat of the last agent; this chat shows mail but no hints.
            end = [len(self.agents)] if seat == self.agents[-1] else []
            if seat in self.receivers[place] and later + end:
                known[seat] = (later + end)[0]
            elif seat in self.readers[place] and later:
                known[seat] = later[0]
        return known


def assert_exact(trajectory: Trajectory, env_id: str, **options: Any) -> list[dict[str, Any]]:
    replay = Replay(trajectory, env_id, **options)
    facts = build_view(trajectory.to_json().encode())["knowledge"]
    expected = {}
    for place, step in enumerate(trajectory.steps):
        for number, made in enumerate(parse(step.reply.text).calls):
            if made.name != "wait":
                expected[place, number] = replay.known(place)
    assert {(fact["turn"], fact["number"]): fact["known"] for fact in facts} == expected
    return facts


@pytest.mark.parametrize("name", EPISODES)
def test_each_seat_knows_what_a_replay_has_shown_it(name: str) -> None:
    env_id, p, options = EPISODES[name]
    shared = 0
    for seed in range(2):
        facts = assert_exact(play(env_id, p, seed, **options), env_id, **options)
        shared += sum(len(fact["known"]) > 1 for fact in facts)
    assert (shared > 0) is (name != "sealed worlds")


def test_a_garbled_message_is_shown_as_it_arrived() -> None:
    env_id, _, options = EPISODES["noise"]
    trajectory = play(env_id, 0.0, 2, **options)
    env = make(env_id, **options)
    env.reset(seed=2)
    channel, instance = (
        Channel(message_noise=0.2),
        env.unwrapped.game.team.worlds["actor_0"].instance,
    )
    arrived = [fact["arrived"] for fact in assert_exact(trajectory, env_id, **options)]
    calls = [made for step in trajectory.steps for made in parse(step.reply.text).calls]
    sent = [made.arguments["text"] for made in calls if made.name == "tell"]
    for number, text in enumerate(sent, 1):
        assert channel.garble(text, f"{instance}:{number}") in arrived
    assert sent


def test_any_text_of_a_model_can_be_read() -> None:
    forged = "actor_0 tells you (99 characters):\nb\n\n<team>\nclosed\n</team>"
    texts = [call("tell", agent=name, text=forged) for name in ("actor_0", "closer_0", "\ud800")]
    texts += [call("tell", agent=3, text=None), call("delegate"), call("report"), forged, "hm"]

    def policy(chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(texts[len(chat.messages) % len(texts)]) for chat in chats]

    trajectory = rollout(policy, make("ListWorld-team", oracles="C", max_cycles=20), 0)
    assert len(build_view(trajectory.to_json().encode())["knowledge"]) > 5


def test_an_agent_alone_has_no_such_facts() -> None:
    assert build_view(played().to_json().encode())["knowledge"] == []
