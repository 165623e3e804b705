#!/python/bin/python3 -sSPB
"""zip: add files to an archive."""

import fnmatch
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator
from typing import NoReturn

USAGE = "usage: zip [-r] [-j] [-q] [-0..-9] ARCHIVE FILE ... [-x PATTERN ...]"
_BAD_ARCHIVE, _NOTHING_TO_DO, _BAD_ARGUMENTS = 3, 12, 16  # exit statuses of Info-ZIP


def stop(status: int, message: str) -> NoReturn:
    """Exit with an error."""
    print(f"\nzip error: {message}", file=sys.stderr)
    sys.exit(status)


def below(path: str, recurse: bool) -> Iterator[str]:
    """Return a path and all paths below it."""
    yield path
    if recurse and os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        for name in sorted(os.listdir(path)):  # noqa: PTH208
            yield from below(f"{path.rstrip('/')}/{name}", recurse)


def stored_name(path: str, flags: set[str]) -> str:
    """Return a file's name in the archive; empty if it is excluded."""
    name = os.path.normpath(path).lstrip("/")
    if "j" in flags:
        return "" if os.path.isdir(path) else os.path.basename(name)  # noqa: PTH112, PTH119
    name = "" if name == "." else name
    return f"{name}/" if name and os.path.isdir(path) else name  # noqa: PTH112


def entry(path: str, name: str, flags: set[str]) -> tuple[zipfile.ZipInfo, bytes]:
    """Return a file's archive entry."""
    info = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
    if info.is_dir():
        return info, b""
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read()
    shorter = "0" not in flags and len(zlib.compress(data)) < len(data)
    info.compress_type = zipfile.ZIP_DEFLATED if shorter else zipfile.ZIP_STORED
    return info, data


def members(path: str) -> dict[str, tuple[zipfile.ZipInfo, bytes]]:
    """Return the entries of an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename: (info, archive.read(info)) for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        stop(_BAD_ARCHIVE, f"Zip file structure invalid ({path}: {error})")


def write(target: str, entries: dict[str, tuple[zipfile.ZipInfo, bytes]], quiet: bool) -> None:
    """Write an archive, keeping existing entries with other names."""
    old = members(target) if os.path.exists(target) else {}  # noqa: PTH110
    with zipfile.ZipFile(f"{target}.new", "w") as archive:
        for name, (info, data) in {**old, **entries}.items():
            archive.writestr(info, data)
            if name in entries and not quiet:
                saved = 100 - round(100 * info.compress_size / max(info.file_size, 1))
                how = f"deflated {saved}%" if info.compress_type else "stored 0%"
                print(f"{'updating' if name in old else '  adding'}: {name} ({how})")
    os.replace(f"{target}.new", target)  # noqa: PTH105


def parse(words: list[str]) -> tuple[set[str], list[str], list[str]]:
    """Return the flags, the archive with the files, and the exclusion patterns."""
    flags: set[str] = set()
    names: list[str] = []
    excluded: list[str] = []
    target = names
    for word in words:
        if word == "-x":
            target = excluded
        elif word.startswith("-") and set(word[1:]) <= set("rjq0123456789"):
            flags |= set(word[1:])
        elif word.startswith("-"):
            stop(_BAD_ARGUMENTS, f"Invalid command arguments ({word} is not supported)\n{USAGE}")
        else:
            target.append(word)
    if not names:
        stop(_BAD_ARGUMENTS, f"Invalid command arguments\n{USAGE}")
    return flags, names, excluded


def main(words: list[str]) -> int:
    """Create or extend an archive; return the exit status."""
    flags, names, excluded = parse(words)
    archive = names[0] if "." in names[0].rpartition("/")[2] else f"{names[0]}.zip"
    entries = {}
    for name in names[1:]:
        if not os.path.exists(name):  # noqa: PTH110
            print(f"\tzip warning: name not matched: {name}", file=sys.stderr)
        for path in below(name, "r" in flags) if os.path.exists(name) else ():  # noqa: PTH110
            stored = stored_name(path, flags)
            if stored and not any(fnmatch.fnmatchcase(stored, pattern) for pattern in excluded):
                entries[stored] = entry(path, stored, flags)
    if not entries:
        stop(_NOTHING_TO_DO, f"Nothing to do! ({archive})")
    write(archive, entries, "q" in flags)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
