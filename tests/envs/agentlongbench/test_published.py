from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentgym import Chat, Reply, make, tool_env
from agentgym.envs.agentlongbench import FULL, TASKS
from agentgym.envs.agentlongbench.published import load_rows, retriever
from agentgym.envs.agentlongbench.rows import TARGETS, make_rows
from agentgym.envs.agentlongbench.scoring import form
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import PolicyError
from agentgym.text.tokens import counter
from agentgym.training.papers.agentlongbench_files import answer, score_folder
from agentgym.training.rollout import rollout
from tests.envs.agentlongbench.puzzle_reader import Reader

ALL = dict.fromkeys(TASKS, 10**6)
FIELDS = ("id", "sample_id", "question_type", "messages", "question", "answer")
ROUNDS = ("round", "i_round", "j_round")
NAMES = ("target_name", "pokemon_name", "guess_name", "property_value")


def strip(row: dict[str, Any], wording: str = "") -> dict[str, Any]:
    kept = {key: row[key] for key in (*FIELDS, *ROUNDS, *NAMES) if key in row}
    return {**kept, "question": wording or row["question"]}


def write(folder: Path, row: dict[str, Any], setting: str, line: dict[str, Any]) -> Path:
    path = folder / setting / "32k" / TARGETS[row["task"]] / f"{row['task']}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return path


@cache
def made(setting: str, *, published: bool = False) -> list[dict[str, Any]]:
    return list(make_rows(setting, 16_384, 0, ALL, 1, counter("heuristic"), published=published))


