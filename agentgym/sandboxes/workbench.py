"""Run programs on files: bash, common tools and full CPython in Linux namespaces.

Each run has its own in-memory copy of the files at `/workspace` and returns the copy when it ends.
Nothing is written on the host. A run has no network access. When it ends, its processes are killed.
"""

from __future__ import annotations

import functools
import json
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agentgym.sandboxes.base import Limits, SandboxUnavailable
from agentgym.sandboxes.determinism import STATE_FOLDER, RunSeed
from agentgym.sandboxes.namespaces import (
    BASH,
    HOME,
    REMEDY,
    ConfinedProcess,
    base_command,
    find_bwrap,
    memory_folder,
    read_program,
    resource_limits,
)
from agentgym.sandboxes.program_run import MAX_BYTES, MAX_TASKS, ProgramResult, ProgramRun
from agentgym.text.requirements import install_command

TOP = "/workspace"
# third-party packages that programs can import, including their dependencies
PACKAGES = (
    "PIL", "charset_normalizer", "dateutil", "et_xmlfile", "numpy", "numpy.libs", "openpyxl",
    "pandas", "pandas.libs", "pillow.libs", "pypdf", "pytz", "reportlab", "six.py", "tzdata",
)  # fmt: skip

# Announced to the model. If a package is missing, no program runs, so that episodes are identical
# on every host.
PROMISED_PACKAGES = ("PIL", "numpy", "openpyxl", "pandas", "pypdf", "reportlab")

# Part of every distribution.
TOOLS = (
    "awk base64 basename bash cat chmod cmp comm cp csplit cut date dd df diff dirname du echo "
    "egrep env expand expr false fgrep find fmt fold grep gunzip gzip head id join ln ls md5sum "
    "mkdir mktemp mv nl nproc od paste pr printenv printf pwd readlink realpath rev rm rmdir sed "
    "seq sh sha1sum sha256sum shuf sleep sort split stat sum tac tail tar tee test timeout touch "
    "tr true truncate tsort uname unexpand uniq unlink wc which whoami xargs yes zcat"
)

# programs that some distributions lack (`agentgym.sandboxes.scripts`)
SCRIPTS = ("unzip", "zip")

_MAX_FILE_BYTES = 32 * 2**20  # per returned file
_TOP_BYTES = 160 * 2**20  # exceeds `MAX_BYTES`, to leave space for temporary files
_TMP_BYTES = 64 * 2**20
_MAX_FILES = 6_000  # returned files
_OPEN_FILES = 256  # open files per process, enough for libraries and a script's files


@dataclass(frozen=True, slots=True)
class File:
    """A file of a run: its bytes (None for a directory) and its mtime in seconds since 1970."""

    data: bytes | None
    modified: float


DEFAULT_LIMITS = Limits(seconds=30.0, memory_mb=1_024, output_chars=100_000)


def run(
    arguments: Sequence[str],
    files: Mapping[str, File],
    cwd: str = TOP,
    limits: Limits = DEFAULT_LIMITS,
    seed: RunSeed = RunSeed(),  # noqa: B008 - it is frozen
) -> ProgramResult:
    """Run a program with files in a new sandbox and wait until it exits.

    `arguments` starts with an absolute path, such as `BASH` or `PYTHON`. `files` are paths below
    `/workspace`, with each directory before its contents. The memory limit applies to each process;
    all processes together may use twice as much. Raises `SandboxUnavailable` if programs cannot run
    on this host.
    """
    job = _encode(arguments, files, cwd, limits, seed)
    try:
        process = ConfinedProcess(
            *(_command(), read_program("sandbox_init.py"), seed, f"{TOP}/"),
            scripts=_scripts(),
            forks=True,
        )
        with closing(process):
            return ProgramRun(process, job, limits, (TOP, "/tmp")).play()
    except OSError as error:
        raise _unavailable(f"{error}; {REMEDY}") from error


