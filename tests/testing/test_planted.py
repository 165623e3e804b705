"""The fuzzer finds, shortens and replays every kind of planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agentgym.testing import Campaign, Case, Finding, play
from agentgym.testing.campaign import shorten
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


@pytest.mark.rotation
def test_a_campaign_counts_and_shortens_what_it_finds() -> None:
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
    assert (found.kind, len(found.case.actions or ())) == ("raise", 1)
    assert [each.mark for each in play(found.case).findings] == [found.mark]
    cured = replace(found, case=replace(found.case, actions=["hm", "hello"]))
    assert shorten(cured) is cured, "another last reply is not the cause"


def test_the_same_case_plays_the_same_episode() -> None:
    one, two = (play(Case("ListWorld", seed=3, index=2)) for _ in range(2))
    assert one.actions == two.actions
    assert one.marks == two.marks
    assert play(Case("ListWorld", seed=4, index=2)).actions != one.actions
