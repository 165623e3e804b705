from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

import agentgym
from agentgym.training.evaluation.ablation import cells_of
from agentgym.training.evaluation.study_folder import column_of
from agentgym.training.evaluation.submission import Submission
from agentgym.training.evaluation.tables import MIN_EPISODES

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "results_page.py"))
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
OWN = json.loads(SCRIPT["PROFILES"].read_text(encoding="utf-8"))["seconds"]
FILES = sorted(set((ROOT / "docs" / "results").glob("*.json")) - {SCRIPT["PROFILES"]})


def test_the_page_is_what_the_files_say() -> None:
    assert SCRIPT["page"]() == PAGE, "run `python docs/build_results.py`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_is_a_complete_submission(path: Path) -> None:
    submission = Submission.load(path)
    assert submission.to_json() == path.read_text(encoding="utf-8")
    assert submission.commit or path.stem not in OWN  # unknown if agentgym was installed by pip
    expected = {}
    for run in submission.runs:
        assert run["seeds"] >= MIN_EPISODES
        assert all(
            {**run["options"].get("", {}), **run["options"].get(world, {})}["split"] == "test"
            for world in run["worlds"]
        )
        for cell in cells_of(run, column_of(run)):
            key = cell.policy, cell.world, cell.arm, cell.context, cell.horizon
            expected[key] = expected.get(key, 0) + 1
    found = {(c.policy, c.world, c.arm, c.context, c.horizon): c.episodes for c in submission.cells}
    assert found == expected
    for cell in submission.cells:
        assert 0 <= cell.solved + cell.lost <= cell.episodes
        assert 0 <= cell.unreadable <= cell.replies
        assert cell.policy != "oracle" or cell.solved == cell.episodes
    assert {column_of(run) for run in submission.runs} == submission.policies.keys()


def test_the_tables_hold_every_rate() -> None:
    """Check that each world's rounded success rates on the page match the submitted cells."""
    shown: dict[str, list[int]] = {}
    for section in re.split(r"\n(?=##)", PAGE):
        if section.startswith("### "):
            rates = re.findall(r"(?<=\| )(\d+) \[\d+,\s\d+\]", section)
            shown[section[4:].split("\n")[0]] = sorted(map(int, rates))
    expected: dict[str, list[int]] = {}
    for path in FILES:
        for cell in Submission.load(path).cells:
            world = SCRIPT["plain"](cell.world).partition("-")[0]
            rates_of = expected.setdefault(world, [])
            if cell.policy != "oracle":
                rates_of.append(round(100 * cell.solved / cell.episodes))
    assert shown == {world: sorted(rates) for world, rates in expected.items()}


def test_other_peoples_names_arms_and_settings_are_shown() -> None:
    submission = Submission.load(ROOT / "docs" / "results" / "ListWorld.json")
    world, policy = "agentgym/ListWorld-v0", {**submission.runs[0]["policy"], "label": "a|b<i>"}
    changes = {"worlds": [world], "arms": ["P_"], "shots": 2, "policy": policy}
    changes |= {"axis": SCRIPT["FIXED"], "horizons": [90_000]}
    cell = replace(
        submission.cells[0], world=world, arm="P_", policy="a|b<i>", horizon=90_000, lost=3
    )
    other = replace(submission, runs=[{**submission.runs[0], **changes}], cells=[cell])
    heading, shown = SCRIPT["scores"]({"theirs": other}, {})
    assert heading == "### ListWorld"
    for text in ("| P_ |", "shots=2", "max_result_chars=90000", r"a\|b&lt;i> (theirs)", "(3 lost)"):
        assert text in shown
    assert "control = control:planning=0.1" in SCRIPT["listing"]({"theirs": other}, {})


def test_a_run_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_bytes(FILES[0].read_bytes())
    monkeypatch.setitem(SCRIPT["page"].__globals__, "FILES", tmp_path)
    with pytest.raises(ValueError, match=r"one.json and two.json are of the same run; delete"):
        SCRIPT["page"]()


def test_every_world_and_preset_is_measured_or_listed() -> None:
    without = "\n".join(SCRIPT["unmeasured"]({}))
    for entry in agentgym.worlds(presets=True):
        world, _, preset = SCRIPT["short"](entry).partition("-")
        if entry.path.startswith("agentgym.envs."):
            line = next(line for line in without.split("\n") if re.search(rf"\b{world}\b", line))
            assert not preset or re.search(rf"[ :]{re.escape(preset)}[,.]", line)
            assert f"### {world}\n" in PAGE or re.search(rf"\b{world}\b.*no preset", PAGE)
        else:  # worlds of other packages
            assert not re.search(rf"\b{world}\b", without)
