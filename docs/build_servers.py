"""Write docs/loca_servers.md: how each tool of the office compares with the published one.

`make docs` runs it, and a test compares the committed page with what it would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentgym.office.office import SERVERS
from tests.office.published import Difference, differences, facts

HEAD = """# The office and the published servers

<!-- Written by `make docs` from tests/office/published. -->

The servers of the office have the tools of those that LOCA-bench publishes: the same names and
parameters, and answers of the same form, JSON with the same keys and types where it is JSON. A test
calls every tool and compares. Sentences are ours, and where a published server is broken or says
what is not so, ours does what the real service does; such tools are named here. In all servers

* a call that is refused is flagged as an error, its text says what is wrong, and nothing has changed;
* an unknown parent of a list (a course, a folder, a bucket) is an error, not an empty list;
* rights are checked where the real service checks them;
* the time is that of the task.

"""


def page() -> str:
    """Return the page, a section a server."""
    return HEAD + "\n".join(section(name) for name in SERVERS)


def section(server: str) -> str:
    """Return the section of a server: what is the same in a sentence, the rest in a table."""
    meant = differences(server)
    same = [f"`{tool}`" for tool in facts(server) if tool not in meant]
    text = f"## {server}\n"
    if same:
        text += f"\nAs published: {', '.join(same)}.\n"
    if meant:
        text += "\n| tool | differs because | how |\n|---|---|---|\n"
        text += "".join(
            f"| `{tool}` | {difference.because.replace('|', chr(92) + '|')} "
            f"| {'; '.join(parts(difference))} |\n"
            for tool, difference in meant.items()
        )
    return text


def parts(difference: Difference) -> Iterator[str]:
    """Yield what differs, in words."""
    for title, paths in (
        ("more keys", difference.added),
        ("without", difference.lacking),
        ("other types", difference.types),
        ("parameters", difference.params),
    ):
        if paths:
            yield f"{title}: {', '.join(f'`{path}`' for path in sorted(paths))}"


if __name__ == "__main__":
    (Path(__file__).parent / "loca_servers.md").write_text(page(), encoding="utf-8")
