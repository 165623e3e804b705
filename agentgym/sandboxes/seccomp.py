"""The system call filter for untrusted processes, a seccomp-bpf program."""

from __future__ import annotations

import functools
import platform
import struct
import sys

# For each machine type: the architecture, and five groups of call numbers. The first three groups
# are `clone`; `clone3` and `getrandom`; fork and vfork. The fourth group contains the calls that
# are always refused: socket, ptrace, shmget, semget, msgget, unshare, setns, mount, bpf,
# perf_event_open, userfaultfd, add_key, request_key, keyctl, io_uring_setup, memfd_create,
# process_vm_readv, process_vm_writev, kcmp, pidfd_getfd, memfd_secret, io_setup, personality,
# name_to_handle_at, modify_ldt. The last group contains setxattr, lsetxattr, fsetxattr and
# setxattrat, because in-memory file systems do not limit extended attributes.
_Machine = tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_MACHINES: dict[str, _Machine] = {
    "x86_64": (
        *(0xC000003E, 56, (435, 318), (57, 58)),
        (
            *(41, 101, 29, 64, 68, 272, 308, 165, 321, 298),
            *(323, 248, 249, 250, 425, 319, 310, 311, 312, 438, 447),
            *(206, 135, 303, 154),
        ),
        (188, 189, 190, 463),
    ),
    "aarch64": (
        *(0xC00000B7, 220, (435, 278), ()),
        (
            *(198, 117, 194, 190, 186, 97, 268, 40, 280, 241),
            *(282, 217, 218, 219, 425, 279, 270, 271, 272, 438, 447),
            *(0, 92, 264),
        ),
        (5, 6, 7, 463),
    ),
}
_CLONE_THREAD, _CLONE_NAMESPACES = 0x00010000, 0x7E020000  # flags of `clone`, from <linux/sched.h>


def check_machine() -> _Machine:
    """Return this machine type."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise OSError(f"{sys.platform} on {platform.machine()} is not supported")
    return _MACHINES[platform.machine()]


@functools.cache
def seccomp(*, processes: bool = False) -> bytes:
    """Return a filter that rejects system calls that are risky or use memory that no limit covers.

    The filter reports `clone3`, whose flags it cannot read, and `getrandom` as missing. Instead,
    the C library uses `clone`, and programs without the preloaded library use `/dev/urandom`.
    Programs that copy files tolerate missing support for extended attributes.

    Args:
        processes: Whether to allow new processes; threads are always allowed, new namespaces never.
    """
    architecture, clone, missing, forks, refused, attributes = check_machine()
    # Instruction codes and return values; the last three return EPERM, ENOSYS and EOPNOTSUPP.
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, stop, refuse, absent, unsupported = 0x7FFF0000, 1 << 31, 0x50001, 0x50026, 0x5005F
    # Each instruction consists of a code, the jump offsets for true and false, and an operand.
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, stop)]
    # Call numbers of 2**30 and above are the x32 variants of x86-64 system calls.
    program += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, refuse)]
    for number in missing:
        program += [(equal, 0, 1, number), (give, 0, 0, absent)]
    for number in attributes:
        program += [(equal, 0, 1, number), (give, 0, 0, unsupported)]
    for number in refused if processes else (*forks, *refused):
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    program += [(equal, 0, 3, clone), (load, 0, 0, 16)]
    program += [
        (bits, 0, 1, _CLONE_NAMESPACES) if processes else (bits, 1, 0, _CLONE_THREAD),
        (give, 0, 0, refuse),
    ]
    program.append((give, 0, 0, allow))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