def as_in_the_figures(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages in the format of the paper's figures 13 and 14."""
    messages = [{**m, "content": m["content"].replace("\n  - ", "\n - ")} for m in row["messages"]]
    return [*messages[1:], {"role": "assistant", "content": "<answer>Darkrai</answer>"}]


@pytest.fixture(scope="module", params=["own", "other"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows with agentgym's questions, or with the uninformative question `What is asked?`."""
    folder = tmp_path_factory.mktemp(request.param)
    for setting in FULL:
        for row in made(setting, published=request.param == "other"):
            line = strip(row)
            if request.param == "other":
                line = {**strip(row, "What is asked?"), "messages": as_in_the_figures(row)}
            write(folder, row, setting, line)
    return folder


def asked(world: Any) -> str:
    return str(world.restate()).rpartition("The question: ")[2].rpartition("In full: ")[2]


def test_an_oracle_solves_every_row_and_agrees_with_an_independent_reader(data: Path) -> None:
    rows = load_rows(str(data))
    assert len(rows) == 4 * 8
    for number, row in enumerate(rows):
        arm, delivery = ("", "SPH")[number % 2], ("task", "pages")[number % 3 > 0]
        env = make("LongContextQA", data=str(data), row=number, oracles=arm, delivery=delivery)
        assert rollout(OraclePolicy("LongContextQA"), env, 0).reward == 1.0, (row.path, row.line)
        world: Any = tool_env(env).world
        messages = json.loads(json.dumps(row.read()["messages"]).replace("\\n - ", "\\n  - "))
        told = Reader(messages).answer(row.fields["question_type"], asked(world))
        assert told == row.fields["answer"]
        assert world.report()["setting"] == row.setting == row.path.parts[-4]
        assert world.report()["length"] == 32 * 1024


def test_labels_match_the_evidence_and_doing_nothing_scores_0(data: Path) -> None:
    env = make("LongContextQA", data=str(data), labels=True, context="clear_results+retrieval")
    for seed in range(8):
        trajectory = rollout(OraclePolicy("LongContextQA"), env, seed)
        assert trajectory.reward == 1.0
        assert all(step.info["optimal"] for step in trajectory.steps)
        env.reset(seed=seed)
        *_, info = env.step("Nothing.")
        assert not info["optimal"]
        assert tool_env(env).world.score() == 0.0


def test_a_row_whose_answer_does_not_follow_has_no_oracle_and_says_so(tmp_path: Path) -> None:
    row, other = (made("kf-v", published=published)[0] for published in (False, True))
    # A published answer may count an additional list that the prompt does not contain.
    wrong = {**strip(row, "How often?"), "answer": row["answer"] + 1}
    path = write(tmp_path, row, "kf-v", wrong)
    write(tmp_path, row, "kf-v", {**strip(other, "How often?"), "id": "other"})
    reason = rf"{re.escape(str(path))}, line 1: no oracle exists, .* verified=True"
    for options in ({"oracles": "S"}, {"oracles": "P", "row": 0}, {"shots": 1}):
        with pytest.raises(ValueError, match=reason):
            make("LongContextQA", data=str(tmp_path), **options)
    make("LongContextQA", data=str(tmp_path), oracles="S", row=1)
    env = make("LongContextQA", data=str(tmp_path), row=0, labels=True)
    with pytest.raises(PolicyError, match="no oracle exists, because LongContextQA cannot parse"):
        rollout(OraclePolicy("LongContextQA"), env, 0)
    env.reset(seed=0)
    *_, info = env.step(f"<answer>{wrong['answer']}</answer>")
    assert info["optimal"] is None
    assert tool_env(env).world.score() == 1.0
    verified = make("LongContextQA", data=str(tmp_path), oracles="S", verified=True)
    assert rollout(OraclePolicy("LongContextQA"), verified, 3).reward == 1.0


def broken(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], str]:
    def text(row: dict[str, Any]) -> str:
        change(row)
        return json.dumps(row)

    return text


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], str], str]] = {
    "json": (lambda row: json.dumps(row)[:-9], "of the line: Invalid JSON"),
    "list": (lambda row: "[]", "of the line: Input should be"),
    "missing": (broken(lambda row: row.pop("question")), "question: Field required"),
    "label": (
        broken(lambda row: row.update(question_type="Sum")),
        "question_type: Input should be",
    ),
    "answer": (broken(lambda row: row.update(answer="two")), "answer: .* integer, got 'two'"),
    "bool": (broken(lambda row: row.update(answer=True)), "answer: .* integer, got True"),
    "round": (broken(lambda row: row.update(round="2")), "round: .* integer, got '2'"),
    "role": (
        broken(lambda row: row["messages"][2].update(role="bot")),
        "messages.2.role: Input should be .*, got 'bot'",
    ),
    "content": (
        broken(lambda row: row["messages"][2].update(content=5)),
        "messages.2.content: .* string, got 5",
    ),
    "arguments": (
        broken(lambda row: row["messages"][3]["tool_calls"][0]["function"].update(arguments="[1]")),
        "messages: the arguments of query_items must be a JSON object",
    ),
    "empty": (broken(lambda row: row.update(messages=[])), "messages: List should have at least 1"),
    "no log": (
        broken(lambda row: row.update(messages=row["messages"][:1])),
        "messages: must contain feedback that begins with 'Round 1:'",
    ),
    "twice": (json.dumps, "id: must differ from line 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_malformed_row_names_file_line_and_field_and_nothing_loads(
    fault: str, tmp_path: Path
) -> None:
    row = made("ki-c")[3]
    path = write(tmp_path, row, "ki-c", strip(row))
    spoil, why = FAULTS[fault]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + spoil(json.loads(json.dumps(strip(row)))))
    message = rf"{re.escape(str(path))}, line 3, field {why}"
    for use in (load_rows, lambda data: score_folder(Path(data), tmp_path / "none")):
        with pytest.raises(ValueError, match=message):
            use(str(tmp_path))


