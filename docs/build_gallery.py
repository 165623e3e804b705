"""Write docs/gallery.md and its figures: `python docs/build_gallery.py [NAME ...]`.

The script runs the commands shown on the page in runs/gallery, where finished episodes remain, and
saves each figure in light and dark colours. `--page` only rewrites the page.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE, FOLDER = DOCS / "gallery.md", DOCS / "gallery"
RUNS = DOCS.parent / "runs" / "gallery"
# For each theme of the site, the strings to replace in an SVG to change the colours.
THEMES = {
    "light": {},
    "dark": {"#ffffff": "#131416", "#000000": "#cfd0d0", "<text ": '<text fill="#cfd0d0" '},
}
HEAD = """# Gallery of figures

<!-- Written by `docs/build_gallery.py`; edit docs/gallery/figures.toml instead. -->

Each figure comes with the command that draws it; scripted policies play the episodes. A report
contains every figure as PNG, SVG and PDF. Figures are 3.4 or 6.9 inches wide, for one or two
columns of a page. Text is at least 7 points high, uses TrueType fonts, and is selectable. The
caption names the policy, the number of instances, and the sizes or contexts over which the figure
averages. `--policy NAME=POLICY` sets the policy name that the figures show.

`python docs/build_gallery.py` runs the commands and writes this page.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw; all by default")
    parser.add_argument("--page", action="store_true", help="only rewrite the page")
    given = parser.parse_args()
    figures = tomllib.loads((FOLDER / "figures.toml").read_text(encoding="utf-8"))
    for name, figure in figures.items():
        if not given.page and (not given.names or name in given.names):
            draw(name, figure)
    PAGE.write_text(HEAD + "".join(map(section, figures, figures.values())), encoding="utf-8")


def draw(name: str, figure: dict[str, Any]) -> None:
    """Run a figure's commands and save the SVG in the colours of each theme."""
    RUNS.mkdir(parents=True, exist_ok=True)
    for command in figure["commands"]:
        subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=RUNS, check=True)
    text = (RUNS / figure["file"]).read_text(encoding="utf-8")
    for theme, colours in THEMES.items():
        for light, other in colours.items():
            text = text.replace(light, other)
        (FOLDER / f"{name}-{theme}.svg").write_text(text, encoding="utf-8")


def section(name: str, figure: dict[str, Any]) -> str:
    lines = ["", f"## {figure['title']}", "", figure["text"].strip(), ""]
    lines += ["```bash", *figure["commands"], "```", ""]
    for theme in THEMES:
        lines += [f"```{{image}} gallery/{name}-{theme}.svg"]
        lines += [f":alt: {figure['alt']}", f":class: only-{theme}", "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
