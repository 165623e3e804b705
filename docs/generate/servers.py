"""Generate a page for each office server, and an index of these pages."""

from __future__ import annotations

from collections.abc import Iterator

import agentgym
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.office import SERVERS, server_class
from agentgym.text.tools import tools_of
from generate.markup import describe, index_page, table, tools_table


def server_pages() -> Iterator[tuple[str, str]]:
    rows = []
    for name in SERVERS:
        tools = [bound.schema for bound in tools_of(server_class(name)()).values()]
        users = sorted(
            entry.world.__name__
            for entry in agentgym.worlds()
            if issubclass(entry.world, OfficeTask) and name in entry.world.servers
        )
        rows.append((f"[`{name}`]({name}.md)", str(len(tools)), str(len(users))))
        tasks = ", ".join(f"[{user}](../worlds/{user}.md)" for user in users) or "none"
        text = [
            f"# {name}",
            describe(server_class(name)),
            f"In the tasks: {tasks}. [Differences from the published server](../loca_servers.md).",
            tools_table(tools),
        ]
        yield f"servers/{name}.md", "\n\n".join(text) + "\n"
    head = (
        "The services of the office tasks. Each can be mounted on any world, and served over MCP: "
        "[the office](../office.md).\n\n"
    )
    yield (
        "servers/index.md",
        index_page("Servers", head + table(("server", "tools", "tasks"), rows), SERVERS),
    )
