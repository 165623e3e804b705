"""Runs programs on files: bash, the usual tools and full CPython in Linux namespaces, by `bwrap`.

Each run has the files at `/workspace` in memory of its own, and gives back what is there at its
end; nothing is written on the host. It has no network, and its processes end with it. Clock,
randomness, file times and addresses depend on the episode alone (`agentgym.sandboxes.determinism`).
"""

from __future__ import annotations

import functools
import json
import os
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agentgym.sandboxes.base import Limits, SandboxUnavailable
from agentgym.sandboxes.determinism import STATE_BYTES, STATE_FOLDER, RunSeed
from agentgym.sandboxes.namespaces import (
    BASH,
    DIE_WITH_THREAD,
    HOME,
    NESTING,
    REMEDY,
    STARTS,
    ConfinedProcess,
    base_command,
    find_bwrap,
    memory_folder,
    read_program,
    resource_limits,
)
from agentgym.sandboxes.program_run import (
    MAX_BYTES,
    MAX_INODES,
    MAX_PROCESSES,
    MAX_TASKS,
    ProgramResult,
    ProgramRun,
)
from agentgym.sandboxes.seccomp import fork_gate, seccomp

TOP = "/workspace"
PACKAGES = (
    *(
        "PIL",
        "charset_normalizer",
        "dateutil",
        "et_xmlfile",
        "numpy",
        "numpy.libs",
        "openpyxl",
        "pandas",
        "pandas.libs",
    ),
    *("pillow.libs", "pypdf", "pytz", "reportlab", "six.py", "tzdata"),
)
"""The packages that Python inside can import beside its standard library, and what these import."""

PROMISED_PACKAGES = ("PIL", "numpy", "openpyxl", "pandas", "pypdf", "reportlab")
"""The packages that a model is told of: without one of them no program runs, so that an episode is
the same on every host.
"""

TOOLS = (
    "awk base64 basename bash cat chmod cmp comm cp csplit cut date dd df diff dirname du echo "
    "egrep env expand expr false fgrep find fmt fold grep gunzip gzip head id join ln ls md5sum "
    "mkdir mktemp mv nl nproc od paste pr printenv printf pwd readlink realpath rev rm rmdir sed "
    "seq sh sha1sum sha256sum shuf sleep sort split stat sum tac tail tar tee test timeout touch "
    "tr true truncate tsort uname unexpand uniq unlink wc which whoami xargs yes zcat"
)
"""The programs that a shell inside finds: those that every distribution has. A host without one of
them runs none, so that an episode is the same on every host.
"""

SCRIPTS = ("tree", "unzip", "zip")
"""Further programs, which not every distribution has (`agentgym.sandboxes.scripts`)."""

_MAX_FILE_BYTES = 32 * 2**20  # of one that is given back
_TOP_BYTES, _TMP_BYTES = (
    160 * 2**20,
    64 * 2**20,
)  # the folder may hold more than is given back, for files on their way
_MAX_FILES = 6_000  # files given back
# Nanoseconds; the library takes what is a day older for set by a program.
_LIFETIME = 12 * 3_600 * 10**9
_OPEN_FILES = 256  # of one process: its libraries, and more files than a script has use for at once


@dataclass(frozen=True, slots=True)
class File:
    """File of a run: its bytes, None for a directory, and when it was written (seconds since
    1970).
    """

    data: bytes | None
    modified: float


DEFAULT_LIMITS = Limits(seconds=30.0, memory_mb=1_024, output_chars=100_000)


