"""The reset cache returns the same episodes and stores only complete entries."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import tool_env
from agentgym.world import reset_cache, splits
from agentgym.world.reset_cache import VARIABLE, ResetCache
from tests.world.guess_world import Config as GuessConfig
from tests.world.guess_world import GuessWorld

GRID = {"size": 60, "distance": 20}


@pytest.fixture(autouse=True)
def _stored_however_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reset_cache, "MIN_SECONDS", 0.0)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seeds: list[int] = []

    def draw(world: Any, config: Any, seed: int) -> Any:
        seeds.append(seed)
        instance = world(config, seed)
        instance.generate()
        return instance

    monkeypatch.setattr(reset_cache, "draw", draw)
    return seeds


def episode(env_id: str, options: dict[str, Any], seed: int) -> Iterator[Any]:
    env = agentgym.make(env_id, **options)
    yield env.reset(seed=seed)
    for _ in range(3):
        calls = tool_env(env).world.optimal_calls()
        if not calls:
            return
        yield env.step(agentgym.render(next(iter(calls))))


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("GridWorld", GRID),
        ("ListWorld", {}),
        ("ListWorld", {"split": "test"}),
        ("PuzzleWorld", {}),
        ("TreeWorld", {}),
        ("LongContextQA", {}),
        ("DocumentWorld", {}),
        ("NhlB2bAnalysis", {"size": 6}),
        ("ApplyPhDEmail", {"size": 6}),
    ],
)
def test_an_episode_is_the_same_out_of_the_cache(
    env_id: str,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drawn: list[int],
) -> None:
    expected = list(episode(env_id, options, 3))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "resets"))
    first = list(episode(env_id, options, 3))
    drawn.clear()
    again = list(episode(env_id, options, 3))
    assert not drawn
    assert first == again == expected


def test_it_is_off_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for value in ("", "0"):
        monkeypatch.setenv(VARIABLE, value)
        assert reset_cache.active() is None
    monkeypatch.delenv(VARIABLE)
    assert reset_cache.active() is None
    assert not list(tmp_path.iterdir())


def test_a_folder_of_its_own_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "1")
    reset_cache._open.cache_clear()
    cache = reset_cache.active()
    reset_cache._open.cache_clear()
    assert cache is not None
    assert cache.folder == tmp_path / "agentgym" / "resets"
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    cache.generate(GuessWorld, GuessConfig(), 1)
    assert [path.stat().st_mode & 0o777 for path in cache.folder.iterdir()] == [0o600]


@pytest.mark.parametrize("mode", [0o701, 0o750, 0o777])
def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ValueError, match=r"0700.*chmod 700") as refusal:
        ResetCache(tmp_path)
    assert str(tmp_path) in str(refusal.value)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ValueError, match="your own folder"):
        ResetCache(tmp_path / "link")


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("harm",))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other", "harmful"])
def test_a_damaged_entry_is_drawn_again(
    tmp_path: Path, damage: str, drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = ResetCache(tmp_path / "resets")
    expected = cache.generate(GuessWorld, GuessConfig(), 1)
    (entry,) = cache.folder.iterdir()
    data = entry.read_bytes()
    other = pickle.dumps([1])
    entry.write_bytes(
        {
            "empty": b"",
            "cut": data[:-1],
            "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
            "other": reset_cache._checksum(other) + other,
            "harmful": data[:4] + pickle.dumps(Harmful()),
        }[damage]
    )
    assert vars(cache.generate(GuessWorld, GuessConfig(), 1)).keys() == vars(expected).keys()
    assert drawn == [1, 1]
    assert entry.read_bytes() == data
    assert not (tmp_path / "harm").exists()


def test_an_entry_is_of_one_configuration_seed_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[int]
) -> None:
    cache = ResetCache(tmp_path / "resets")
    for config, seed in ((GuessConfig(), 1), (GuessConfig(), 2), (GuessConfig(highest=50), 1)):
        cache.generate(GuessWorld, config, seed)
    monkeypatch.setattr(reset_cache, "_sources_of", lambda module: "another version")
    cache.generate(GuessWorld, GuessConfig(), 1)
    assert drawn == [1, 2, 1, 1]


def test_a_file_that_an_option_names_is_part_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    states = []
    for text in ("", "one", "three"):
        file.write_text(text)
        states.append(reset_cache._state_of(str(file)))
    assert len({str(state) for state in states}) == 3
    assert [reset_cache._state_of(value) for value in ("no file", "\0", "")] == [[], [], []]
    assert reset_cache._state_of(tmp_path)


def test_it_stays_within_its_bound_and_keeps_what_is_used(tmp_path: Path) -> None:
    size = 4 + len(pickle.dumps(reset_cache.draw(GuessWorld, GuessConfig(), 0), 5))
    cache = ResetCache(tmp_path / "resets", max_bytes=4 * size + 100)
    for seed in range(4):
        cache.generate(GuessWorld, GuessConfig(), seed)
        for k, path in enumerate(sorted(cache.folder.iterdir(), key=os.path.getmtime)):
            os.utime(path, (k, k))
    oldest = min(cache.folder.iterdir(), key=os.path.getmtime)
    cache.generate(GuessWorld, GuessConfig(), 0)  # this makes the entry the newest
    for seed in range(10, 13):
        cache.generate(GuessWorld, GuessConfig(), seed)
    entries = list(cache.folder.iterdir())
    assert sum(path.stat().st_size for path in entries) <= cache.max_bytes
    assert oldest in entries


def test_quick_draws_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reset_cache, "MIN_SECONDS", 60.0)
    cache = ResetCache(tmp_path / "resets")
    cache.generate(GuessWorld, GuessConfig(), 1)
    assert not list(cache.folder.iterdir())


def test_what_cannot_be_pickled_is_drawn(tmp_path: Path, drawn: list[int]) -> None:
    class Local(GuessWorld):
        pass

    cache = ResetCache(tmp_path / "resets")
    for _ in range(2):
        assert isinstance(cache.generate(Local, GuessConfig(), 1), Local)
    assert drawn == [1, 1]
    assert not list(cache.folder.iterdir())


def test_many_writers_leave_whole_entries(tmp_path: Path) -> None:
    cache = ResetCache(tmp_path / "resets", max_bytes=20_000)

    def work() -> None:
        own = ResetCache(cache.folder, max_bytes=20_000)
        for seed in range(60):
            own.generate(GuessWorld, GuessConfig(), seed % 7)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = list(cache.folder.iterdir())
    assert entries
    assert all(isinstance(reset_cache._read(path), GuessWorld) for path in entries)


def test_splits_draw_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[int]
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "resets"))
    for _ in range(2):
        splits.generate(GuessWorld, GuessConfig(), 5)
    assert drawn == [5]
