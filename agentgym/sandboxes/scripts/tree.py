#!/python/bin/python3 -sSPB
"""tree: show folders with their contents."""

import os
import sys

USAGE = "usage: tree [-a] [-L LEVELS] [FOLDER ...]"


def branches(folder: str, indent: str, levels: int, hidden: bool, counts: list[int]) -> None:
    """Print the contents of a folder, and count folders and files."""
    if levels == 0:
        return
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    entries = [entry for entry in entries if hidden or not entry.name.startswith(".")]
    for entry in entries:
        last = entry is entries[-1]
        is_folder = entry.is_dir(follow_symlinks=False)
        counts[not is_folder] += 1
        print(f"{indent}{'└── ' if last else '├── '}{entry.name}")
        if is_folder:
            branches(entry.path, indent + ("    " if last else "│   "), levels - 1, hidden, counts)


def main(words: list[str]) -> int:
    """Show folders; return the exit status."""
    folders, levels, hidden = [], -1, False
    waiting = iter(words)
    for word in waiting:
        if word == "-L":
            number = next(waiting, "")
            if not number.isascii() or not number.isdigit() or int(number) < 1:
                sys.exit("tree: Invalid level, must be greater than 0.")
            levels = int(number)
        elif word == "-a":
            hidden = True
        elif word.startswith("-"):
            sys.exit(f"tree: Invalid argument {word}\n{USAGE}")
        else:
            folders.append(word)
    counts, status = [0, 0], 0
    for folder in folders or ["."]:
        if os.path.isdir(folder):  # noqa: PTH112 - a path as it was written
            print(folder)
            branches(folder, "", levels, hidden, counts)
        else:
            print(f"{folder}  [error opening dir]")
            status = 2
    directories = "directory" if counts[0] == 1 else "directories"
    print(f"\n{counts[0]} {directories}, {counts[1]} {'file' if counts[1] == 1 else 'files'}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
