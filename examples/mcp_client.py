"""MCP: an agent framework in another process plays an episode and gets a score.

`agentgym serve` offers an episode on stdin and stdout to the client of the package `mcp`. With
--out, each call is recorded as a turn.

Needs: pip install 'agentgym-suite[mcp,cli]'

Prints: the task, the calls with their results, and the score.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

from mcp import Client, StdioServerParameters

from agentgym.training.evaluation import Result, load_results


def choose_calls(task: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the calls that solve ListWorld; replace this function with your agent."""
    initial, target = (re.findall(r"\d+", line) for line in re.findall(r"list: (.*)", task))
    place = 0
    for item in initial:
        if place < len(target) and item == target[place]:
            place += 1
        else:
            yield "pop", {"id": place}
    yield "done", {}


async def play(server: StdioServerParameters) -> None:
    """Play one episode over MCP."""
    async with Client(server) as client:
        print(client.instructions)
        print("tools:", [tool.name for tool in (await client.list_tools()).tools])
        for name, arguments in choose_calls(client.instructions or ""):
            result = await client.call_tool(name, arguments)
            print(name, arguments, "->", result.content[0].text)


def main(arguments: Sequence[str] | None = None) -> list[Result]:
    """Play an episode and return its score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", default="4", help="turns of an optimal policy")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--out", type=Path, help="folder of the run; a temporary one by default")
    given = parser.parse_args(arguments)
    out = given.out or Path(mkdtemp())
    command = ["-m", "agentgym", "serve", "ListWorld", "--stdio", "--horizons", given.horizon]
    more = ["--seed", given.seed, "--agent", "mine", "--out", str(out)]
    asyncio.run(play(StdioServerParameters(command=sys.executable, args=[*command, *more])))
    results = load_results(out)
    print("success:", [result.success for result in results])
    return results


if __name__ == "__main__":
    main()