def _encode(
    arguments: Sequence[str], files: Mapping[str, File], cwd: str, limits: Limits, seed: RunSeed
) -> bytes:
    sizes = [
        (name, None if file.data is None else len(file.data), file.modified)
        for name, file in files.items()
    ]
    job = {
        "arguments": list(arguments),
        "cwd": cwd,
        "files": sizes,
        "limits": {
            **resource_limits(limits, limits.memory_mb, _MAX_FILE_BYTES, _OPEN_FILES),
            # A fork bomb could outrun the periodic process count. Root is exempt from RLIMIT_NPROC.
            "RLIMIT_NPROC": 2 * MAX_TASKS,
        },
        "most_files": _MAX_FILES,
        "most_bytes": MAX_BYTES,
        "most_file_bytes": _MAX_FILE_BYTES,
        "seed": int.from_bytes(seed.digest()[16:24], "little"),
    }
    contents = (file.data for file in files.values() if file.data)
    return b"".join([json.dumps(job).encode(), b"\n", *contents])


@functools.cache
def check() -> None:
    """Check once per process that this host can run programs; raise `SandboxUnavailable` if not."""
    outcome = run([BASH, "-c", _CHECK], {})
    expected = f"{int(RunSeed().now.timestamp())}\n"
    if outcome.stdout != 2 * expected:
        reason = outcome.stderr.strip() or outcome.stopped or f"it printed {outcome.stdout!r}"
        raise _unavailable(f"{reason}; {REMEDY}")


_CHECK = "date +%s; python3 -c 'import time; print(int(time.time()))'"


def _unavailable(reason: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"programs cannot run on this host: {reason}")


@functools.cache
def _scripts() -> Mapping[str, bytes]:
    folder = Path(__file__).with_name("scripts")
    return {f"/usr/bin/{name}": (folder / f"{name}.py").read_bytes() for name in SCRIPTS}


@functools.cache
def _command() -> tuple[str, ...]:
    bwrap = find_bwrap()  # checked first, because most unsuitable hosts have no `bwrap`
    tools = {
        name: path.resolve() for name in TOOLS.split() if (path := Path("/usr/bin", name)).exists()
    }
    tools = {name: path for name, path in tools.items() if path.parent == Path("/usr/bin")}
    if missing := [name for name in TOOLS.split() if name not in tools]:
        raise _unavailable(
            f"there is no /usr/bin/{missing[0]}; install the base programs of a Linux "
            "distribution (bash, coreutils, findutils, ...)"
        )
    packages = {name: folder for name in PACKAGES if (folder := _package(name))}
    if missing := [name for name in PROMISED_PACKAGES if name not in packages]:
        raise _unavailable(f"the package {missing[0]} is missing; {install_command('office')}")
    modules = [module for path in packages.values() for module in path.rglob("*.so*")]
    programs = [*tools.values(), *modules]
    command = [
        *base_command(bwrap, programs, packages.values()),
        "--ro-bind",
        "/usr/bin",
        "/programs",
    ]
    for name, path in tools.items():
        command += ["--symlink", f"/programs/{path.name}", f"/usr/bin/{name}"]
    command += ["--symlink", "usr/bin", "/bin", "--symlink", "python3", f"{HOME}/bin/python"]
    for name, path in packages.items():
        command += ["--ro-bind", str(path), f"{_PACKAGES}/{name}"]
    for device in ("null", "zero", "full"):
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for device in ("random", "urandom"):  # pipes filled by the first process
        command += ["--symlink", f"{STATE_FOLDER}/{device}", f"/dev/{device}"]
    if _LOCALE.is_dir():
        command += ["--ro-bind", str(_LOCALE), str(_LOCALE)]
    for variable, value in _ENVIRONMENT.items():
        command += ["--setenv", variable, value]
    command += [*memory_folder(TOP, _TOP_BYTES), *memory_folder("/tmp", _TMP_BYTES)]
    return (*command, "--remount-ro", "/", "--chdir", TOP)


_LOCALE = Path("/usr/lib/locale/C.utf8")
_PACKAGES = f"{HOME}/packages"
_ENVIRONMENT = {
    "PATH": f"{HOME}/bin:/usr/bin",
    "PYTHONPATH": _PACKAGES,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "OPENBLAS_NUM_THREADS": "1",  # more threads would use up the memory limit
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8" if _LOCALE.is_dir() else "C",
}


def _package(name: str) -> Path | None:
    folders = dict.fromkeys(
        [sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *sys.path]
    )
    return next(
        (path for folder in folders if folder and (path := Path(folder, name)).exists()), None
    )
