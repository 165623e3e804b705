#!/python/bin/python3 -sSPB
"""unzip: list or extract an archive."""

import argparse
import os
import sys
import zipfile


def main(words: list[str]) -> int:
    """List or extract an archive; return the exit status."""
    parser = argparse.ArgumentParser("unzip")
    parser.add_argument("-l", action="store_true", help="list the archive")
    parser.add_argument("-o", action="store_true", help="replace files")
    parser.add_argument("-q", action="store_true", help="print nothing")
    parser.add_argument("-d", default="", metavar="FOLDER", help="the folder to extract to")
    parser.add_argument("archive")
    given = parser.parse_args(words)
    path = given.archive if os.path.exists(given.archive) else f"{given.archive}.zip"  # noqa: PTH110
    lines = [f"Archive:  {path}"]
    try:
        with zipfile.ZipFile(path) as archive:
            if given.l:
                archive.printdir()
                return 0
            for info in archive.infolist():
                target = os.path.join(given.d, info.filename)  # noqa: PTH118
                if os.path.exists(target) and not given.o:  # noqa: PTH110
                    lines.append(f"  skipping: {target}  (exists; -o replaces it)")
                else:
                    lines.append(f"  inflating: {archive.extract(info, given.d)}")
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        print(f"unzip:  cannot open {path}: {error}", file=sys.stderr)
        return 9  # Info-ZIP's exit status
    if not given.q:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
