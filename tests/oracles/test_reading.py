"""Scripted policies read only the new part of a chat, and reply as if they had read the whole
chat."""

from __future__ import annotations

import copy
import gc
import pickle
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentgym import ARMS, make, teams, worlds
from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy, TeamPolicy
from agentgym.oracles.policies import Deficits, ThinkingPolicy
from agentgym.play.policy import Policy, Reply
from agentgym.text.messages import Chat, Message
from agentgym.training.rollout import collect, rollout
from tests.helpers import calls_of
from tests.sampling import is_office

IDS = [entry.id for entry in worlds()]
TEAMS = [entry.id for entry in teams()]
STRATEGIES = ["", "clear_results", "clear_thinking", "compaction", "awareness", "memory"]
# Number of compared steps per episode, enough for every strategy to edit the history.
LIMIT = 40
DEFICITS = Deficits(planning=0.2, tracking=0.1, distraction=0.01)
MAKERS: dict[str, Callable[[str], Policy]] = {
    "oracle": OraclePolicy,
    "noisy": lambda env_id: NoisyPolicy(env_id, 0.3),
    "random": RandomPolicy,
    "thinking": lambda env_id: ThinkingPolicy(NoisyPolicy(env_id, 0.2)),
    "noting": lambda env_id: ThinkingPolicy(OraclePolicy(env_id, notes=True)),
    "control": lambda env_id: ControlPolicy(env_id, DEFICITS),
    "planner": lambda env_id: ControlPolicy(env_id, Deficits(planning=0.2)),
}


class Compared:
    def __init__(self, make_policy: Callable[[], Policy]) -> None:
        self.policy, self.make = make_policy(), make_policy

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        replies = self.policy(chats)
        assert replies == self.make()(chats)
        return replies


def play(env: Any, policy: Policy, seed: int = 1) -> list[Chat]:
    chat, _ = env.reset(seed=seed)
    chats = [chat]
    while len(chats) < LIMIT:
        chat, _, terminated, truncated, _ = env.step(policy([chat])[0].text)
        if terminated or truncated:
            break
        chats.append(chat)
    return chats


@pytest.mark.family(env_id=IDS, arm=[*ARMS], context=STRATEGIES)
def test_replies_are_those_of_a_policy_that_reads_all(env_id: str, arm: str, context: str) -> None:
    options: dict[str, Any] = {"size": 2} if is_office(env_id) else {}
    if context:
        options |= {"context": context, "window": 4_000}
    if len(arm) == 1:
        options["hint_scope"] = "ephemeral"
    env = make(env_id, oracles=arm, **options)
    names = ["noisy"] if is_office(env_id) else [*MAKERS]
    for name in {"oracle", random.Random(f"{env_id} {arm} {context}").choice(names)}:
        play(env, Compared(lambda name=name: MAKERS[name](env_id)))


@pytest.mark.family(env_id=TEAMS, arm=["", "S"])
def test_replies_of_teams_are_those_of_one_that_reads_all(env_id: str, arm: str) -> None:
    env = make(env_id, oracles=arm, **({"size": 2} if is_office(env_id) else {}))
    for patience in (2, 8):
        make_policy = lambda n=patience: TeamPolicy(env_id, MAKERS["noisy"](env_id), patience=n)  # type: ignore[arg-type, misc]  # noqa: E731
        rollout(Compared(make_policy), env, 1)


@pytest.fixture(scope="module")
def chats() -> list[Chat]:
    """Return chats of several episodes and wrapper stacks in random order; many chats occur twice."""
    stacks: list[dict[str, Any]] = [
        {},
        {"oracles": "P"},
        {"oracles": "P", "hint_scope": "ephemeral"},
        {"oracles": "SP"},
        {"context": "compaction", "window": 4_000},
        {"context": "clear_results", "window": 4_000},
    ]
    policy = OraclePolicy("DocumentWorld")
    pool = [
        chat
        for stack in stacks
        for seed in (0, 1)
        for chat in play(make("DocumentWorld", operations=8, **stack), policy, seed)
    ]
    return random.Random(0).choices(pool, k=2 * len(pool))


@pytest.fixture(scope="module")
def texts(chats: list[Chat]) -> list[str]:
    return [noisy()([chat])[0].text for chat in chats]


def noisy() -> NoisyPolicy:
    return NoisyPolicy("DocumentWorld", 0.3)


