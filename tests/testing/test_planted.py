"""The fuzzer finds, reduces and replays every kind of planted fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.testing import (
    Campaign,
    Case,
    Finding,
    minimize,
    play,
    read_findings,
    replay,
    replay_findings,
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
def test_a_campaign_counts_and_writes_what_it_finds(tmp_path: Path) -> None:
    ids = [planted_id(SoundWorld), planted_id(RaisingWorld)]
    out = tmp_path / "findings.jsonl"
    campaign = Campaign(ids, texts=80, out=out)
    campaign.run()
    sound, raising = campaign.tallies.values()
    assert (sound.causes, len(raising.causes)) == ({}, 1)
    assert sound.texts >= 80
    _, header, rows = campaign.table()
    assert [row[0] for row in rows] == ids
    assert len(header) == len(rows[0])
    (record,) = read_findings(out)
    assert (record.kind, record.minimal, record.reproduced) == ("raise", True, True)
    assert [again is not None for _, again in replay_findings([record])] == [True]


@pytest.mark.parametrize("line", [b"{}", b"3", b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 100_000])
def test_a_line_without_a_finding_is_named(line: bytes, rare: Finding, tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    path.write_bytes(rare.to_json().encode() + b"\n" + line + b"\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 2: ")):
        read_findings(path)


def test_a_record_holds_any_text(rare: Finding) -> None:
    """JSON would read two adjacent surrogates as one character."""
    texts = ["\ud83d\ude00", "\ud800", "a\x00b", "\U0001f600", "\\ud800"]
    case = replace(rare.case, actions=texts)
    again = Finding.from_json(replace(rare, case=case).to_json())
    assert again.case.actions == texts
    with pytest.raises(ValueError, match="no record of a finding"):
        Finding.from_json("{}")


def test_the_same_case_plays_the_same_episode() -> None:
    one, two = (play(Case("ListWorld", seed=3, index=2)) for _ in range(2))
    assert one.actions == two.actions
    assert one.marks == two.marks
    assert play(Case("ListWorld", seed=4, index=2)).actions != one.actions
