#!/python/bin/python3 -sSPB
"""unzip: list or extract an archive."""

import os
import sys
import zipfile
from typing import NoReturn

USAGE = "usage: unzip [-l] [-o] [-q] ARCHIVE [-d FOLDER]"
_NO_ARCHIVE, _BAD_ARGUMENTS = 9, 10  # exit statuses of Info-ZIP


def stop(status: int, message: str) -> NoReturn:
    """Exit with an error."""
    print(f"unzip:  {message}", file=sys.stderr)
    sys.exit(status)


def unpack(archive: zipfile.ZipFile, folder: str, replaces: bool) -> list[str]:
    """Extract an archive; return a line per entry."""
    lines = []
    for info in archive.infolist():
        target = os.path.join(folder, info.filename)  # noqa: PTH118
        if os.path.exists(target) and not replaces:  # noqa: PTH110
            lines.append(f"  skipping: {target}  (exists; -o replaces it)")
        else:
            lines.append(f"  inflating: {archive.extract(info, folder)}")
    return lines


def main(words: list[str]) -> int:
    """List or extract an archive; return the exit status."""
    flags: set[str] = set()
    names: list[str] = []
    folder = ""
    waiting = iter(words)
    for word in waiting:
        if word == "-d":
            folder = next(waiting, "")
        elif word.startswith("-") and set(word[1:]) <= set("loq"):
            flags |= set(word[1:])
        elif word.startswith("-"):
            stop(_BAD_ARGUMENTS, f"{word} is not supported\n{USAGE}")
        else:
            names.append(word)
    if len(names) != 1:
        stop(_BAD_ARGUMENTS, f"it takes one archive\n{USAGE}")
    path = names[0] if os.path.exists(names[0]) else f"{names[0]}.zip"  # noqa: PTH110
    try:
        with zipfile.ZipFile(path) as archive:
            if "l" in flags:
                archive.printdir()
                return 0
            lines = unpack(archive, folder, "o" in flags)
    except FileNotFoundError:
        stop(_NO_ARCHIVE, f"cannot find or open {names[0]} or {names[0]}.zip.")
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        stop(_NO_ARCHIVE, f"{path}: {error}")
    if "q" not in flags:
        print("\n".join([f"Archive:  {path}", *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
