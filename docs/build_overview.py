"""Draw docs/overview.png: an episode with its hints, and the ablation of the control agent.

`python docs/build_overview.py` reads the success rates from docs/ablation.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

import agentgym
from agentgym import Message
from agentgym.oracles import OraclePolicy

DOCS = Path(__file__).parent
COLOURS = {"user": "#2f7de1", "assistant": "#2e9f5b", "tool": "#c98a1b"}
ARMS = ("none", "S", "P", "SP", "SH", "SPH")
# Characters per line of the chat panel.
WIDTH = 84


def messages() -> list[Message]:
    env = agentgym.make("ListWorld", oracles="SP", items=6, removals=2)
    chat, _ = env.reset(seed=3)
    (reply,) = OraclePolicy("ListWorld")([chat])
    chat, *_ = env.step(reply.text)
    return [message for message in chat.messages if message.role != "system"]


def rates() -> dict[str, list[tuple[float, float, float]]]:
    text = (DOCS / "ablation.md").read_text(encoding="utf-8")
    worlds = re.findall(r"^\| oracles \| (.*) \|$", text, re.MULTILINE)[0].split(" | ")
    rows = [re.findall(rf"^\| {arm} \| (.*) \|$", text, re.MULTILINE)[0] for arm in ARMS]
    cells = [[tuple(map(float, re.findall(r"[\d.]+", c))) for c in r.split(" | ")] for r in rows]
    return {world: [row[k] for row in cells] for k, world in enumerate(worlds)}  # type: ignore[misc]


def draw_chat(panel: Any) -> None:
    panel.set_axis_off()
    panel.set(xlim=(0, 1), ylim=(0, 1))
    top = 1.0
    for message in messages():
        text = (message.raw or message.text).strip().replace("\n\n", "\n")
        lines = [part for line in text.split("\n") for part in wrap(line, WIDTH) or [""]]
        height = 0.0297 * len(lines) + 0.058
        panel.add_patch(_box(top - height, height, COLOURS[message.role]))
        panel.text(0.03, top - 0.012, message.role.upper(), va="top", fontsize=6.5, color="#666666")
        panel.text(
            0.03, top - 0.045, "\n".join(lines).replace("$", r"\$"), va="top", fontsize=7.2,
            family="monospace", linespacing=1.25, color="#1b1b1b",
        )  # fmt: skip
        top -= height + 0.018
    panel.set_title("What the policy sees: the chat, with a plan and a state hint", loc="left")


def _box(bottom: float, height: float, colour: str) -> Any:
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415 - beside its only use

    return FancyBboxPatch(
        (0.012, bottom), 0.97, height, boxstyle="round,pad=0,rounding_size=0.01",
        facecolor="#f7f7f8", edgecolor=colour, linewidth=1.1,
    )  # fmt: skip


def draw_rates(panel: Any, world: str, cells: list[tuple[float, float, float]]) -> None:
    for place, (rate, low, high) in enumerate(cells):
        colour = "#9aa0a6" if place == 0 else "#2f7de1"
        panel.barh(place, rate, color=colour, height=0.62)
        panel.plot((low, high), (place, place), color="#1b1b1b", linewidth=1.1)
    panel.set(yticks=range(len(ARMS)), yticklabels=ARMS, xlim=(0, 103))
    panel.invert_yaxis()
    panel.set_title(world, loc="left")
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    with rc_context({"font.size": 8, "axes.titlesize": 8.5}):
        figure = Figure(figsize=(10, 4.9), dpi=160, layout="constrained", facecolor="white")
        grid = figure.add_gridspec(3, 2, width_ratios=(1.45, 1))
        draw_chat(figure.add_subplot(grid[:, 0]))
        for row, (world, cells) in enumerate(rates().items()):
            panel = figure.add_subplot(grid[row, 1])
            draw_rates(panel, world, cells)
        panel.set_xlabel("success (%) of an agent with three planted deficits, by oracle arm")
        figure.savefig(DOCS / "overview.png", metadata={"Software": None})


if __name__ == "__main__":
    main()
