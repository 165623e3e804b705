"""Find programs' shared libraries by reading their files.

`ldd` would run the dynamic linker for each, which takes seconds on a busy host.
"""

from __future__ import annotations

import functools
import mmap
import os
import platform
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"  # 64-bit little-endian, as on all supported machines
_SEGMENT = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_ENTRY = struct.Struct("<qQ")  # Elf64_Dyn
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3  # kinds of segments
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29  # tags of the dynamic section
_LDCONFIG = "/sbin/ldconfig"  # often not on a user's path
# A line of its cache, such as `libm.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libm.so.6`.
_CACHED = re.compile(r"^\s*(\S+) \(([^)]*)\) => (.+)$", re.MULTILINE)
_ARCHITECTURES = {"x86_64": "x86-64", "aarch64": "AArch64"}
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")  # searched last, as by the linker


@dataclass(frozen=True, slots=True)
class _Binary:
    """The requirements of one program or library; only programs have a `linker`."""

    linker: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def shared_libraries(files: Iterable[Path], within: Iterable[Path] = ()) -> dict[str, Path]:
    """Find the libraries that the dynamic linker loads for programs and modules.

    Folders `within` are mounted as a whole, including their libraries.

    Returns:
        The file of each library by name, except those missing on the host, and the absolute
        paths of the dynamic linkers.
    """
    folders = tuple(f"{folder.resolve()}{os.sep}" for folder in within)
    result: dict[str, Path] = {}
    waiting: list[tuple[Path, tuple[str, ...]]] = [(path, ()) for path in files]
    seen: set[Path] = set()
    while waiting:
        path, inherited = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        binary = _read(path)
        if binary.linker:
            result[binary.linker] = Path(binary.linker)
        rpath = binary.rpath or inherited
        for name in binary.needed:
            if library := _find(name, path, binary, rpath):
                if not str(library.resolve()).startswith(folders):
                    result.setdefault(name, library)
                waiting.append((library, rpath))
    return result


def _read(path: Path) -> _Binary:
    """Read a file's headers; a file that is not a program has no requirements."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data) if data[:6] == _MAGIC else _Binary()
    except (OSError, ValueError, struct.error):  # empty, unreadable or truncated
        return _Binary()


def _parse(data: mmap.mmap) -> _Binary:
    table, size, count = (
        struct.unpack_from("<Q", data, 32)[0],
        *struct.unpack_from("<HH", data, 54),
    )
    segments = [_SEGMENT.unpack_from(data, table + k * size) for k in range(count)]
    linker = ""
    tags: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length, *_ in segments:
        if kind == _INTERPRETER:
            linker = data[offset : offset + length].rstrip(b"\0").decode()
        elif kind == _DYNAMIC:
            tags = list(_ENTRY.iter_unpack(data[offset : offset + length // 16 * 16]))
    end = next((k for k, (tag, _) in enumerate(tags) if tag == 0), len(tags))
    address = next((value for tag, value in tags[:end] if tag == _STRINGS), 0)
    strings = next(
        (
            address - start + offset
            for kind, _, offset, start, _, length, *_ in segments
            if kind == _LOAD and start <= address < start + length
        ),
        0,
    )

    def texts(wanted: int) -> Iterator[str]:
        for tag, value in tags[:end]:
            if tag == wanted:
                start = strings + value
                yield data[start : data.find(b"\0", start)].decode()

    return _Binary(linker, tuple(texts(_NEEDED)), _split(texts(_RPATH)), _split(texts(_RUNPATH)))


def _split(paths: Iterator[str]) -> tuple[str, ...]:
    return tuple(folder for path in paths for folder in path.split(":") if folder)


def _find(name: str, owner: Path, binary: _Binary, rpath: tuple[str, ...]) -> Path | None:
    if "/" in name:
        return Path(name) if Path(name).is_file() else None
    origin = str(owner.resolve().parent)
    own = () if binary.runpath else rpath
    environment = _split(iter([os.environ.get("LD_LIBRARY_PATH", "")]))
    for folder in (*own, *environment, *binary.runpath):
        path = Path(re.sub(r"\$\{?ORIGIN\}?", lambda _: origin, folder), name)
        if path.is_file():
            return path
    if name in _cache():
        return Path(_cache()[name])
    return next((path for folder in _FOLDERS if (path := Path(folder, name)).is_file()), None)


@functools.cache
def _cache() -> dict[str, str]:
    """Return the system's libraries by name, from the linker's cache."""
    try:
        done = subprocess.run([_LDCONFIG, "-p"], capture_output=True, text=True, check=False)
    except OSError:  # not every system has a cache
        return {}
    libraries: dict[str, str] = {}
    for name, kinds, path in _CACHED.findall(done.stdout):
        if _ARCHITECTURES[platform.machine()] in kinds:
            libraries.setdefault(name, path)
    return libraries


def executable() -> Path:
    """Return the running interpreter's file, or its virtual environment's base interpreter."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()