def test_a_row_needs_a_setting_a_true_answer_and_a_number_that_exists(tmp_path: Path) -> None:
    row = made("ki-c")[3]
    path = write(tmp_path, row, "other", strip(row))
    with pytest.raises(ValueError, match="field setting: must be a folder of the path, or a field"):
        load_rows(str(path))
    path = write(tmp_path, row, "ki-c", {**strip(row), "answer": 99})
    env = make("LongContextQA", data=str(path))
    with pytest.raises(
        ValueError, match=r"field answer: must be [0-9] according to the log, got 99"
    ):
        env.reset(seed=0)
    with pytest.raises(ValueError, match=r"row must be below 1, the number of rows in .*, got 1"):
        make("LongContextQA", data=str(path), row=1).reset(seed=0)
    with pytest.raises(
        ValueError, match=r"data '.*' has no rows; give an AgentLongBench JSONL file"
    ):
        make("LongContextQA", data=str(tmp_path / "none")).reset(seed=0)
    (tmp_path / "folder" / "rows.jsonl").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"rows\.jsonl must be an existing file"):
        load_rows(str(tmp_path / "folder"))
    with pytest.raises(ValueError, match="row and verified require data, got row=1"):
        make("LongContextQA", row=1)


class Published:
    """Reimplementation of the published evaluator, based on its description."""

    @staticmethod
    def tag(reply: str) -> str | None:
        found = [m[1] for m in re.finditer(r"(?is)<answer>(.*?)</answer>", reply)]
        return found[-1].strip() if found else None

    @staticmethod
    def names(text: str, numbered: bool, least: int) -> list[str]:
        try:
            literal = ast.literal_eval(text) if text[:1] + text[-1:] == "[]" else []
        except (ValueError, SyntaxError):
            literal = []
        if len(literal) >= least:
            return [str(name).strip() for name in literal]
        chunks = re.split(r"[,\n;|]", re.sub(r"(?i)\band\b", ",", text))
        if numbered:
            chunks = [re.sub(r"^[0-9]+[.]?\s*", "", chunk) for chunk in chunks]
        return [chunk.strip() for chunk in chunks if chunk.strip()]

    @classmethod
    def score(cls, kind: str, setting: str, answer: Any, reply: str) -> float:
        tag = cls.tag(reply)
        if not tag:
            return 0.0
        drop = r"[ \-'\".]" if setting.startswith("ki") else r"[ \-'\"._]"
        if kind == "int":
            numbers = re.findall(r"-?[0-9][0-9,]*(?:[.][0-9]+)?", tag)
            return float(bool(numbers) and int(float(numbers[-1].replace(",", ""))) == answer)
        if kind == "bool":
            words = set(re.findall(r"[a-z']+", tag.lower()))
            if words & {"no", "false", "not", "none", "neither", "doesn't"}:
                return float(answer is False)
            if words & {"yes", "true", "contain", "contains", "appear", "appears", "does", "both"}:
                return float(answer is True)
            number = re.search(r"-?[0-9]+", tag)
            return float(bool(number) and (int(number[0]) > 0) == answer) if number else 0.0
        if kind == "name":
            given, right = (re.sub(drop, "", name.lower()) for name in (tag, answer))
            return float(given == right)
        if kind == "pair":
            pair = [re.sub(drop, "", n.lower()) for n in cls.names(tag, numbered=True, least=2)]
            truth = [re.sub(drop, "", name.lower()) for name in answer]
            return {2: float(pair == truth), 1: 0.5 * (pair == truth[:1])}.get(len(pair), 0.0)
        listed = set(cls.names(tag, numbered=False, least=1))
        return 2 * len(listed & set(answer)) / (len(listed) + len(answer))


STYLES: dict[str, Callable[[Any], str]] = {
    "right": lambda a: " and ".join(a) if isinstance(a, list) else str(a),
    "json": lambda a: json.dumps(a, ensure_ascii=False) if isinstance(a, list) else f'"{a}"',
    "half": lambda a: str(a[0] if isinstance(a, list) else a)[:9],
    "second wrong": lambda a: f"{a[0]} and Nobody" if isinstance(a, list) else f"{a} or 7",
    "numbered": lambda a: (
        "\n".join(f"{k}. {n}" for k, n in enumerate(a)) if isinstance(a, list) else f"1. {a}"
    ),
    "fenced": lambda a: f"```json\n{json.dumps(a)}\n```",
    "lower": lambda a: str(a).lower(),
    "denied": lambda a: f"not {a}, 1,234.5",
    "open": lambda a: f"{a}</answer><answer>",
    "nothing": lambda a: "",
}


