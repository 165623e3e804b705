#!/python/bin/python3 -sSPB
"""zip: create an archive of files."""

import argparse
import os
import sys
import zipfile
from collections.abc import Iterator


def below(path: str) -> Iterator[str]:
    """Return a path and all paths below it."""
    yield path
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        for name in sorted(os.listdir(path)):  # noqa: PTH208
            yield from below(f"{path.rstrip('/')}/{name}")


def main(words: list[str]) -> int:
    """Create an archive; return the exit status."""
    parser = argparse.ArgumentParser("zip")
    parser.add_argument("-r", action="store_true", help="add what is in folders")
    parser.add_argument("-q", action="store_true", help="print nothing")
    parser.add_argument("archive")
    parser.add_argument("files", nargs="+")
    given = parser.parse_args(words)
    path = given.archive if "." in given.archive.rpartition("/")[2] else f"{given.archive}.zip"
    missing = [name for name in given.files if not os.path.exists(name)]  # noqa: PTH110
    if missing or os.path.exists(path):  # noqa: PTH110
        problem = f"there is no {missing[0]}" if missing else f"{path} exists; remove it first"
        print(f"zip error: {problem}", file=sys.stderr)
        return 15  # Info-ZIP's exit status
    paths: dict[str, None] = {}
    for name in given.files:
        paths |= dict.fromkeys(below(name) if given.r else [name])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in paths:
            stored = os.path.normpath(each).lstrip("/")
            if stored != ".":
                archive.write(each, stored)
                if not given.q:
                    print(f"  adding: {stored}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
