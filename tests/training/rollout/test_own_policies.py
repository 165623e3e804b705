from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.training.rollout import (
    CollectionError,
    PolicyFault,
    TrajectoryLog,
    UserPolicy,
    collect,
    rollout,
)
from tests.training.rollout.own_policies import (
    GOOD,
    PLAY,
    UNCALLABLE,
    WRONG,
    AsyncOne,
    Remembering,
    RememberingByEpisode,
    fails_on,
)

ENGINES = ("lockstep", "threads", "asyncio", "processes")
SEEDS = range(5)


@pytest.fixture(scope="module")
def expected() -> list[str]:
    return by_seed(collect(PLAY, "ListWorld", SEEDS))


def by_seed(trajectories: Any) -> list[str]:
    return [t.to_json() for t in sorted(trajectories, key=lambda t: t.seed)]


@pytest.mark.parametrize("form", GOOD)
def test_every_form_of_policy_plays_like_the_plain_one(form: str, expected: list[str]) -> None:
    make = GOOD[form]
    assert by_seed(collect(make(), "ListWorld", SEEDS, 3)) == expected
    assert by_seed(collect(make(), "ListWorld", SEEDS, 3, engine="threads")) == expected
    played = [rollout(make(), agentgym.make("ListWorld"), seed).steps for seed in SEEDS]
    assert played == [t.steps for t in collect(PLAY, "ListWorld", SEEDS, ordered=True)]


ASYNC = [form for form in GOOD if UserPolicy(GOOD[form]()).awaitable]


@pytest.mark.parametrize("form", ASYNC)
def test_every_async_form_of_policy_is_awaited(form: str, expected: list[str]) -> None:
    played = collect(GOOD[form](), "ListWorld", SEEDS, 3, engine="asyncio")
    assert by_seed(played) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_a_client_keeps_its_event_loop_over_runs_and_requests_overlap(engine: str) -> None:
    policy = AsyncOne()
    for _ in range(2):
        played = list(collect(policy, "ListWorld", range(12), 12, engine=engine))
        assert not any(t.failure for t in played)
    assert policy.client.most > 1, "chats are asked together"


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        (Remembering, "lockstep"),
        (Remembering, "processes"),
        (RememberingByEpisode, "threads"),
        (RememberingByEpisode, "asyncio"),
    ],
)
def test_reset_receives_each_episode_once(kind: Callable[[], Any], engine: str) -> None:
    policy = kind()
    played = list(collect(policy, "ListWorld", range(6), 4, engine=engine))
    assert not any(t.failure for t in played)
    assert sorted(seed for seed, _ in policy.seeds) == list(range(6))
    assert len({name for _, name in policy.seeds}) == 6


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_return_value_is_named_with_its_remedy(mistake: str) -> None:
    policy, text = WRONG[mistake]
    with pytest.raises(PolicyFault, match=re.escape(text)) as raised:
        rollout(policy, agentgym.make("ListWorld"), 0)
    assert "\n" not in str(raised.value)
    with pytest.raises(CollectionError, match="3 consecutive episodes failed") as stopped:
        list(collect(policy, "ListWorld", range(20), 1))
    assert text in str(stopped.value)
    assert "Traceback" not in str(stopped.value)


@pytest.mark.parametrize("policy", UNCALLABLE)
def test_a_policy_that_takes_no_chats_is_refused_before_it_plays(policy: Any) -> None:
    with pytest.raises(ValueError, match=UNCALLABLE[policy]):
        next(collect(policy, "ListWorld", [0]))


@pytest.mark.parametrize("engine", ["lockstep", "threads"])
def test_an_exception_of_a_policy_costs_one_episode(engine: str) -> None:
    played = list(collect(fails_on(2, 6), "ListWorld", range(9), 4, engine=engine))
    lost = {t.seed: t.failure for t in played if t.failure}
    assert set(lost) == {2, 6}
    assert len(played) == 9
    for cause in lost.values():
        assert cause.endswith("policy fails_on.<locals>.policy raised KeyError: 'no such\\nkey'")
    whole = {t.seed: t.to_json() for t in played if not t.failure}
    plain = {t.seed: t.to_json() for t in collect(PLAY, "ListWorld", range(9))}
    assert whole.items() <= plain.items(), "a batch that fails costs the others nothing"


@pytest.mark.parametrize("engine", ["lockstep", "threads"])
def test_three_in_a_row_stop_the_run_with_the_traceback_and_it_resumes(
    engine: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"engine": engine}
    log = tmp_path / "log.jsonl"
    with pytest.raises(CollectionError) as stopped:
        list(collect(fails_on(3, 4, 5), "ListWorld", range(9), 1, log=log, **options))
    first, *rest = str(stopped.value).splitlines()
    assert first.startswith("3 consecutive episodes failed because of the policy; the last failure")
    assert "raised KeyError: 'no such\\nkey'" in first
    assert rest[0] == "Traceback (most recent call last):"
    assert "own_policies.py" in rest[1], "the traceback begins in the policy"
    assert [t.seed for t in TrajectoryLog(log) if not t.failure] == [0, 1, 2]
    played = list(collect(PLAY, "ListWorld", range(9), 1, log=log, **options))
    assert sorted(t.seed for t in played if not t.failure) == list(range(9))


@pytest.mark.parametrize(
    "env", ["ListWorld", agentgym.spec("ListWorld"), agentgym.make("ListWorld")]
)
def test_rollout_takes_an_env_an_id_or_a_spec(env: Any) -> None:
    (expected,) = collect(PLAY, "ListWorld", [3])
    assert rollout(PLAY, env, 3).steps == expected.steps


def test_swapped_arguments_are_named() -> None:
    env, spec = agentgym.make("ListWorld"), agentgym.spec("ListWorld")
    for play, order in (
        (lambda: rollout(env, PLAY, 0), "policy must be a function"),  # type: ignore[arg-type]
        (lambda: rollout(PLAY, PLAY, 0), r"rollout\(policy, env, seed\)"),  # type: ignore[arg-type]
        (lambda: list(collect(PLAY, PLAY, [0])), r"collect\(policy, env, seeds\)"),
        (lambda: list(collect(spec, PLAY, [0])), r"collect\(policy, env, seeds\)"),
    ):
        with pytest.raises(ValueError, match=order):
            play()