class Workbench:
    """A sandbox for the programs of one episode: it is started by the first run and serves the
    others, each in namespaces of its own, so that no file, process or module of one run is there in
    another.

    Where the host does not let namespaces be nested, each run starts a sandbox. Copies of a
    workbench, and those that come out of a pickle, start one of their own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: ConfinedProcess | None = None
        self._owner = 0  # the process that started the sandbox
        self._began = 0  # when, in nanoseconds since 1970
        self._release: Callable[[], object] = _nothing

    def __reduce__(self) -> tuple[type[Workbench], tuple[()]]:
        return Workbench, ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self,
        arguments: Sequence[str],
        files: Mapping[str, File],
        cwd: str = TOP,
        limits: Limits = DEFAULT_LIMITS,
        seed: RunSeed = RunSeed(),  # noqa: B008 - it is frozen
    ) -> ProgramResult:
        """Run a program with files and wait for its end.

        Args:
            arguments: The program by its absolute path, such as `BASH` or `PYTHON`, and its
                arguments.
            files: The files by their path below `/workspace`; each directory stands before what is
                in it.
            cwd: The directory to start in.
            limits: Seconds, memory of each process (all together may take twice as much), and how
                much output is shown.
            seed: The clock and the randomness of the run.

        Raises:
            SandboxUnavailable: Programs cannot run on this host.
        """
        if self._owner not in (0, os.getpid()):  # in a fork the lock may be taken for ever
            self._lock = threading.Lock()
        encode = functools.partial(_encode, arguments, files, cwd, limits, seed)
        result: ProgramResult | str = ""
        with self._lock:
            for _ in range(STARTS):  # nothing of the program has run while it is not ready
                try:
                    result = self._attempt(encode, limits)
                except OSError as error:
                    result = str(error)
                if isinstance(result, ProgramResult):
                    return result
        raise SandboxUnavailable(f"programs cannot run on this host: {result}; {REMEDY}")

    def close(self) -> None:
        """End the sandbox; a later run starts another."""
        self._release()
        self._process, self._release = None, _nothing

    def _attempt(self, encode: Callable[[int], bytes], limits: Limits) -> ProgramResult | str:
        """Run a job; return its result, or why it was not started.

        Args:
            encode: Returns the job for a sandbox that began at some time.
            limits: The limits of the job.

        Raises:
            OSError: The sandbox cannot be started.
        """
        reusable = False
        try:
            process = self._started()
            with closing(ProgramRun(process, encode(self._began), limits)) as current:
                if not current.play():
                    return current.complaint()
                reusable = current.reusable
                return current.result()
        finally:
            if not reusable:
                self.close()

    def _started(self) -> ConfinedProcess:
        """Return the sandbox, which is started if there is none.

        Raises:
            OSError: It cannot be started.
        """
        # One that belongs to the process that this one is a fork of, or whose files are so old
        # that the preloaded library would take their times for those that a program has set.
        if self._owner != os.getpid() or time.time_ns() - self._began > _LIFETIME:
            self.close()
        if self._process is None:
            self._began = time.time_ns()
            self._process = ConfinedProcess(
                *(_command(), read_program("sandbox_init.py"), RunSeed(), f"{TOP}/"),
                scripts=_scripts(),
                filtered=False,
            )
            self._owner = os.getpid()
            self._release = weakref.finalize(self, _release, self._process, self._owner)
        return self._process


def _nothing() -> None:
    """Release nothing."""


def _release(process: ConfinedProcess, owner: int) -> None:
    """End a sandbox, unless it belongs to the process that this one is a fork of."""
    if owner == os.getpid():
        process.close()
    else:
        process.abandon()


def run(
    arguments: Sequence[str],
    files: Mapping[str, File],
    cwd: str = TOP,
    limits: Limits = DEFAULT_LIMITS,
    seed: RunSeed = RunSeed(),  # noqa: B008 - it is frozen
) -> ProgramResult:
    """Run one program in a sandbox of its own (see `Workbench.run`).

    Raises:
        SandboxUnavailable: Programs cannot run on this host.
    """
    with Workbench() as bench:
        return bench.run(arguments, files, cwd, limits, seed)


def _encode(
    arguments: Sequence[str],
    files: Mapping[str, File],
    cwd: str,
    limits: Limits,
    seed: RunSeed,
    began: int,
) -> bytes:
    """Return a job as a sandbox that began at some time is sent it: a line of JSON and the bytes of
    the files.
    """
    job = {
        "arguments": list(arguments),
        "cwd": cwd,
        "files": [
            (name, None if file.data is None else len(file.data), file.modified)
            for name, file in files.items()
        ],
        "limits": {
            **resource_limits(limits, limits.memory_mb, _MAX_FILE_BYTES, _OPEN_FILES),
            "RLIMIT_NPROC": 2 * MAX_TASKS,  # where the kernel has no gate; counts ours too
        },
        "folders": {TOP: _TOP_BYTES, "/tmp": _TMP_BYTES, STATE_FOLDER: STATE_BYTES},
        "filter": seccomp(processes=True).hex(),
        "gate": fork_gate().hex(),
        "most_processes": MAX_PROCESSES,
        "most_tasks": MAX_TASKS,
        "state": seed.pack(began).hex(),
        "most_files": _MAX_FILES,
        "most_inodes": MAX_INODES,
        "most_bytes": MAX_BYTES,
        "most_file_bytes": _MAX_FILE_BYTES,
        "seed": int.from_bytes(seed.digest()[16:24], "little"),
    }
    contents = (file.data for file in files.values() if file.data)
    return b"".join([json.dumps(job).encode(), b"\n", *contents])


@functools.cache
def check() -> None:
    """Check that programs can run on this host, with all that they are promised; done once a
    process.

    Raises:
        SandboxUnavailable: They cannot.
    """
    outcome = run([BASH, "-c", _CHECK], {})
    expected = f"{int(RunSeed().now.timestamp())}\n"
    if outcome.stdout != 2 * expected:
        reason = outcome.stderr.strip() or outcome.stopped or f"it printed {outcome.stdout!r}"
        raise SandboxUnavailable(f"programs cannot run on this host: {reason}; {REMEDY}")


# The shell and the interpreter start, and both see the clock of the episode.
_CHECK = "date +%s; python3 -c 'import time; print(int(time.time()))'"


@functools.cache
def _scripts() -> Mapping[str, bytes]:
    folder = Path(__file__).with_name("scripts")
    return {f"/usr/bin/{name}": (folder / f"{name}.py").read_bytes() for name in SCRIPTS}


@functools.cache
def _command() -> tuple[str, ...]:
    """Return the call of `bwrap` up to the first process.

    Raises:
        SandboxUnavailable: No `bwrap` works here, or a program or a package is missing.
    """
    find_bwrap()  # first, as it is what most hosts lack, and the rest takes longer to look for
    tools = {
        name: path.resolve() for name in TOOLS.split() if (path := Path("/usr/bin", name)).exists()
    }
    tools = {name: path for name, path in tools.items() if path.parent == Path("/usr/bin")}
    if missing := [name for name in TOOLS.split() if name not in tools]:
        raise SandboxUnavailable(
            f"programs cannot run on this host: there is no /usr/bin/{missing[0]}; install the "
            "base programs of a Linux distribution (bash, coreutils, findutils, ...)"
        )
    packages = {name: folder for name in PACKAGES if (folder := _package(name))}
    if missing := [name for name in PROMISED_PACKAGES if name not in packages]:
        raise SandboxUnavailable(
            f"programs cannot run on this host: the package {missing[0]} is missing; pip install "
            "'agentgym[office]'"
        )
    modules = [module for path in packages.values() for module in path.rglob("*.so*")]
    programs = [*tools.values(), *modules]
    # It serves runs of several threads of the host, so it must not end with the one that started it;
    # it ends when the host's end of its socket is closed.
    base = [word for word in base_command(programs, packages.values()) if word != DIE_WITH_THREAD]
    command = [*base, *NESTING, "--ro-bind", "/usr/bin", "/programs"]
    for name, path in tools.items():
        command += ["--symlink", f"/programs/{path.name}", f"/usr/bin/{name}"]
    command += ["--symlink", "usr/bin", "/bin", "--symlink", "python3", f"{HOME}/bin/python"]
    for name, path in packages.items():
        command += ["--ro-bind", str(path), f"{_PACKAGES}/{name}"]
    for device in ("null", "zero", "full"):
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for device in ("random", "urandom"):  # pipes, which the first process fills
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
    "OPENBLAS_NUM_THREADS": "1",  # each thread would take memory from the limit
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8" if _LOCALE.is_dir() else "C",
}


def _package(name: str) -> Path | None:
    """Return the path at which a package is installed, if it is."""
    folders = dict.fromkeys(
        [sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *sys.path]
    )
    return next(
        (path for folder in folders if folder and (path := Path(folder, name)).exists()), None
    )
