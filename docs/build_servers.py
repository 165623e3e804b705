"""Write docs/loca_servers.md: a comparison of each office tool with the published tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentgym.office.office import SERVERS
from tests.office.published import Difference, differences, facts

HEAD = """# Differences between the office servers and the published servers

<!-- Written by `make docs` from tests/office/published. -->

The office servers offer the tools of the servers published with LOCA-bench, with the same names.
Parameters, and the keys and types of JSON results, are the same except as listed on this page. A
test calls every tool and compares the format of the result with the published format. The wording
of descriptions and messages is new. Where a published server is broken or returns wrong facts, the
office server follows the real service. In all servers

* a refused call returns an error that explains the reason, and changes nothing;
* a tool refuses every call if the simulated account lacks the tool's feature;
* listing the items of an unknown course, folder or bucket returns an error, not an empty list;
* permissions are checked where the real service checks them;
* the clock shows the task's own time, not the host's time.

"""


def page() -> str:
    return HEAD + "\n".join(section(name) for name in SERVERS)


def section(server: str) -> str:
    meant = differences(server)
    same = [f"`{tool}`" for tool in facts(server) if tool not in meant]
    text = f"## {server}\n"
    if same:
        text += f"\nTools that work as published: {', '.join(same)}.\n"
    refused = [f"`{tool}`" for tool, difference in meant.items() if difference.disabled]
    if refused:
        text += f"\nTools that refuse every call: {', '.join(refused)}.\n"
    if meant:
        text += "\n| tool | differs because | how |\n|---|---|---|\n"
        text += "".join(
            f"| `{tool}` | {difference.because.replace('|', chr(92) + '|')} "
            f"| {'; '.join(parts(difference))} |\n"
            for tool, difference in meant.items()
            if not difference.disabled
        )
    return text


def parts(difference: Difference) -> Iterator[str]:
    for title, paths in (
        ("more keys", difference.added),
        ("without", difference.lacking),
        ("other types", difference.types),
        ("parameters", difference.params),
        ("always empty", difference.empty),
    ):
        if paths:
            yield f"{title}: {', '.join(f'`{path}`' for path in sorted(paths))}"


if __name__ == "__main__":
    (Path(__file__).parent / "loca_servers.md").write_text(page(), encoding="utf-8")
