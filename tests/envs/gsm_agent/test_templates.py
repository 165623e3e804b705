from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from agentgym import make, tool_env
from agentgym.envs.gsm_agent.loaders import load_data
from agentgym.envs.gsm_agent.user_data.templates import load_templates

SHOP = """
{name, D. Cruz} likes “tea”. {name,D. Cruz} bought {n,4} {thing,pens} at {cur,$}{price,1.5} each. \
The box held {half_txt,half} of them. A walk took {wait,9} days. Mr. {boss,Lee} paid back {cur,$}{back,2}. \
If the bus cost {cur,$}{bus,3}, how much did {name,D. Cruz} spend?

#init:
- name, boss = sample(names, 2)
- thing = sample(["pens", "rulers"])
- cur = sample(["$", "€"])
- half_txt, half_val = sample([["half", "1/2"], ["a third", "1/3"]])
- $price = arange(0.1, 3.7, 0.1)
- $n = range(6, 30, 6)
- $back = range(1, 9)
- $wait = range(2, 9)
- $bus = range(1, 9)

#conditions:
- is_int(n * price * half_val)
- back < n * price

#answer: n/3*price*3 - back + bus*half_val*2 + 0*wait
"""
READ = re.compile(
    r"bought (\d+) \w+ at .([\d.]+) each\. The box held (half|a third) .*?back .(\d+).*?bus cost .(\d+)"
)
LISTS = '{"names": ["Ann Lee", "Zoë Öz", "D. Cruz"]}'


def write_template(folder: Path, name: str = "shop", text: str = SHOP) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "replacements.json").write_text(LISTS, encoding="utf-8")
    path = folder / f"{name}.toml"
    path.write_text(f"question_annotated = '''{text}'''\n", encoding="utf-8")
    return path


def answer(price: str, n: str, part: str, back: str, bus: str) -> Fraction:
    share = {"half": Fraction(1, 2), "a third": Fraction(1, 3)}[part]
    return int(n) * Fraction(price) - int(back) + int(bus) * share * 2


def test_answers_are_exact_and_every_document_is_necessary(tmp_path: Path) -> None:
    (template,) = load_templates(write_template(tmp_path))
    for seed in range(60):
        problem = template.draw(seed, Random(seed))
        match = READ.search(problem.text)
        assert match is not None
        n, price, part, back, bus = match.groups()
        right = Fraction(problem.answer)
        assert right == answer(price, n, part, back, bus)
        assert int(back) < int(n) * Fraction(price)
        first, second, third, last = problem.premises
        assert first.endswith("each.")
        assert second.startswith("The box held")
        # The number of walking days does not affect the answer, so no document contains it.
        assert third.startswith("A walk took ")
        assert " Mr. " in third
        assert last.startswith("The bus cost ")
        assert right != answer(price, str(int(n) + 6), part, back, bus)
        assert right != answer(price, n, {"half": "a third", "a third": "half"}[part], back, bus)
        assert right != answer(price, n, part, str(int(back) + 1), bus)
        assert problem.question.startswith("How much did ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", "the field question_annotated is missing"),
        ("= no", "expected TOML"),
        ("question_annotated = 'How many?'", "expected a story, #init: and #answer:"),
        (SHOP.replace("- $bus = range(1, 9)\n", ""), "the variable 'bus' must be defined in #init"),
        (SHOP.replace("- $bus = range(1, 9)", "- bus range(1, 9)"), r"expected `variable = \.\.\.`"),
        (SHOP.replace("range(1, 9)", "open('x')", 1), "unknown function 'open'"),
        (SHOP.replace("range(1, 9)", "names.pop()", 1), "Attribute is not allowed"),
        (SHOP.replace("range(1, 9)", "range(1,", 1), "expected an expression"),
        (SHOP.replace("back < n * price", "back < 0"), "no draw satisfies #conditions"),
    ],
)  # fmt: skip
def test_a_malformed_template_is_refused(tmp_path: Path, text: str, told: str) -> None:
    write_template(tmp_path, "good")
    path = write_template(tmp_path, "wrong", text)
    if not text.startswith("\n"):
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"wrong\.toml.*{told}"):
        load_data(tmp_path, 5)


def test_draws_are_new_instances_and_splits_share_no_template(tmp_path: Path) -> None:
    for number in range(30):
        write_template(tmp_path, f"t{number}", SHOP.replace("likes", f"likes{'y' * number}"))
    options = {"data": str(tmp_path), "tasks": 240}
    texts = {}
    for seed in (0, 1):
        _, tasks = load_data(tmp_path, 240, seed)
        texts[seed] = {(task.question, *task.premises) for task in tasks}
        assert len(texts[seed]) == len(tasks) > 200
    assert not texts[0] & texts[1]
    seen: dict[str, set[str]] = {}
    for split in ("train", "test"):
        env = make("SearchWorld", split=split, **options)
        for seed in range(30):
            env.reset(seed=seed)
            world = tool_env(env).world
            names = {task.id.partition("#")[0] for task in world.database.tasks}  # type: ignore[attr-defined] # fmt: skip
            seen.setdefault(split, set()).update(names)
    assert seen["train"]
    assert seen["test"]
    assert seen["train"].isdisjoint(seen["test"])


@pytest.mark.parametrize("name", ["shop.toml", "replacements.json"])
@pytest.mark.parametrize("bad", [b"{", b"\xff\xfe\0", b"[" * 100_000, None])
def test_a_file_of_templates_that_is_no_such_file_is_named(
    tmp_path: Path, name: str, bad: bytes | None
) -> None:
    write_template(tmp_path)
    path = tmp_path / name
    path.unlink()
    path.mkdir() if bad is None else path.write_bytes(bad)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*: "):
        load_data(tmp_path, 5)
