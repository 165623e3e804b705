"""The filter of system calls for processes that nobody trusts, as a program for the kernel
(seccomp-bpf).
"""

from __future__ import annotations

import functools
import platform
import struct
import sys
from collections.abc import Sequence

# What a kind of machine calls itself, the number of `clone`, those of `clone3` and `getrandom`, those
# of fork and vfork, and those of the calls that are always refused: socket, ptrace, shmget, semget, msgget, unshare,
# setns, mount, bpf, perf_event_open, userfaultfd, add_key, request_key, keyctl, io_uring_setup,
# memfd_create, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd.
_Machine = tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_MACHINES: dict[str, _Machine] = {
    "x86_64": (
        *(0xC000003E, 56, (435, 318), (57, 58)),
        (
            *(41, 101, 29, 64, 68, 272, 308, 165, 321, 298),
            *(323, 248, 249, 250, 425, 319, 310, 311, 312, 438),
        ),
    ),
    "aarch64": (
        *(0xC00000B7, 220, (435, 278), ()),  # it has neither fork nor vfork
        (
            *(198, 117, 194, 190, 186, 97, 268, 40, 280, 241),
            *(282, 217, 218, 219, 425, 279, 270, 271, 272, 438),
        ),
    ),
}
_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020000  # flags of `clone`, from <linux/sched.h>


def check_machine() -> _Machine:
    """Return this kind of machine.

    Raises:
        OSError: There is no filter for it.
    """
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise OSError(f"{sys.platform} on {platform.machine()} is not supported")
    return _MACHINES[platform.machine()]


@functools.cache
def fork_gate() -> bytes:
    """Return a filter that asks a listener before a process or thread is started."""
    _, clone, _, forks, _ = check_machine()
    load, equal, give, ask, allow = 0x20, 0x15, 0x06, 0x7FC00000, 0x7FFF0000
    program = [(load, 0, 0, 0)]
    for number in (clone, *forks):
        program += [(equal, 0, 1, number), (give, 0, 0, ask)]
    return _pack([*program, (give, 0, 0, allow)])


def _pack(program: Sequence[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


@functools.cache
def seccomp(*, processes: bool = False) -> bytes:
    """Return a filter of system calls that keep memory out of sight or are risky.

    `clone3`, whose flags a filter cannot read, is absent, so that the C library falls back to
    `clone`; so is `getrandom`, which the preloaded library answers, so that what does without the
    library falls back to `/dev/urandom`.

    Args:
        processes: Whether processes may be started; threads always may. Namespaces never may.
    """
    architecture, clone, missing, forks, refused = check_machine()
    # Codes of instructions, and what the filter may return: the last two with the errors EPERM and
    # ENOSYS.
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, stop, refuse, absent = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
    # Each instruction: code, how many to skip if true, if false, operand.
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, stop)]
    # Numbers from 2**30 are the x32 calls of x86-64, by which the same calls could be made under
    # other numbers.
    program += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, refuse)]
    for number in missing:
        program += [(equal, 0, 1, number), (give, 0, 0, absent)]
    for number in refused if processes else (*forks, *refused):
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    program += [(equal, 0, 3, clone), (load, 0, 0, 16)]
    program += [
        (bits, 0, 1, _CLONE_NAMESPACES) if processes else (bits, 1, 0, _CLONE_THREAD),
        (give, 0, 0, refuse),
    ]
    return _pack([*program, (give, 0, 0, allow)])
