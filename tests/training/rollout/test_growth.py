"""The cost of storing, sending and keeping an episode grows only with new text and tokens.

Bytes, memory and calls per step are counted for two episode lengths.
"""

from __future__ import annotations

import functools
import json
import pickle
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest

from agentgym import Chat, Reply, make
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.play.policy import Policy
from agentgym.text.token_ids import TokenIds
from agentgym.training.rl import rows
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rl.token_rows import TrainingRow, join
from agentgym.training.rollout import Renderer, Trajectory, make_tokenizer, rollout
from agentgym.training.rollout.engines.deltas import ReplyDelta
from agentgym.training.rollout.engines.servers import EnvServer, encode_answer
from benchmarks.growth import memory_of

# Numbers of DocumentWorld operations that take about 20 and 120 turns.
SHORT, LONG = 4, 28
# Maximum ratio of the costs per step; if costs grew with the history, the ratio would be four.
STEEPEST = 1.4
STACKS: dict[str, dict[str, Any]] = {
    "none": {},
    "hints": {"oracles": "P"},
    "ephemeral": {"oracles": "P", "hint_scope": "ephemeral"},
}
Played = Callable[[str, bool], tuple[Trajectory, Trajectory]]
CASES = {"stack": list(STACKS), "with_ids": [False, True]}


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    demo = rollout(OraclePolicy("DocumentWorld"), make("DocumentWorld", operations=4), 0)
    return Renderer(make_tokenizer([m.raw or m.text for m in demo.last.messages], 600))


@pytest.fixture(scope="module")
def played(renderer: Renderer) -> Played:
    return functools.cache(functools.partial(play, renderer))


def play(renderer: Renderer, stack: str, with_ids: bool) -> tuple[Trajectory, Trajectory]:
    oracle = OraclePolicy("DocumentWorld")
    policy: Policy = Tokenized(oracle, renderer) if with_ids else oracle
    short, long = (
        rollout(policy, make("DocumentWorld", operations=size, **STACKS[stack]), 0)
        for size in (SHORT, LONG)
    )
    assert len(long.steps) > 5 * len(short.steps)
    return short, long


def growth(cost: Callable[[Trajectory], float], episodes: Sequence[Trajectory]) -> float:
    """Return the ratio of the long episode's cost per step to the short episode's."""
    short, long = (cost(trajectory) / len(trajectory.steps) for trajectory in episodes)
    return long / short


@pytest.mark.rotation(**CASES)
def test_lines_and_pickles_are_read_back_and_grow_with_new_text_only(
    played: Played, stack: str, with_ids: bool
) -> None:
    episodes = played(stack, with_ids)
    lines = {id(t): t.to_json() for t in episodes}
    pickles = {id(t): pickle.dumps(t) for t in episodes}
    read = lambda t: Trajectory.from_json(lines[id(t)])  # noqa: E731
    load = lambda t: pickle.loads(pickles[id(t)])  # noqa: E731
    costs: list[Callable[[Trajectory], float]] = [
        lambda t: len(lines[id(t)]),
        lambda t: len(pickles[id(t)]),
    ]
    # Prompts that are edited at each step do not share memory for their token ids.
    if not (with_ids and len(episodes[1].segments()) > 1):
        costs += [lambda t: memory_of(lambda: read(t)), lambda t: memory_of(lambda: load(t))]
    for cost in costs:
        assert growth(cost, episodes) < STEEPEST
    for trajectory in episodes:
        for again in (read(trajectory), load(trajectory)):
            assert again == trajectory
            assert not with_ids or rows(again) == rows(trajectory)


@pytest.mark.parametrize("stack", STACKS)
def test_bytes_that_a_worker_sends(stack: str) -> None:
    policy = OraclePolicy("DocumentWorld")

    def sent(size: int) -> float:
        env = make("DocumentWorld", operations=size, **STACKS[stack])
        steps = rollout(policy, env, 0).steps
        server = EnvServer(env)
        server.reset(0)
        answers = [server.step((step.reply.text, "")) for step in steps]
        return fmean(len(encode_answer("step", (True, answer))) for answer in answers)

    assert sent(LONG) < STEEPEST * sent(SHORT)


@pytest.mark.parametrize("env_id", ["PuzzleWorld-duel", "DocumentWorld-team"])
def test_a_worker_sends_each_message_of_a_team_once(env_id: str) -> None:
    steps = rollout(TeamPolicy(env_id), make(env_id), 0).steps
    shown = {id(message) for step in steps for message in step.chat.messages}
    server = EnvServer(make(env_id))
    sent = len(server.reset(0).messages)
    sent += sum(len(server.step((step.reply.text, ""))[0].messages) for step in steps)
    assert sent <= 1.1 * len(shown) + len(steps) / 10


