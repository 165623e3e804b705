#!/python/bin/python3 -sSPB
"""zip: create an archive of files."""

import os
import sys
import zipfile
from collections.abc import Iterator
from typing import NoReturn

USAGE = "usage: zip [-r] [-q] ARCHIVE FILE ..."
_NOTHING_TO_DO, _CANNOT_CREATE, _BAD_ARGUMENTS = 12, 15, 16  # exit statuses of Info-ZIP


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


def members(names: list[str], recurse: bool) -> dict[str, str]:
    """Return the paths to store, by their names in the archive."""
    paths: dict[str, str] = {}
    for name in names:
        if not os.path.exists(name):  # noqa: PTH110
            print(f"\tzip warning: name not matched: {name}", file=sys.stderr)
            continue
        for path in below(name, recurse):
            stored = os.path.normpath(path).lstrip("/")
            if stored != ".":
                paths[stored] = path
    return paths


def main(words: list[str]) -> int:
    """Create an archive; return the exit status."""
    flags: set[str] = set()
    names: list[str] = []
    for word in words:
        if word.startswith("-") and set(word[1:]) <= set("rq"):
            flags |= set(word[1:])
        elif word.startswith("-"):
            stop(_BAD_ARGUMENTS, f"Invalid command arguments ({word} is not supported)\n{USAGE}")
        else:
            names.append(word)
    if not names:
        stop(_BAD_ARGUMENTS, f"Invalid command arguments\n{USAGE}")
    target = names[0] if "." in names[0].rpartition("/")[2] else f"{names[0]}.zip"
    if os.path.exists(target):  # noqa: PTH110
        stop(_CANNOT_CREATE, f"{target} exists; name another archive or remove it")
    paths = members(names[1:], "r" in flags)
    if not paths:
        stop(_NOTHING_TO_DO, f"Nothing to do! ({target})")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for stored, path in paths.items():
            archive.write(path, stored)
            if "q" not in flags:
                print(f"  adding: {stored}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
