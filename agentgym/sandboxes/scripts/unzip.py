#!/python/bin/python3 -sSPB
"""unzip: list or extract an archive."""

import fnmatch
import os
import sys
import zipfile
from typing import NoReturn

USAGE = "usage: unzip [-l] [-p] [-t] [-o] [-n] [-q] [-j] ARCHIVE [FILE ...] [-d FOLDER]"
_NO_MATCH, _NO_ARCHIVE, _BAD_ARGUMENTS = 11, 9, 10  # exit statuses of Info-ZIP


def stop(status: int, message: str) -> NoReturn:
    """Exit with an error."""
    print(f"unzip:  {message}", file=sys.stderr)
    sys.exit(status)


def show(path: str, entries: list[zipfile.ZipInfo]) -> None:
    """List the contents of an archive."""
    print(f"Archive:  {path}\n  Length      Date    Time    Name")
    print("---------  ---------- -----   ----")
    for info in entries:
        year, month, day, hour, minute, _ = info.date_time
        moment = f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}"
        print(f"{info.file_size:9}  {moment}   {info.filename}")
    size, count = sum(info.file_size for info in entries), len(entries)
    print("---------                     -------")
    print(f"{size:9}                     {count} file{'' if count == 1 else 's'}")


def unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: str, flags: set[str]) -> str:
    """Extract a file; return a line about it."""
    parts = [part for part in info.filename.split("/") if part not in ("", ".", "..")]
    target = os.path.join(folder, *(parts[-1:] if "j" in flags else parts))  # noqa: PTH118
    if info.is_dir():
        if "j" in flags or os.path.isdir(target):  # noqa: PTH112
            return ""
        os.makedirs(target)  # noqa: PTH103
        return f"   creating: {target}/"
    if os.path.exists(target) and "o" not in flags:  # noqa: PTH110
        return "" if "n" in flags else f"  skipping: {target}  (exists; -o replaces it)"
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)  # noqa: PTH103, PTH120
    with open(target, "wb") as file:  # noqa: PTH123
        file.write(archive.read(info))
    return f"{'  inflating' if info.compress_type else ' extracting'}: {target}"


def carry_out(archive: zipfile.ZipFile, path: str, patterns: list[str], folder: str, flags: set[str]) -> int:  # fmt: skip
    """Process the matching files as the flags demand; return the exit status."""
    entries = [
        info
        for info in archive.infolist()
        if not patterns or any(fnmatch.fnmatchcase(info.filename, each) for each in patterns)
    ]
    if not entries:
        print(f"caution: filename not matched:  {' '.join(patterns)}", file=sys.stderr)
        return _NO_MATCH if patterns else 0
    if "l" in flags:
        show(path, entries)
        return 0
    if "p" in flags:
        for info in entries:
            sys.stdout.buffer.write(archive.read(info))
        return 0
    lines = [f"Archive:  {path}"]
    for info in entries:
        if "t" in flags:
            archive.read(info)
        lines.append(
            f"    testing: {info.filename}   OK"
            if "t" in flags
            else unpack(archive, info, folder, flags)
        )
    lines += [f"No errors detected in compressed data of {path}."] if "t" in flags else []
    if "q" not in flags:
        print("\n".join(filter(None, lines)))
    return 0


def main(words: list[str]) -> int:
    """List or extract an archive; return the exit status."""
    flags: set[str] = set()
    names: list[str] = []
    folder = ""
    waiting = iter(words)
    for word in waiting:
        if word == "-d":
            folder = next(waiting, "")
        elif word.startswith("-") and set(word[1:]) <= set("lptonqj"):
            flags |= set(word[1:])
        elif word.startswith("-"):
            stop(_BAD_ARGUMENTS, f"{word} is not supported\n{USAGE}")
        else:
            names.append(word)
    if not names:
        stop(_BAD_ARGUMENTS, f"no archive is given\n{USAGE}")
    path = names[0] if os.path.exists(names[0]) else f"{names[0]}.zip"  # noqa: PTH110
    try:
        with zipfile.ZipFile(path) as archive:
            return carry_out(archive, path, names[1:], folder, flags)
    except FileNotFoundError:
        stop(_NO_ARCHIVE, f"cannot find or open {names[0]} or {names[0]}.zip.")
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        stop(_NO_ARCHIVE, f"{path}: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
