"""Measure the office tasks: `python benchmarks/loca.py` (needs `agentgym-suite[office]`).

The table shows CPU times, excluding DuckDB's process. Drawing a state of 256K tokens should take at
most 20 times as long as writing and reading the state as JSON. Resetting to the same state should
take at most 100 ms. The other columns show the time to execute the reference plan and to check the
final state.

The argument `resets [TASK …]` measures only the time to draw and reset states. `units` prints the
tokens per unit of each task; if the class attribute `tokens_per_unit` is far from this number,
states are drawn twice. `lengths [TASK …]` writes docs/loca_lengths.md.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from openpyxl import load_workbook

import agentgym
from agentgym import worlds
from agentgym.envs.loca import LENGTHS
from agentgym.envs.loca.plan import CLAIM
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.files.pdfs import read_pdf

SEEDS, RESET_SEEDS = 5, 15  # several seeds, because other load on the machine changes times by 20%
DRAW_JSON, RESET_MS = 20.0, 100.0
TASKS = [entry.world.__name__ for entry in worlds() if issubclass(entry.world, OfficeTask)]
TABLE = Path(__file__).parents[1] / "docs" / "loca_lengths.md"


def main() -> None:
    if sys.argv[1:2] == ["lengths"]:
        write_lengths(sys.argv[2:])
        return
    if sys.argv[1:] == ["units"]:
        for task in TASKS:
            print(f"{task}: {tokens_per_unit(task):.0f}", flush=True)
        return
    resets_only = sys.argv[1:2] == ["resets"]
    heads = ["task, 256K tokens", "draw, s", "as JSON, ms", "draw : JSON", "of 20", "reset, ms"]
    heads += ["of 100 ms"] if resets_only else ["of 100 ms", "plan, steps", "plan, s", "check, ms"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for task in sys.argv[2:] if resets_only and sys.argv[2:] else TASKS:
        print(row_of(task, resets_only), flush=True)


def row_of(task: str, resets_only: bool) -> str:
    env = agentgym.tool_env(agentgym.make(task, length=LENGTHS["256k"]))
    env.reset(seed=SEEDS)  # exclude one-time imports
    draw, as_json, reset, play, check, steps = [], [], [], [], [], []
    for seed in range(RESET_SEEDS if resets_only else SEEDS):
        draw.append(seconds(lambda seed=seed: env.reset(seed=seed)))  # type: ignore[misc]
        as_json.append(json_seconds(env.world))
        reset.append(seconds(lambda seed=seed: env.reset(seed=seed)))  # type: ignore[misc]
        if resets_only:
            continue
        counted: list[int] = []
        play.append(seconds(lambda counted=counted: counted.append(carry_out(env.world))))  # type: ignore[misc]
        check.append(seconds(lambda: list(env.world.task_failures())))
        assert not list(env.world.task_failures())
        steps += counted
    ms = 1_000 * median(reset)
    ratio = median(draw) / median(as_json)
    cells = [f"{median(draw):.2f}", f"{1_000 * median(as_json):.1f}", f"{ratio:.1f}"]
    cells += [f"{ratio / DRAW_JSON:.2f}", f"{ms:.0f}", f"{ms / RESET_MS:.2f}"]
    if not resets_only:
        cells += [f"{median(steps)}", f"{median(play):.2f}", f"{1_000 * median(check):.0f}"]
    return f"| {task} | {' | '.join(cells)} |"


def json_seconds(world: Any) -> float:
    state = state_of(world)
    return seconds(lambda: json.loads(json.dumps(state)))


def state_of(world: Any) -> Any:
    files = world.office.context.files
    services: dict[str, Any] = {}
    for server in world.office.toolsets():
        store = server.store
        services[server.name] = {
            table: [_plain(row) for row in store.rows(f'SELECT * FROM "{table}"')]
            for table in store.tables()
        }
        for name, table in getattr(getattr(server, "engine", None), "tables", {}).items():
            columns = [column.name for column in table.columns]
            values = zip(*map(json.loads, table.data), strict=True)
            records = [dict(zip(columns, row, strict=True)) for row in values]
            services[server.name][".".join(name)] = records
    return {
        "services": services,
        "files": {path: _content(path, files.read(path)) for path in files.walk()},
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in row.items()
    }


def _content(path: str, data: bytes) -> Any:
    if path.endswith(".pdf"):
        return list(read_pdf(data))
    if path.endswith(".xlsx"):
        return {
            sheet.title: [
                {"address": cell.coordinate, "value": cell.value}
                for row in sheet.iter_rows()
                for cell in row
            ]
            for sheet in load_workbook(io.BytesIO(data)).worksheets
        }
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def tokens_per_unit(task: str) -> float:
    kinds: list[Any] = [entry.world for entry in worlds() if entry.world.__name__ == task]
    per_unit = kinds[0].tokens_per_unit
    for _ in range(3):  # repeat, because the tokens per unit may depend on the size
        size = max(1, round(LENGTHS["256k"] / per_unit))
        lengths = []
        for seed in range(3):
            env = agentgym.tool_env(agentgym.make(task, size=size))
            env.reset(seed=seed)
            world: Any = env.world
            lengths.append(world.tokens)
        per_unit = median(lengths) / size
    return float(per_unit)


def carry_out(world: Any) -> int:
    count = 1
    while (steps := world.progress.pending()) != [CLAIM]:
        call = steps[0].call
        world.read_result(call, world.office.call(call.name, call.arguments))
        count += 1
    return count


def seconds(act: Callable[[], object]) -> float:
    start = time.process_time()
    act()
    return time.process_time() - start


def write_lengths(names: list[str]) -> None:
    rows = {
        line.split(" ")[1]: line
        for line in TABLE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and names
    }
    for task in names or TASKS:
        rows[task] = lengths_of(task)
        print(rows[task], flush=True)
    lines = [
        "# Environment description lengths of the office tasks",
        "",
        f"The table shows the lengths of the smallest and the largest state over seeds 0 to {SEEDS - 1}, in cl100k tokens,",
        "and the number of steps of the reference plan with seed 0 (`python benchmarks/loca.py lengths`).",
        "",
        f"| task | {' | '.join(name.upper() for name in LENGTHS)} |",
        "|---" * (1 + len(LENGTHS)) + "|",
        *(rows[task] for task in TASKS),
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def lengths_of(task: str) -> str:
    cells = []
    for length in LENGTHS.values():
        env = agentgym.tool_env(
            agentgym.make(task, length=length, budget_factor=1.0, budget_slack=0)
        )
        states = []
        for seed in range(SEEDS):
            env.reset(seed=seed)
            states.append((env.world.tokens, env.world.max_turns))
        tokens = sorted(count for count, _ in states)
        assert 0.9 * length <= tokens[0] <= tokens[-1] <= 1.1 * length, (task, length, tokens)
        cells.append(f"{tokens[0]:,} to {tokens[-1]:,}; {states[0][1]}")
    return f"| {task} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