def edited_replies(rng: random.Random) -> list[Reply]:
    """Return replies whose prompts are empty, or extend or edit the previous prompt."""
    replies: list[Reply] = []
    prompt = TokenIds(rng.choices(range(5), k=4))
    for _ in range(rng.randrange(1, 9)):
        ids = tuple(rng.choices(range(5), k=rng.choice((0, 1, 3))))
        shown = rng.choice((prompt, tuple(prompt), ()) if rng.random() < 0.3 else (prompt,))
        logprobs = tuple(-rng.random() for _ in ids) if rng.random() < 0.9 else ()
        replies.append(Reply("x", shown, ids, logprobs))
        prompt = prompt.add(ids)
        if rng.random() < 0.3:
            prompt = prompt.first(rng.randrange(len(prompt) + 1))
        if rng.random() < 0.2:
            prompt = TokenIds(prompt)
        prompt = prompt.add(rng.choices(range(5), k=rng.randrange(3)))
    return replies


def joined_plainly(replies: Sequence[Reply]) -> list[TrainingRow]:
    found: list[list[Any]] = []
    continues = False
    for number, reply in enumerate(replies):
        prompt = tuple(reply.prompt_ids)
        continues = continues and prompt[: len(found[-1][0])] == found[-1][0]
        if not reply.ids:
            continue
        ids, sampled, logprobs, steps = found.pop() if continues else [(), (), (), ()]
        context = len(prompt) - len(ids)
        known = logprobs is not None and bool(reply.logprobs)
        found.append(
            [
                prompt + reply.ids,
                (*sampled, *[0] * context, *[1] * len(reply.ids)),
                (*logprobs, *[0.0] * context, *reply.logprobs) if known else None,
                (*steps, number),
            ]
        )
        continues = True
    return [TrainingRow(*row) for row in found]


def test_edited_prompts_are_sent_whole_and_trained_once() -> None:
    rng = random.Random(0)
    for _ in range(400):
        replies = edited_replies(rng)
        before, again = Reply(""), [Reply("")]
        for reply in replies:
            again.append(ReplyDelta.of(reply, before).after(again[-1]))
            before = reply
        assert again[1:] == replies
        assert join(enumerate(replies)) == join(enumerate(again[1:])) == joined_plainly(replies)
        assert sum(sum(row.sampled) for row in join(enumerate(replies))) == sum(
            len(reply.ids) for reply in replies
        )


def test_versions_of_ids_are_sequences() -> None:
    rng = random.Random(1)
    plain: list[tuple[int, ...]] = [()]
    versions = [TokenIds()]
    for _ in range(300):
        k, new = rng.randrange(len(plain)), tuple(rng.choices(range(3), k=rng.randrange(4)))
        cut = rng.randrange(len(plain[k]) + 1) if rng.random() < 0.3 else len(plain[k])
        plain.append(plain[k][:cut] + new)
        versions.append(versions[k].first(cut) + new)
    for one, version in zip(plain, versions, strict=True):
        assert version == one == tuple(version)
        assert (hash(version), len(version)) == (hash(one), len(one))
        assert version[1:-1] == one[1:-1]
        assert version[::-2] == one[::-2]
        assert pickle.loads(pickle.dumps(version)) == one
    for (one, two), (a, b) in zip(pairwise(plain), pairwise(versions), strict=True):
        common = next((k for k, (x, y) in enumerate(zip(one, two, strict=False)) if x != y), None)
        assert a.shared_prefix(b) == (min(len(one), len(two)) if common is None else common)
        assert (a == b) == (one == two)
    with pytest.raises(IndexError, match="3 ids, got index 3"):
        TokenIds((1, 2, 3))[3]


def test_lines_with_whole_prompts_are_read_and_bad_ones_refused() -> None:
    chat = Chat()
    reply = {"text": "x", "prompt_ids": [1, 2], "ids": [3]}
    steps = json.dumps({"kept": 0, "messages": [], "reward": 0, "info": {}, "reply": reply})
    more = steps.replace('"prompt_ids": [1, 2]', '"prompt_ids": [1, 2, 3, 4]')
    line = (
        '{"spec": {"id": "x"}, "seed": 0, "labels": {}, "terminated": true, "truncated": false, '
        f'"last": {{"kept": 0, "messages": []}}, "steps": [{steps}, {more}]}}'
    )
    again = Trajectory.from_json(line)
    assert [step.reply.prompt_ids for step in again.steps] == [(1, 2), (1, 2, 3, 4)]
    assert again.last == chat
    for kept in ("-1", "4", "1.5", '"2"', str(2**70)):
        with pytest.raises(ValueError, match="must be a trajectory"):
            Trajectory.from_json(line.replace('"prompt_ids": [1, 2, 3, 4]', f'"kept_ids": {kept}'))
