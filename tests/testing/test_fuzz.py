from __future__ import annotations

import zlib

import pytest

import agentgym
from agentgym.testing import Case, play
from tests import sampling
from tests.cli.test_main import command
from tests.helpers import forgotten_worlds
from tests.sampling import OFFICE

ALL = [entry.id for entry in (*agentgym.worlds(presets=True), *agentgym.teams())]
SLOW = {
    entry.id
    for entry in agentgym.worlds(presets=True)
    if entry.options
    and (
        entry.id in OFFICE
        or "long" in entry.id
        or "extreme" in entry.id
        or entry.options.get("tasks", 0) > 1_000
    )
}
IDS = [pytest.param(i, marks=pytest.mark.exhaustive) if i in SLOW else i for i in ALL]


@pytest.mark.family(env_id=IDS)
def test_nothing_is_found(env_id: str) -> None:
    index = zlib.crc32(f"{sampling.current.seed} {env_id}".encode()) % 1_000
    for k in (index, index + 1):
        report = play(Case(env_id, seed=1, index=k, texts=15))
        assert report.findings == [], report.findings[0].text
        assert report.texts


@pytest.mark.rotation
def test_the_command_shows_a_table() -> None:
    ids = "tests.world.guess_world:GuessWorld", "tests.testing.lawless_worlds:Fragile"
    with forgotten_worlds():
        shown = command("fuzz", *ids, "--texts", "60")
    assert shown.returncode == 1
    assert "ZeroDivisionError" in shown.stdout
    assert "120 texts, 1 distinct faults" in shown.stdout


def test_bad_options_are_one_line() -> None:
    shown = command("fuzz", "NoWorld")
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert "there is no world 'NoWorld'" in shown.stderr
    assert "texts must be an integer" in command("fuzz", "ListWorld", "--texts", "0").stderr
