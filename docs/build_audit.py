"""Write docs/audit.md: scores of shortcuts, random play and the oracle in each world.

`python docs/build_audit.py [ID …]` audits the named worlds, or all of them in about an hour of CPU
time.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import agentgym
from agentgym.assemble.registry import Entry
from agentgym.envs.loca.task import OfficeTask
from agentgym.testing import MEASURES, Audit, AuditConfig, run_audit
from agentgym.training.evaluation import percent, to_markdown

PAGE = Path(__file__).with_name("audit.md")
# Number of episodes per policy. Office tasks are slow to generate; 60 failed episodes suffice to
# show that a score is below 0.10.
SEEDS, OFFICE_SEEDS = 200, 60
# Worlds in which a shortcut comes close to the ceiling need more episodes.
MORE_SEEDS = {"GridWorld": 600}
# Number of training episodes; office tasks need few, because episodes differ only in ids and
# numbers.
DEMONSTRATIONS, OFFICE_DEMONSTRATIONS = 100, 15

HEAD = """# Audit: the scores of shortcuts

<!-- Written by `python docs/build_audit.py`. -->

`agentgym audit ID` plays policies that see only a world's chat and tool schemas and ignore the
task. Some policies answer with constants, with majority answers from other seeds, or with the
first, last or longest option. Other policies apply rules to the words, numbers and lines of the
prompt and of a few results, or predict the answer from numbers in the prompt or from the length of
the prompt or of the last result. Other policies end the episode in the first turn, repeat a read,
or copy other episodes.

These policies learn from successful episodes of the `train` split and play the `test` split
([splits](splits.md)). The office tasks never repeat an instance, so their audits use different
seeds instead of splits.

The highest allowed score of a shortcut, the *ceiling*, is fixed in advance: 10% or the score by
chance, whichever is larger. The score by chance is *stated* by the world (`World.chance`),
*enumerated* from the choices of the final tool and the options in the prompts, or *estimated* by
random calls on reserved seeds. The verdict on a policy is `holds` if the 99% Wilson interval of
its score ends below the ceiling. If the score by chance is at least 10%, the verdict is also
`holds` for an interval that contains the ceiling. The verdict is `leak` if the whole interval is
above the ceiling. In all other cases, the verdict is `undecided`, and more seeds are needed.

The audit also measures forbidden events. {measures}

The two baselines, which get no verdict, are the oracle and random calls that are legal in the
world's belief state. A world can register further shortcuts with
`agentgym.assemble.adversaries.register_adversary`.
"""
SUMMARY = ("world", "ceiling", "chance", "best shortcut", "its score", "worst measure",
           "random legal", "oracle", "seeds", "verdict", "commit")  # fmt: skip


def audit(entry: Entry) -> Audit:
    office = issubclass(entry.world, OfficeTask)
    name = entry.id.removeprefix("agentgym/").removesuffix("-v0")
    return run_audit(
        AuditConfig(
            name,
            seeds=OFFICE_SEEDS if office else MORE_SEEDS.get(name, SEEDS),
            demonstrations=OFFICE_DEMONSTRATIONS if office else DEMONSTRATIONS,
            splits=not office,
        )
    )


def commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def summary(result: Audit) -> str:
    shortcuts = [row for row in result.rows if row.kind == "shortcut"]
    best = max(shortcuts, key=lambda row: row.interval.value)
    rows = {row.name: row for row in result.rows}
    measures = [row for row in result.rows if row.kind == "measure"]
    worst = max(measures, key=lambda row: row.interval.value, default=None)
    ceiling = result.ceiling
    cells = [
        result.world,
        f"{100 * ceiling.value:.1f}",
        f"{100 * ceiling.chance:.1f} ({ceiling.source})",
        best.name,
        percent(best.interval),
        f"{worst.name} {percent(worst.interval)}" if worst else "",
        *(
            f"{100 * rows[name].interval.value:.1f}" if name in rows else ""
            for name in ("random legal", "oracle")
        ),
        str(best.seeds),
        result.verdict,
        commit(),
    ]
    return f"| {' | '.join(cells)} |"


def read_page() -> dict[str, tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    rows = {m[1]: m[0] for m in re.finditer(r"^\| (\w+) \|.*\|$", text, re.MULTILINE)}
    sections = re.split(r"\n(?=### )", text)[1:]
    names = [section[4:].partition(":")[0] for section in sections]
    return {
        name: (rows[name], section.strip()) for name, section in zip(names, sections, strict=True)
    }


def write_page(worlds: dict[str, tuple[str, str]]) -> None:
    measure = "The measure *{}* is the share of episodes in which {}."
    measures = " ".join(measure.format(*item) for item in MEASURES.items())
    table = [f"| {' | '.join(SUMMARY)} |", "| " + " | ".join(["---"] * len(SUMMARY)) + " |"]
    table += [worlds[name][0] for name in sorted(worlds)]
    sections = [worlds[name][1] for name in sorted(worlds)]
    parts = [HEAD.format(measures=measures).strip(), "\n".join(table), *sections]
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    pages = read_page()
    for chosen in agentgym.worlds():
        short = chosen.id.removeprefix("agentgym/").removesuffix("-v0")
        if not sys.argv[1:] or short in sys.argv[1:]:
            done = audit(chosen)
            pages[short] = summary(done), to_markdown(done.table())
            write_page(pages)
            print(short, done.verdict, *[row.name for row in done.leaks], sep="; ", flush=True)
