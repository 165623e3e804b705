from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from agentgym.office.store import Store
from agentgym.text.tools import ToolError, tools_of
from tests import sampling
from tests.envs.loca.observed import observe
from tests.envs.loca.office import solved
from tests.envs.loca.tasks.test_mutations import CASES, SIZE, Arguments
from tests.laws.test_refusals import PROGRAMS

SCHEMA = """CREATE TABLE parents (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE children (
  id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents(id) ON DELETE CASCADE);"""
TRIES = 3  # number of calls drawn per tool, enough for some calls to succeed


def prints(store: Store, anew: bool = False) -> list[str]:
    if anew:
        return [store._fingerprint(name, store.columns(name)) for name in store.tables()]
    return [store.fingerprint(name) for name in store.tables()]


def store_with_rows() -> Store:
    store = Store(SCHEMA)
    store.insert_all("parents", [{"id": k, "name": f"parent {k}"} for k in range(9)])
    store.insert_all("children", [{"id": k, "parent": k} for k in range(9)])
    prints(store)
    return store


def fail(store: Store) -> None:
    with store.change():
        store.delete("children", id=2)
        prints(store)
        raise KeyError


def undo(store: Store) -> None:
    with store.change():
        store.update("children", 1, parent=5)
        prints(store)
        with pytest.raises(KeyError):
            fail(store)


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.delete("parents", id=3),  # the foreign key also deletes the child
        lambda store: store.delete("children", id=3),
        lambda store: store.delete("children"),
        lambda store: store.insert("children", parent=2),
        lambda store: store.insert_all("parents", [{"id": 77, "name": ""}]),
        lambda store: store.update("parents", 2, name="other"),
        lambda store: store.rows("UPDATE children SET parent = 1 RETURNING *"),
        undo,
    ],
)
def test_a_fingerprint_is_made_anew_after_a_change(change: Any) -> None:
    store = store_with_rows()
    before = prints(store), store.version()
    change(store)
    assert prints(store) == prints(store, anew=True)
    assert prints(store) != before[0]
    assert store.version() != before[1]


def test_a_change_of_one_table_costs_nothing_for_the_others() -> None:
    store, made = store_with_rows(), []

    def make() -> None:
        made.append(True)

    for _ in range(2):
        store.derive("children", ("children",), make)
        store.update("parents", 1, name="other")
        store.delete("parents", id=77)  # no such row exists
        store.find("children")
    assert len(made) == 1


@pytest.mark.family(case=CASES)
def test_the_version_changes_with_whatever_a_call_changes(case: tuple[str, str]) -> None:
    env_id, server_name = case
    world = solved(env_id.removeprefix("agentgym/").removesuffix("-v0"), size=SIZE)
    server = next(each for each in world.office.toolsets() if each.name == server_name)
    rng = random.Random(f"{sampling.current.seed} {case}")
    drawn, seen = Arguments(world, server, rng), observe(world.office)
    for name, bound in tools_of(server).items():
        for _ in range(0 if name.rsplit(".")[-1] in PROGRAMS else TRIES):
            version, arguments = world.office.version(), drawn.of(bound)
            assert version == world.office.version()
            world.outlook.count(world)
            with contextlib.suppress(ToolError):
                world.office.call(name, arguments)
            before, seen = seen, observe(world.office)
            if seen != before:
                assert world.office.version() != version, (name, arguments)
            failures = len(list(world.all_failures()))
            assert world.outlook.count(world) == failures, (name, arguments)
            assert prints(server.store) == prints(server.store, anew=True)
