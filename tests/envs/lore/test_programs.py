from __future__ import annotations

import re
import subprocess
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentgym.cli.export import HELPER, write
from agentgym.cli.export import program as export_program
from agentgym.envs.lore import programs
from agentgym.envs.lore.graph import Rule
from agentgym.envs.lore.programs import (
    PROGRAMS,
    REDIRECTS,
    STANDARD,
    read_expression,
    read_source,
    wakeups,
    write_expression,
    write_source,
)
from tests.cli.test_main import command
from tests.envs.lore.code_solver import VIRTUAL, Program
from tests.envs.lore.games import BOTH, default, longest_chain
from tests.helpers import run_python, start

ASYNC = {"difficulty": "hard", "operators": ("async",)}


def generated(seed: int, **options: Any) -> Any:
    return default("CodeWorld", seed, **options)


def run_and_compare(world: Any, clock: Any = VIRTUAL) -> None:
    program = Program(world.files(), clock)
    assert program.run() == world.graph.answer
    assert {f"{name}.py" for name in program.called} == set(world.needed())
    assert len(program.called) == world.graph.needed
    assert world.graph.height == longest_chain(world.graph)


# Executing the sources.


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("operations", [0, 2, 8, 120])
@pytest.mark.parametrize("consolidation", REDIRECTS)
def test_the_sources_return_the_answer_and_ask_for_what_is_needed(
    consolidation: str, operations: int, difficulty: str
) -> None:
    options = {"operations": operations, "difficulty": difficulty, "consolidation": consolidation}
    for seed in range(15 if operations < 30 else 1 + 200 // operations):
        run_and_compare(generated(seed, **options))


# Coroutines.


def coroutines(count: int, seed: int = 0) -> list[tuple[Any, str]]:
    """Return random async programs with their source code; the operands are modules m_0, m_1, …"""
    rng, drawn = Random(seed), []
    for _ in range(count):
        operands = rng.randint(3, 4)
        workers = PROGRAMS["async"].draw(rng, operands)
        files = tuple(f"m_{k}.py" for k in range(operands))
        drawn.append((workers, write_source(programs.Program("async", workers, files))))
    return drawn


def stubs(values: list[int]) -> dict[str, str]:
    return {f"m_{k}.py": f"def main():\n    return {value}\n" for k, value in enumerate(values)}


def test_workers_run_as_the_event_loop_runs_them_and_often_unlike_one_after_the_other() -> None:
    rng, unlike = Random(1), 0
    for workers, source in coroutines(200):
        values = [rng.randint(-50, 99) for _ in range(len(workers) + 1)]
        truth = Program({"main.py": source, **stubs(values)}).run()
        assert PROGRAMS["async"].execute(workers, values) == truth
        *amounts, one_by_one = values
        for worker, amount in zip(workers, amounts, strict=True):
            one_by_one = PROGRAMS["async"].execute((worker,), (amount, one_by_one))
        unlike += one_by_one != truth
    assert unlike > 100


def test_no_two_wake_ups_coincide() -> None:
    for workers, source in coroutines(300):
        functions = re.findall(r"async def \w+\(amount\):\n((?:    .*\n)+)", source)
        sleeps = [
            [round(10 * float(t)) for t in re.findall(r"sleep\((\d\.\d)\)", body)]
            for body in functions
        ]
        ticks = [tick for durations in sleeps for tick in accumulate(durations)]
        assert len(set(ticks)) == len(ticks) == sum(map(len, workers))
        assert min(min(durations) for durations in sleeps) > 0
        assert all(earlier[0] < later[0] for earlier, later in pairwise(wakeups(workers)))


def test_a_second_call_returns_the_same_since_the_shared_variable_is_set_anew() -> None:
    for workers, source in coroutines(40):
        values = [7 * k + 3 for k in range(len(workers) + 1)]
        main = Program({"main.py": source, **stubs(values)}).load("main")["main"]
        assert main() == main() == PROGRAMS["async"].execute(workers, values)


def test_an_operand_of_coroutines_may_run_a_loop_too() -> None:
    nodes = generated(0, operations=12, **ASYNC).graph.nodes
    asynchronous = {n.uid for n in nodes if n.kind == "module" and is_async(n.content)}
    assert any(asynchronous & {*nodes[uid].children} for uid in asynchronous)


def is_async(content: Any) -> bool:
    return isinstance(content, Rule) and content.operator == "async"


# Drawing.


def test_a_task_whose_answer_is_0_is_kept_only_after_many_tries() -> None:
    assert all(
        generated(seed, operations=n, consolidation="plain").graph.answer
        for seed in range(20)
        for n in (0, 2, 20)
    )
    hopeless = generated(
        0,
        operations=60,
        consolidation="plain",
        theta=1,
        p=1.0,
        operators=("arithmetic",),
        max_arity=2,
    )
    assert isinstance(hopeless.graph.answer, int)


def test_coroutines_are_hard_and_half_as_frequent() -> None:
    def share(name: str, **options: Any) -> float:
        rules = [
            n.content.operator
            for s in range(15)
            for n in generated(s, operations=60, **options).graph.nodes
            if ruled(n)
        ]
        return rules.count(name) / len(rules)

    def ruled(node: Any) -> bool:
        return isinstance(node.content, Rule) and node.content.operator not in REDIRECTS

    assert [name for name in PROGRAMS if share(name) > 0] == [
        operator.name for operator in STANDARD
    ]
    assert 0.11 < share("async", difficulty="hard") < 0.18


def test_every_operand_of_coroutines_makes_a_difference() -> None:
    for workers, _ in coroutines(200):
        values = [1000 * 7**k for k in range(len(workers) + 1)]
        result = PROGRAMS["async"].execute(workers, values)
        for place in range(len(values)):
            other = [value + (k == place) for k, value in enumerate(values)]
            assert PROGRAMS["async"].execute(workers, other) != result


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_what_is_written_is_read_back(name: str) -> None:
    operator, rng = PROGRAMS[name], Random(2)
    for _ in range(100):
        count = rng.randint(operator.least, min(operator.most, 5))
        program = programs.Program(
            name, operator.draw(rng, count), tuple(f"m_{k}.py" for k in range(count))
        )
        assert read_expression(write_expression(program)) == program
        assert (
            read_source(write_source(program))
            == read_source(write_source(program, root=True))
            == program
        )


NO_EXPRESSIONS = ("", "m_a", "m_a() +", "m_a() * m_b()", "9 * (m_a() + m_b()", "1.5", "01")


@pytest.mark.parametrize(
    "text", [*NO_EXPRESSIONS, "(m_a() * 7 + 100) % 100", "if m_a() < m_b() then 3"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="this is not an expression over modules"):
        read_expression(text)


# Exporting a task.


def exported(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return command("export", *options, str(folder))


def printed(folder: Path) -> tuple[str, str]:
    shown = run_python(str(folder / "main.py"))
    return shown.stdout, shown.stderr


def test_the_command_writes_files_that_run(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "one"
    told = exported(folder, "CodeWorld", "--seed", "3", "--set", "operations=2")
    assert told.returncode == 0, told.stderr
    world = start("CodeWorld", seed=3, operations=2).world
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert told.stdout == f"wrote {len(files)} files; run: python {folder / 'main.py'}\n"
    assert HELPER in files
    assert (
        files.pop("main.py")
        == f"import each_once  # added by the export\n{world.files()['main.py']}"
    )
    assert {file: text for file, text in files.items() if file != HELPER} == {
        file: text for file, text in world.files().items() if file != "main.py"
    }
    assert printed(folder) == (str(world.graph.answer), "")
    again = exported(folder, "CodeWorld")
    assert (again.returncode, again.stderr) == (
        2,
        f"error: the folder {str(folder)!r} is not empty; choose an empty folder\n",
    )


@pytest.mark.rotation
@pytest.mark.parametrize(
    ("env_id", "options", "seed"),
    [
        ("CodeWorld-n350", {}, 1),
        (
            "CodeWorld",
            {"operations": 1_000, "theta": 1, "p": 1.0},
            0,
        ),
        ("CodeWorld", {"operations": 3, "difficulty": "hard", "names": "sequential"}, 5),
        ("CodeWorld", {"operations": 0}, 0),
    ],
)
def test_exports_of_all_sizes_run_for_real(
    tmp_path: Path, env_id: str, options: dict[str, Any], seed: int
) -> None:
    write(export_program(env_id, seed, **options), tmp_path)
    answer = start(env_id, seed=seed, **options).world.graph.answer
    assert printed(tmp_path) == (str(answer), "")


def test_other_worlds_have_no_program_to_export() -> None:
    with pytest.raises(
        ValueError,
        match=r"^ListWorld has no program to export; choose a CodeWorld task$",
    ):
        export_program("ListWorld", 0)
