from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentgym import Chat, Reply, ToolCall, make, tool_env
from agentgym.envs.agentlongbench import SETTINGS, TASKS
from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.logs import within
from agentgym.envs.agentlongbench.qa_world import LongContextQA
from agentgym.envs.agentlongbench.rows import make_log, make_rows
from agentgym.envs.agentlongbench.scoring import form, last_tag, metric, read, score
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import PolicyError
from agentgym.text.tokens import counter
from agentgym.training.papers import agentlongbench as longbench
from agentgym.training.papers import agentlongbench_files as files
from agentgym.training.papers.agentlongbench_files import Plan
from agentgym.training.rollout import DamagedFileError, RunLock, RunLockedError, rollout
from tests.cli.test_main import command
from tests.helpers import play, say, start

PAIR = ["Item_ABCD", "Item_EFGH"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "7", 7),
        ("int", "Round 5 (BST 1,680)", 1680),
        ("int", "3.9", 3),
        ("int", "-2", -2),
        ("int", "none", None),
        ("int", "1" * 99, None),
        ("bool", "Yes", True),
        ("bool", "yes, no doubt", False),
        ("bool", "It appears in both.", True),
        ("bool", "7", None),
        ("name", "Mr. Mime", "Mr. Mime"),
        ("name", "The answer is: **Ho-Oh**", "Ho-Oh"),
        ("name", "", None),
        ("name", "a, b", None),
        ("pair", "0613 and 0104", ["0613", "0104"]),
        ("pair", "1. Iron Leaves\n2. Tapu Koko", ["Iron Leaves", "Tapu Koko"]),
        ("pair", "['a', \"b\"]", ["a", "b"]),
        ("pair", "a", ["a"]),
        ("pair", "a, b, c", None),
        ("list", '```json\n["Abra", "Absol"]\n```', ["Abra", "Absol"]),
        ("list", "[0613, 0104]", ["0613", "0104"]),
        ("list", "- Abra\n- Absol", ["Abra", "Absol"]),
        ("list", "[", []),
    ],
)
def test_answers_are_read(kind: str, text: str, value: Any) -> None:
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "answer", "text", "points"),
    [
        ("pair", PAIR, "Item_ABCD and Item_EFGH", 1.0),
        ("pair", PAIR, "item abcd, ITEM-EFGH", 1.0),
        ("pair", PAIR, "Item_ABCD", 0.5),
        ("pair", PAIR, "Item_ABCD and Item_XXXX", 0.0),
        ("pair", PAIR, "Item_EFGH and Item_ABCD", 0.0),
        ("pair", PAIR, "Item_XXXX and Item_ABCD", 0.0),
        ("name", "Flabébé", "flabebe", 1.0),
        ("name", "Flabébé", "Flaaffy", 0.0),
        ("list", ["a1", "b1"], "B1, A1", 1.0),
        ("list", ["a1", "b1"], "a1", 2 / 3),
        ("list", ["a1", "b1"], "a1, a1, a1", 2 / 3),
        ("list", ["a1", "b1"], "c1", 0.0),
        ("int", 3, "3", 1.0),
        ("int", 1, "yes", 0.0),
        ("bool", False, "no", 1.0),
        ("bool", True, "no", 0.0),
    ],
)
def test_answers_are_scored(kind: str, answer: Any, text: str, points: float) -> None:
    assert score(kind, answer, read(kind, text)) == pytest.approx(points)


def test_the_last_tag_counts_and_none_is_wrong() -> None:
    assert last_tag("<answer>1</answer> no, <ANSWER>\n2 </ANSWER>") == "2"
    assert last_tag("<answer>1") is None
    assert score("int", 0, None) == 0.0
    assert [
        metric(task, "verbose")
        for task in ("intersection", "find_target_offsets_tool", "count_frequency_env")
    ] == ["f1", "ordered pair", "accuracy"]
    assert {form(task, style) for task in TASKS for style in ("concise", "verbose")} == (
        {"int", "bool", "pair", "list", "name"}
    )