@pytest.mark.rotation
def test_threads_share_a_policy(chats: list[Chat], texts: list[str]) -> None:
    policy = noisy()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda chat: policy([chat])[0].text, chats)) == texts


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])  # fmt: skip
def test_a_copy_of_a_policy_replies_alike(copied: Any, chats: list[Chat], texts: list[str]) -> None:
    policy = noisy()
    fresh = len(pickle.dumps(policy))
    policy(chats[:40])
    assert len(pickle.dumps(policy)) == fresh, "what it has read is no part of it"
    assert [reply.text for reply in copied(policy)(chats[:40])] == texts[:40]


def test_branches_of_a_chat_are_read_each_for_itself() -> None:
    policy = OraclePolicy("DocumentWorld")
    early, *_, late = play(make("DocumentWorld", operations=8), policy)
    (reply,) = policy([early])
    other = early.add(Message("assistant", raw=reply.text), Message("user", "error: try again"))
    for chat in (late, other, early, other, late):
        assert policy([chat]) == OraclePolicy("DocumentWorld")([chat])


def test_an_edited_hint_or_result_is_read_again() -> None:
    # If the policy does not read the chat again, only the newest hint may have changed.
    chats = play(make("DocumentWorld", operations=8), OraclePolicy("DocumentWorld"))
    policy = OraclePolicy("DocumentWorld")
    whole = chats[-1]
    *_, newest = whole.messages
    base = whole.without_last()
    reads = []
    for text in (newest.text, f"{newest.text}\n\n<plan>\nGo.\n</plan>", "error: it is lost"):
        edited = base.with_last(Message("tool", text, call_id=newest.call_id, moment=newest.moment))
        reads.append(calls_of(policy, [edited]))
        assert policy([edited]) == OraclePolicy("DocumentWorld")([edited])
    assert reads[1] < reads[0] / 2 < reads[2]


def test_readings_go_with_their_chats() -> None:
    policy = OraclePolicy("DocumentWorld")
    chats = play(make("DocumentWorld", operations=8), policy)
    assert len(policy._readings._kept) == 1
    del chats
    gc.collect()
    assert not policy._readings._kept


def test_the_readings_of_many_chats_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym.oracles.reading._MOST_CHATS", 3)
    policy = OraclePolicy("ListWorld")
    envs = [make("ListWorld") for _ in range(5)]
    chats = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    assert policy(chats) == [OraclePolicy("ListWorld")([chat])[0] for chat in chats]
    assert len(policy._readings._kept) == 3


# Worlds in two sizes; the larger size takes several times as many turns.
LARGE: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "DocumentWorld": ({"operations": 10}, {"operations": 80}),
    "CodeWorld": ({"operations": 10}, {"operations": 80}),
    "MultimodalWorld": ({"operations": 10}, {"operations": 80}),
    "GridWorld": ({"size": 12}, {"size": 64}),
    "TreeWorld": ({"nodes": 10}, {"nodes": 100}),
}
# Maximum ratio of calls per turn between the larger and the smaller world. Reading the whole chat at
# each turn would at least quadruple the calls.
STEEPEST = 2.0


def calls_a_turn(env_id: str, make_policy: Callable[[], Policy], **options: Any) -> float:
    counts: list[int] = []
    policy = make_policy()

    def counted(chats: Sequence[Chat]) -> list[Reply]:
        replies: list[Reply] = []
        counts.append(calls_of(lambda: replies.extend(policy(chats))))
        return replies

    rollout(counted, make(env_id, **options), 0)
    return sum(counts) / len(counts)


def growth(env_id: str, make_policy: Callable[[], Policy], **options: Any) -> float:
    small, large = (calls_a_turn(env_id, make_policy, **size, **options) for size in LARGE[env_id])
    return large / small


@pytest.mark.parametrize("env_id", LARGE)
def test_a_turn_costs_the_same_however_long_the_history(env_id: str) -> None:
    assert growth(env_id, lambda: OraclePolicy(env_id)) < STEEPEST


@pytest.mark.parametrize(
    ("options", "make_policy"),
    [
        ({"oracles": "P"}, OraclePolicy),
        ({"oracles": "P", "hint_scope": "ephemeral"}, OraclePolicy),
        ({}, MAKERS["noisy"]),
        ({}, lambda env_id: ControlPolicy(env_id, Deficits())),
    ],
)
def test_hints_and_errors_do_not_make_a_turn_dearer(
    options: dict[str, Any], make_policy: Callable[[str], Policy]
) -> None:
    assert growth("DocumentWorld", lambda: make_policy("DocumentWorld"), **options) < STEEPEST


@pytest.mark.parametrize("played", ["GridWorld", "TreeWorld", "PuzzleWorld", "CommonsWorld"])
def test_a_scripted_policy_refuses_another_world(played: str) -> None:
    (trajectory,) = collect(OraclePolicy("ListWorld"), played, [1])
    assert "a scripted policy plays only the world that it was created for" in trajectory.failure
