"""Canvas: records that are in an order. The positions of those that one record owns count from 1 without gaps."""

from __future__ import annotations

from agentgym.envs.loca.servers.canvas.fields import integer
from agentgym.envs.loca.servers.store import Store


def open_position(store: Store, table: str, position: int | None, **owner: int) -> int:
    """Return a position that is free, the last by default; the records from there on have moved down.

    Raises:
        ToolError: The position would leave a gap.
    """
    rows = store.find(table, "position", **owner)
    if position is None:
        position = len(rows) + 1
    integer("position", position, 1, len(rows) + 1)
    for row in rows[position - 1 :]:
        store.update(table, row["id"], position=row["position"] + 1)
    return position


def delete_at_position(store: Store, table: str, id: int, **owner: int) -> None:
    """Delete a record; those after it move up."""
    position = store.get(table, id)["position"]
    store.delete(table, id=id)
    for row in store.find(table, "position", **owner):
        if row["position"] > position:
            store.update(table, row["id"], position=row["position"] - 1)