PLAN = Plan(settings=("ki-c", "kf-v"), lengths=("16384",), samples=2, seed=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    assert sum(rows for *_, rows in files.write(PLAN, folder, counter("heuristic"))) == 2 * 2 * 8
    return folder


def replies(data: Path, out: Path, change: Any = lambda row: row["answer"]) -> Path:
    for path in data.glob("*/*/*/*.jsonl"):
        target = out / path.relative_to(data)
        target.parent.mkdir(parents=True, exist_ok=True)
        rows = map(json.loads, path.read_text().splitlines())
        lines = [
            {"id": row["id"], "raw_response": f"<answer>{change(row)}</answer>"} for row in rows
        ]
        target.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def test_the_layout_is_the_published_one_and_a_second_run_changes_nothing(data: Path) -> None:
    names = {
        str(path.relative_to(data / "ki-c" / "16384"))
        for path in (data / "ki-c" / "16384").glob("*/*")
    }
    assert "tool_response/find_duplicates_tool.jsonl" in names
    assert "env_response/weighted_summation_env.jsonl" in names
    assert "final_guess/intersection.jsonl" in names
    assert len(names) == 8
    before = {path: path.read_bytes() for path in data.rglob("*.jsonl")}
    assert [rows for *_, rows in files.write(PLAN, data, counter("heuristic"))] == [0, 0]
    assert {path: path.read_bytes() for path in data.rglob("*.jsonl")} == before
    assert not list(data.rglob("*.part"))
    row = json.loads(
        (data / "kf-v/16384/final_guess/intersection.jsonl").read_text().splitlines()[1]
    )
    (again,) = make_rows("kf-v", 16384, 1, {"intersection": 2}, 5, counter("heuristic"))
    assert json.loads(json.dumps(again)) == row


@pytest.mark.rotation
def test_right_answers_score_1_and_missing_or_doubled_ones_count_once(
    data: Path, tmp_path: Path
) -> None:
    outcomes = files.score_folder(data, replies(data, tmp_path / "right"))
    assert len(outcomes) == 32
    assert all(each.score == 1.0 and each.answered for each in outcomes)
    file = tmp_path / "right/ki-c/16384/env_response/count_frequency_env.jsonl"
    first, _ = file.read_text().splitlines()
    file.write_text(f"{first}\n" * 3)
    scores = [
        each.score
        for each in files.score_folder(data, tmp_path / "right")
        if each.task == "count_frequency_env"
    ]
    assert sorted(scores) == [0.0, 1.0, 1.0, 1.0]
    assert all(
        each.score == 0 and not each.answered
        for each in files.score_folder(data, tmp_path / "nothing")
    )
    with pytest.raises(ValueError, match=r"has no rows; give an AgentLongBench JSONL file"):
        files.score_folder(tmp_path / "empty", data)


def test_a_policy_answers_and_goes_on_where_it_was(data: Path, tmp_path: Path) -> None:
    asked: list[Chat] = []

    def policy(chats: Any) -> list[Reply]:
        asked.extend(chats)
        return [Reply("I say <answer>7</answer>") for _ in chats]

    assert list(files.answer(data, tmp_path, policy)) == [""] * len(asked) == [""] * 32
    assert list(files.answer(data, tmp_path, policy)) == [""] * 32
    assert len(asked) == 32
    assert asked[0].messages[-1].role == "user"
    assert re.search(r"Remaining rounds: [0-9]+\n\n.*<answer>", asked[0].messages[-1].text)
    assert len(files.score_folder(data, tmp_path)) == 32


def test_rows_without_a_reply_are_named_and_asked_again(data: Path, tmp_path: Path) -> None:
    def policy(chats: Any) -> list[Reply]:
        asked.append(chats)
        if len(asked) % 5 == 0:
            raise PolicyError("server error 500")
        return [Reply("<answer>7</answer>")]

    asked: list[Any] = []
    causes = list(files.answer(data, tmp_path, policy))
    assert [k for k, cause in enumerate(causes, 1) if cause] == [5, 10, 15, 20, 25, 30]
    assert set(causes) == {"", "server error 500"}
    asked = []
    assert sum(map(bool, files.answer(data, tmp_path, policy))) == 1
    assert len(asked) == 6

    def silent(chats: Any) -> list[Reply]:
        raise PolicyError("down")

    with pytest.raises(PolicyError, match="down"):
        list(files.answer(data, tmp_path / "b", silent))


def test_answers_have_one_writer_and_a_damaged_one_is_named(data: Path, tmp_path: Path) -> None:
    out = replies(data, tmp_path / "a")
    with RunLock(out), pytest.raises(RunLockedError, match="is being written by process"):
        list(files.answer(data, out, lambda chats: []))
    path = sorted(out.glob("*/*/*/*.jsonl"))[0]
    path.write_bytes(b'{"id": \n' + path.read_bytes())
    with pytest.raises(DamagedFileError, match=r"jsonl, line 1: it is no answer to a row .*doctor"):
        files.score_folder(data, out)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"3", "the file: Input should be an object"),
        (b"[" * 10_000, "Invalid JSON: recursion limit"),
        (b"\xff", "Invalid JSON"),
        (b"{}", "id: Field required"),
        (b'{"id": 0, "setting": "ki"}', "setting: Input should be 'ki-c'"),
    ],
)
def test_a_malformed_row_of_answers_is_named(
    data: Path, tmp_path: Path, line: bytes, words: str
) -> None:
    folder = tmp_path / "rows"
    shutil.copytree(data, folder)
    path = sorted(folder.glob("*/*/answers.jsonl"))[0]
    rows = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([rows[0], line, *rows[1:]]))
    with pytest.raises(DamagedFileError, match=rf"answers.jsonl, line 2: it is no row .*{words}"):
        longbench.score_folder(folder, tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedFileError, match=r"answers.jsonl: it must be a file"):
        longbench.score_folder(folder, tmp_path)


