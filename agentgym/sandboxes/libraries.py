"""Find programs' shared libraries."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

# The dynamic linkers, by machine type. `ldd` starts a shell for each program, which takes seconds.
_LINKERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
# A line such as `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)`.
_LISTED = re.compile(r"^\s*(\S+) => (/.*) \(0x", re.MULTILINE)


def shared_libraries(files: Iterable[Path], within: Iterable[Path] = ()) -> dict[str, Path]:
    """Return the shared libraries that programs and modules need, except those in the folders
    `within`.

    The result maps each library's name to its path on the host, and the dynamic linker's path to
    itself. Missing libraries are omitted. Raises OSError if the linker is missing.
    """
    linker = _LINKERS[platform.machine()]
    folders = tuple(f"{folder.resolve()}{os.sep}" for folder in within)
    result = {linker: Path(linker)}
    for path in files:
        listed = subprocess.run(
            [linker, "--list", str(path)], capture_output=True, text=True, check=False
        )
        for name, library in _LISTED.findall(listed.stdout):
            if not str(Path(library).resolve()).startswith(folders):
                result.setdefault(name, Path(library))
    return result


def executable() -> Path:
    """Return the path of the base interpreter, even in a virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()
