"""The fuzzer finds, reduces and replays every kind of planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agentgym.testing import (
    Campaign,
    Case,
    Finding,
    minimize,
    play,
    replay,
)
from tests.testing.planted_worlds import (
    PLANTED,
    RaisingWorld,
    RareWorld,
    SoundWorld,
    planted_id,
)

# Episodes of forty replies that suffice to find a fault: over seeds 0 to 3, at most 44. The ids of
# the worlds are part of the draw.
EPISODES = 150
# The same for a fault that needs one kind of character in one argument. Over seeds 0 to 3, one
# episode in 50 finds it (16 of 800).
RARE_EPISODES = 250


def findings(world: type[SoundWorld], episodes: int) -> Iterator[Finding]:
    for index in range(episodes):
        yield from play(Case(planted_id(world), index=index)).findings


@pytest.mark.rotation(world=list(PLANTED))
def test_a_planted_fault_is_found(world: type[SoundWorld]) -> None:
    episodes = RARE_EPISODES if world is RareWorld else EPISODES
    assert any(finding.kind in PLANTED[world] for finding in findings(world, episodes))


def test_a_sound_world_has_no_finding() -> None:
    assert list(findings(SoundWorld, EPISODES)) == []


@pytest.fixture(scope="module")
def rare() -> Finding:
    return next(findings(RareWorld, RARE_EPISODES))


@pytest.mark.rotation
def test_a_finding_is_cut_down_to_one_short_reply(rare: Finding) -> None:
    smallest = minimize(rare, play)
    assert (smallest.minimal, smallest.reproduced) == (True, True)
    (reply,) = smallest.case.actions or ()
    assert len(reply) < 120
    assert "RuntimeError: the layout of the text failed" in smallest.text


def test_what_was_cured_is_not_found_again(rare: Finding) -> None:
    assert replay(rare, play) is not None
    assert replay(replace(rare, case=replace(rare.case, id=planted_id(SoundWorld))), play) is None
    cured = replace(rare, case=replace(rare.case, actions=["hello"]))
    assert minimize(cured, play).reproduced is False


@pytest.mark.rotation
def test_a_campaign_counts_and_reduces_what_it_finds() -> None:
    ids = [planted_id(SoundWorld), planted_id(RaisingWorld)]
    campaign = Campaign(ids, texts=80)
    campaign.run()
    sound, raising = campaign.tallies.values()
    assert (sound.causes, len(raising.causes)) == ({}, 1)
    assert sound.texts >= 80
    _, header, rows = campaign.table()
    assert [row[0] for row in rows] == ids
    assert len(header) == len(rows[0])
    (found,) = campaign.findings
    assert (found.kind, found.minimal, found.reproduced) == ("raise", True, True)


def test_the_same_case_plays_the_same_episode() -> None:
    one, two = (play(Case("ListWorld", seed=3, index=2)) for _ in range(2))
    assert one.actions == two.actions
    assert one.marks == two.marks
    assert play(Case("ListWorld", seed=4, index=2)).actions != one.actions