def test_the_report_has_tables_and_a_heat_map(data: Path, tmp_path: Path) -> None:
    outcomes = files.score_folder(data, replies(data, tmp_path / "a"))
    tables = longbench.write_report(outcomes, tmp_path)
    assert (tmp_path / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 32
    assert "| concise | tool | 16,384 | 6 |" in (tmp_path / "summary.md").read_text()
    scores, contexts = tables
    assert len(scores[2]) == 16
    assert scores[2][0][4] == "100.0 [34.2, 100.0]"
    by_hand = [
        each.acl_scan for each in outcomes if (each.setting, each.task[-4:]) == ("ki-c", "_env")
    ]
    row = next(line for line in contexts[2] if line[:2] == ["concise", "environment"])
    assert row[4] == f"{sum(by_hand) / len(by_hand):,.1f}"
    figure = longbench.heatmap_figure(longbench.cells(outcomes))
    assert [panel.get_title() for panel in figure.axes[:2]] == ["ki-c", "kf-v"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["100"] * 8


def test_wrong_plans_are_refused() -> None:
    for options, message in {
        (
            "settings",
            ("ki-x",),
        ): r"settings must be .*one of ki-c, ki-v, kf-c, kf-v, got \('ki-x',\)",
        (
            "lengths",
            ("33k",),
        ): "lengths must be among 32k, 64k, .*, or numbers of tokens, got '33k'",
        ("tasks", ("sum",)): r"tasks must be .*one of count_frequency_tool, .*, got \('sum',\)",
        ("samples", 0): r"samples must be an integer in \[1, 100000\], got 0",
    }.items():
        with pytest.raises(ValueError, match=message):
            Plan(**dict([options]))  # type: ignore[arg-type]

    assert Plan(lengths=("1m", "32K", "4M", "900")).lengths == ("1M", "32k", "4M", "900")


@pytest.mark.rotation
def test_the_commands_run(tmp_path: Path) -> None:
    options = "--lengths 16384 --settings kf-v --samples 1 --tokens heuristic".split()
    assert "wrote 8 rows" in command("longbench", "write", str(tmp_path / "d"), *options).stdout
    replies(tmp_path / "d", tmp_path / "a")
    scored = command(
        "longbench", "score", str(tmp_path / "d"), str(tmp_path / "a"), "--out", str(tmp_path / "o")
    )
    assert "100.0" in scored.stdout
    log = tmp_path / "t.jsonl"
    assert command("rollout", "LongContextQA", "--episodes", "2", "--out", str(log)).returncode == 0
    assert (
        "Find Target"
        in command("longbench", "report", str(log), "--out", str(tmp_path / "r")).stdout
    )
    assert (tmp_path / "r" / "heatmap.png").exists()
    wrong = command("longbench", "write", str(tmp_path / "d"), "--lengths", "9z")
    assert wrong.returncode == 2
    assert "error: lengths must be among" in wrong.stderr


@pytest.mark.parametrize("delivery", ["pages", "task"])
@pytest.mark.parametrize("setting", list(SETTINGS))
def test_every_task_is_solved_in_every_setting(setting: str, delivery: str) -> None:
    for seed, task in enumerate(TASKS):
        options: dict[str, Any] = {
            **SETTINGS[setting],
            "task": task,
            "delivery": delivery,
            "labels": True,
        }
        for arm in ("", "SPH"):
            trajectory = rollout(
                OraclePolicy("LongContextQA"), make("LongContextQA", oracles=arm, **options), seed
            )
            assert trajectory.reward == 1.0
            assert all(step.info["optimal"] for step in trajectory.steps)
        outcome = files.outcome(trajectory)
        assert (outcome.setting, outcome.task, outcome.answered) == (setting, task, True)
        assert 0 < outcome.acl_min <= outcome.acl_scan


def test_only_pages_with_evidence_are_worth_reading() -> None:
    env = tool_env(make("LongContextQA", task="count_correctness_env", rounds=30, page=4))
    env.reset(seed=3)
    world: Any = env.world
    number = world.question.spec.i
    assert [call.arguments["page"] for call in world.optimal_calls()] == [(number - 1) // 4 + 1]
    other = 1 if number > 4 else 2
    outcome = play(env, ToolCall("read_log", {"page": other}))
    assert f"Round {4 * other - 3}: Guess" in outcome.text
    assert f"Round {4 * other + 1}: Guess" not in outcome.text
    assert "Pages read: " + str(other) in world.state()
    assert (
        play(env, ToolCall("read_log", {"page": 9})).text
        == "error: page must be from 1 to 8, got 9"
    )
    assert (
        "error: the answer must be a whole number"
        in play(env, ToolCall("answer", {"value": "many"})).text
    )
    assert say(env, f"<answer>{world.question.answer}</answer>").reward == 1.0


def test_a_page_that_was_cut_was_not_read() -> None:
    world = LongContextQA(QAConfig(task="find_duplicates_tool"), 1)
    world.generate()
    seen = LongContextQA.read_task(world.task())
    page = seen.optimal_calls()[0].arguments["page"]
    text = world.read_page(page)
    seen.read_result(ToolCall("read_log", {"page": page}), text[: len(text) // 3] + " …")
    assert page not in seen.pages
    seen.read_result(ToolCall("read_log", {"page": page}), text)
    assert page in seen.pages


@pytest.mark.parametrize("steps", [2, 3, 4, 64])
def test_at_horizon_gives_questions_that_take_that_many_turns(steps: int) -> None:
    world = LongContextQA(
        QAConfig(**LongContextQA.config_for_horizon(steps), budget_factor=1.0, budget_slack=0), 3
    )
    world.generate()
    assert world.max_turns == steps
    with pytest.raises(ValueError, match=r"horizon must be an integer in \[2, 10001\], got 1"):
        LongContextQA.config_for_horizon(1)


def test_short_logs_that_isolate_are_drawn_until_one_does() -> None:
    for seed in range(30):
        world = LongContextQA(QAConfig(task="intersection", rounds=5), seed)
        world.generate()
        assert (
            within(
                [places for each in world.log.rounds for places in each.lists], len(world.log.table)
            ).sum()
            == 1
        )
    with pytest.raises(
        ValueError,
        match=r"cannot generate a log of 3 rounds; increase the length, or use a min_list below 75",
    ):
        LongContextQA(QAConfig(task="intersection", rounds=3, items=300, min_list=75), 0).generate()


def test_menu_features_and_texts_of_other_worlds() -> None:
    world: Any = start("LongContextQA", seed=1).world
    assert len(world.action_catalog()) == 5
    assert world.features().shape == (9,)
    with pytest.raises(
        ValueError, match="does not determine the number of pages; set rounds and length=0"
    ):
        LongContextQA(QAConfig(length=5_000), 0).action_catalog()
    for bad in ("", "The question: what?\nTurn budget: 3"):
        with pytest.raises(ValueError, match="this is not a task of LongContextQA"):
            LongContextQA.read_task(bad)
    with pytest.raises(ValueError, match="cannot parse a question in"):
        LongContextQA.read_task(
            "The log has 3 rounds on 1 pages of 3;\n\nThe question: what?\nTurn budget: 3"
        )
    with pytest.raises(ValueError, match="this is not a state of LongContextQA"):
        world.read_state("Turns left: x")


def test_the_evidence_of_the_paper_has_its_length() -> None:
    """For concise logs at 128K, the paper's table 2 lists 3,041 and 2,044 tokens of evidence."""
    log = make_log("ki-c", 131_072, 0, 0, counter("cl100k_base"))
    mean = sum(each.tokens for each in log.rounds[1:]) / (len(log.rounds) - 1)
    assert 1_000 < mean < 5_000
