"""Finalizers release resources, even in a thread that holds a lock that the finalizers need."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import agentgym
from agentgym.office import store
from agentgym.office.warehouse import database
from agentgym.play import shared_chats
from agentgym.training.rollout.endpoints import config, connection, endpoint


class EagerLock:
    """A lock that collects garbage on each acquisition and raises instead of deadlocking."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise RuntimeError("deadlock: a thread waits for itself")
        self._lock.acquire()
        self._owner = threading.get_ident()
        gc.collect()

    def __exit__(self, *error: object) -> None:
        self._owner = 0
        self._lock.release()


class EagerThreading(ModuleType):
    Lock = EagerLock

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class IdleClient:
    def __init__(self, **options: Any) -> None:
        pass

    async def close(self) -> None:
        pass


class Endpoint(endpoint.HttpPolicy[Any]):
    client = IdleClient

    def __init__(self) -> None:
        super().__init__(config.EndpointOptions(model="idle", base_url="http://127.0.0.1:1"))
        self.connection.open()


def open_database() -> database.DuckDBSession:
    return database.DuckDBSession("bigquery")


MAKERS: dict[ModuleType, Callable[[], object]] = {
    database: open_database,
    connection: Endpoint,
    shared_chats: lambda: shared_chats.SharedChats(2),
    store: lambda: store.Store("CREATE TABLE t (id INTEGER PRIMARY KEY)"),
}


@pytest.mark.parametrize("module", MAKERS, ids=lambda module: module.__name__)
def test_what_is_dropped_is_released_under_any_lock(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    if hasattr(module, "threading"):
        monkeypatch.setattr(module, "threading", EagerThreading("threading"))
    make = MAKERS[module]
    gc.freeze()  # excludes older objects from garbage collection
    cycle: list[Any] = [make()]
    dropped = weakref.ref(cycle[0])
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        assert dropped() is not None
        others = [make() for _ in range(2)]
        gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    assert dropped() is None
    assert not raised
    del others


def test_a_dropped_database_is_closed_by_the_next_request() -> None:
    for _ in range(3):
        cycle: list[Any] = [open_database()]
        cycle.append(cycle)
    del cycle
    gc.collect()
    process = database._process()
    assert process.closed
    open_database().close()
    assert len(process.closed) == 1


def test_an_interrupted_request_costs_no_other_database_more_than_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    first = open_database()
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            first.request("execute", [])
    assert not first.process.usable
    second = open_database()
    assert second.request("read", [], "SELECT 1 AS a", 1, 9)[2] == [(1,)]
    second.close()


def test_each_finalizer_of_the_package_is_tried() -> None:
    root = Path(agentgym.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    found = {
        path
        for path, source in sources.items()
        if "weakref.finalize(" in source or "def __del__" in source
    }
    assert found == {Path(str(module.__file__)) for module in MAKERS}