@pytest.mark.parametrize("style", STYLES)
def test_files_are_scored_as_by_the_published_evaluator(
    style: str, data: Path, tmp_path: Path
) -> None:
    expected = []
    for row in load_rows(str(data)):
        reply = f"<answer>5</answer> <ANSWER>{STYLES[style](row.fields['answer'])}</ANSWER>"
        target = tmp_path / row.path.relative_to(data)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": row.fields["id"], "raw_response": reply}) + "\n")
        kind = form(row.task, row.style)
        expected.append(Published.score(kind, row.setting, row.fields["answer"], reply))
        env = make("LongContextQA", data=str(row.path), row=row.line - 1)
        env.reset(seed=0)
        env.step(reply)
        assert tool_env(env).world.score() == pytest.approx(expected[-1])
    scores = [result.score for result in score_folder(data, tmp_path)]
    assert scores == pytest.approx(expected)
    assert {"right": min, "json": min}.get(style, lambda _: 1.0)(scores) == 1.0


@pytest.mark.parametrize("embed", ["", "wordllama"])
def test_retrieval_shows_whole_rounds_in_order(embed: str) -> None:
    shorten = retriever(3, embed)
    for row in made("ki-c"):
        messages = shorten(row)["messages"]
        assert messages[0] == row["messages"][0]
        places = [row["messages"].index(message) for message in messages]
        assert places == sorted(places)
        shown = [m["content"] for m in messages if m["role"] == "user"]
        assert len(shown) == 3
        assert len({text.partition(":")[0] for text in shown}) == 3
    named = {**row, "question": f"Which guess was {Reader(row['messages']).guesses[4]}?"}
    assert any("Round 4:" in m["content"] for m in shorten(named)["messages"])


def test_a_policy_answers_a_file_from_the_retrieved_rounds(data: Path, tmp_path: Path) -> None:
    rounds: list[int] = []

    def policy(chats: Sequence[Chat]) -> list[Reply]:
        rounds.extend(len(re.findall(r"^Round ", str(chat), re.MULTILINE)) for chat in chats)
        return [Reply("<answer>1</answer>") for _ in chats]

    file = load_rows(str(data))[0].path
    for rows, count in ((file, 1), (data / "kf-v", 8)):
        out = tmp_path / rows.name
        assert list(answer(rows, out, policy, retriever(2))) == [""] * count
        assert all(result.answered for result in score_folder(rows, out) if result.score)
    assert set(rounds) == {2}


def test_published_names_are_those_of_the_published_prompt() -> None:
    for setting in FULL:
        for row in made(setting, published=True):
            log = Reader(row["messages"])
            calls = [c for m in row["messages"] for c in m.get("tool_calls", ())]
            assert {call["function"]["name"] for call in calls} == {"query_pokemon"}
            assert "query_items" not in json.dumps(row)
            if setting.startswith("kf"):
                sections = [section for section, _, _ in log.feedback[1]]
                assert list(dict.fromkeys(sections)) == [f"attr_{k}" for k in range(1, 7)]
                texts = {value for each in log.feedback.values() for _, value, _ in each}
                assert all(re.fullmatch(r"a[1-6]v[0-9]+|[0-9]+", value) for value in texts)
            assert row["answer"] == log.answer(row["question_type"], row["question"])
            if row["task"] == "weighted_summation_env" and setting.startswith("kf"):
                told = json.loads(
                    row["question"][row["question"].index("{") :].partition("}")[0] + "}"
                )
                assert told == dict(zip(sorted(told), (6, 4, 2, 5, 3, 1), strict=True))
            if row["task"] == "find_round_largest_value_env" and setting.startswith("kf"):
                assert '"attr_2"' in row["question"]
