from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agentgym.testing import Campaign, Case, Finding, play
from agentgym.testing.campaign import shorten
from tests.helpers import forgotten_worlds
from tests.testing import lawless_worlds

SOUND = "tests.world.guess_world:GuessWorld"
# The worlds with the laws that they break; the fuzzer must report at least one of these laws.
PLANTED = {
    "Fragile": {"raise"},
    "Leaving": {"raise"},
    "Noted": {"raise"},
    # The env rejects an invalid score and reports the scorer's fault.
    "Overpaid": {"raise", "result"},
    "HalfDone": {"state"},
    "Shared": {"repeat"},
    "Forgetful": {"copy"},
}
# With seeds 0 to 3, the fuzzer finds each fault within 6 episodes, or within 152 episodes if only one
# kind of character in one argument causes the fault.
EPISODES, RARE_EPISODES = 30, 300


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    with forgotten_worlds():
        yield


def planted(world: str) -> str:
    return f"{lawless_worlds.__name__}:{world}"


def findings(env_id: str, episodes: int) -> Iterator[Finding]:
    for index in range(episodes):
        yield from play(Case(env_id, index=index)).findings


@pytest.mark.rotation(world=list(PLANTED))
def test_a_planted_fault_is_found(world: str) -> None:
    episodes = RARE_EPISODES if world == "Noted" else EPISODES
    assert any(each.kind in PLANTED[world] for each in findings(planted(world), episodes))


def test_a_sound_world_has_no_finding() -> None:
    assert list(findings(SOUND, EPISODES // 2)) == []


@pytest.mark.rotation
def test_a_campaign_counts_and_shortens_what_it_finds() -> None:
    ids = [SOUND, planted("Fragile")]
    campaign = Campaign(ids, texts=80)
    campaign.run()
    sound, fragile = campaign.tallies.values()
    assert (sound.causes, len(fragile.causes)) == (set(), 1)
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
