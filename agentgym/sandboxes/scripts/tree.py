#!/python/bin/python3 -sSPB
"""tree: show folders with their contents."""

import os
import sys

USAGE = "usage: tree [-a] [-d] [-f] [-L LEVELS] [FOLDER ...]"


def branches(folder: str, indent: str, levels: int, flags: set[str], counts: list[int]) -> None:
    """Print the contents of a folder, and count folders and files."""
    if levels == 0:
        return
    entries = [
        entry
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)
        if ("a" in flags or not entry.name.startswith(".")) and ("d" not in flags or entry.is_dir())
    ]
    for entry in entries:
        last = entry is entries[-1]
        is_folder = entry.is_dir(follow_symlinks=False)
        counts[not is_folder] += 1
        print(f"{indent}{'└── ' if last else '├── '}{entry.path if 'f' in flags else entry.name}")
        if is_folder:
            branches(entry.path, indent + ("    " if last else "│   "), levels - 1, flags, counts)


def plural(count: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{count} {one if count == 1 else many}"


def main(words: list[str]) -> int:
    """Show folders; return the exit status."""
    flags: set[str] = set()
    folders, levels = [], -1
    waiting = iter(words)
    for word in waiting:
        if word == "-L":
            number = next(waiting, "")
            if not number.isascii() or not number.isdigit() or int(number) < 1:
                sys.exit("tree: Invalid level, must be greater than 0.")
            levels = int(number)
        elif word.startswith("-") and set(word[1:]) <= set("adf"):
            flags |= set(word[1:])
        elif word.startswith("-"):
            sys.exit(f"tree: Invalid argument {word}\n{USAGE}")
        else:
            folders.append(word)
    counts, status = [0, 0], 0
    for folder in folders or ["."]:
        if os.path.isdir(folder):  # noqa: PTH112 - a path as it was written
            print(folder)
            branches(folder, "", levels, flags, counts)
        else:
            print(f"{folder}  [error opening dir]")
            status = 2
    totals = [plural(counts[0], "directory", "directories")]
    totals += [] if "d" in flags else [plural(counts[1], "file", "files")]
    print(f"\n{', '.join(totals)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
