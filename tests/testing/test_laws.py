from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

import agentgym
from agentgym.cli import app
from agentgym.testing import check_laws, laws
from agentgym.testing.conformance import world_laws
from tests.helpers import forgotten_worlds
from tests.testing import lawless_worlds


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    with forgotten_worlds():
        yield


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


GUESS = "tests.world.guess_world"
BROKEN = [  # each world, with the law that it breaks and the message
    ("PaidForNothing", "doing nothing", "doing nothing scores 1.0"),
    ("Overpaid", "spaces", "^score raised ValueError: Overpaid.score must return .* got 2.0$"),
    ("Odd", "spaces", "^guess raised KeyError: 'odd'$"),
    ("Leaving", "spaces", "SystemExit: 3"),
    ("Wordless", "spaces", "has a field that is not a string"),
    ("HalfTurns", "spaces", "max_turns is 7.5"),
    ("Talkative", "spaces", "200 replies .* did not end the episode"),
    ("Endless", "doing nothing", "set max_turns"),
    ("GloballyRandom", "global generators", "draw from self.rng"),
    ("Unordered", "same bytes", "another process gives different bytes"),
    ("Telltale", "hints use", r"subtask\(\) depends on hidden information"),
    ("Moved", "hints change", "a hint changes the world"),
    ("Misled", "arm none", "the oracle policy scores 0.0"),
    ("Shared", "snapshots", "continues differently"),
    ("Fragile", "hostile", "ZeroDivisionError"),
]


@pytest.mark.parametrize(("world", "law", "reason"), BROKEN)
def test_a_world_that_breaks_a_law_is_found(
    world: str, law: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laws, "MOST_REPLIES", 200)
    (result,) = check_laws(f"{lawless_worlds.__name__}:{world}", 3, law)
    assert result.verdict == "broken"
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(result.reason)
    assert world in result.line


UNDECLARED = [  # each class that no env can be made from, and the message
    ("Undocumented", "TypeError: the tool Undocumented.look needs a docstring"),
    ("Undefaulted", "TypeError: .* missing 1 required positional argument: 'size'"),
    ("Plain", "TypeError: must be called with a dataclass"),
]


@pytest.mark.parametrize(("world", "reason"), UNDECLARED)
def test_a_world_that_cannot_be_made_is_an_error_of_one_line(world: str, reason: str) -> None:
    env_id = f"{lawless_worlds.__name__}:{world}"
    with pytest.raises(ValueError, match=f"^{env_id} cannot be created: {reason}") as raised:
        list(check_laws(env_id))
    assert "environment creator" not in str(raised.value)
    assert run("check", env_id).exit_code == 2


def test_an_endless_world_skips_the_laws_that_play_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(laws, "MOST_REPLIES", 200)
    results = list(check_laws(f"{lawless_worlds.__name__}:Talkative", 1))
    assert [result.verdict for result in results[:2]] == ["holds", "broken"]
    later = {result.reason for result in results[2:]}
    assert later == {"episodes do not end"}


def test_the_line_of_check_env_makes_an_unregistered_world() -> None:
    (result,) = check_laws(f"{lawless_worlds.__name__}:Shared", 1, "check_env")
    made = result.line.removeprefix("check_env(").removesuffix(".unwrapped)")
    with forgotten_worlds():
        assert "Shared" in str(eval(made, {"agentgym": agentgym}))


def test_the_line_of_a_broken_law_shows_it() -> None:
    (result,) = check_laws(f"{lawless_worlds.__name__}:Misled", 3, "arm none")
    names = {"agentgym": agentgym, "rollout": laws.rollout, "OraclePolicy": laws.OraclePolicy}
    code = compile(
        f"{result.line.replace('; ', chr(10)).replace('rollout(', 'it = rollout(')}", "", "exec"
    )
    exec(code, names)
    assert names["it"].reward == 0.0  # type: ignore[attr-defined]


@pytest.mark.rotation
def test_a_world_without_hooks_is_checked_as_far_as_it_goes() -> None:
    results = {result.name: result for result in check_laws(f"{GUESS}:GuessWorld", 2)}
    assert set(results) == {law.name for law in world_laws()}
    verdicts = [result.verdict for result in results.values()]
    assert "broken" not in verdicts
    assert verdicts.count("holds") == 9
    arm = results["the oracle solves and labels fit, arm SP"]
    needed = ["read_task", "read_result", "optimal_calls", "state", "read_state", "subtask"]
    assert {error.hook for error in arm.missing} == {*needed, "read_subtask"}
    assert all("an example is in agentgym/envs/" in str(error) for error in arm.missing)


def test_the_command() -> None:
    shown = run("check", f"{GUESS}:WholeGuessWorld", "--only", "dialect")
    assert (shown.exit_code, "3 laws hold, 0 broken" in shown.output) == (0, True)
    shown = run("check", f"{GUESS}:GuessWorld", "--only", "arm SP")
    assert shown.exit_code == 0
    assert shown.output.count("oracles='P' needs GuessWorld.subtask(with_state)") == 1
    shown = run("check", f"{lawless_worlds.__name__}:PaidForNothing", "--only", "doing nothing")
    assert shown.exit_code == 1
    assert "env.step('I would rather not.')" in shown.output
    for words, error in [
        (("NoWorld",), "there is no world 'NoWorld'"),
        (("ListWorld", "--only", "gravity"), "no law has a name that contains 'gravity'"),
        (("ListWorld-team",), "ListWorld-team is a team"),
    ]:
        shown = run("check", *words)
        assert (shown.exit_code, error in shown.output) == (2, True)
