"""Training logged to Weights & Biases with the real package, offline."""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REASON = "wandb is not installed; it comes with verl: make adapters"
torch = pytest.importorskip("torch", reason="needs the extra train")

from agentgym.training.rl import Cloning, CloningConfig  # noqa: E402 - after the check for torch
from tests.training.rl.echo_trainers import Echo, make_words_tokenizer, stop_at, wavering_model  # noqa: E402 - as above
from tests.training.rl.echo_world import make_env  # noqa: E402 - as above


def start(out: Path) -> Cloning:
    tokenizer = make_words_tokenizer()
    config = CloningConfig(steps=4, save_every=2, num_envs=4, episodes=4, wandb=True)
    return Cloning(Echo(), wavering_model(tokenizer, turns=2), tokenizer, make_env, config, out)


def payloads(data: bytes) -> Iterator[bytes]:
    """Yield the records of a `.wandb` file, which has LevelDB's log format after seven bytes."""
    position, payload = 7, b""
    while position + 7 <= len(data):
        left = 32_768 - position % 32_768
        if left < 7:  # the rest of the block is too short for a record
            position += left
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        payload += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a complete record, or the last part of a record
            yield payload
            payload = b""


def recorded(file: Path) -> list[dict[str, Any]]:
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - needs wandb

    steps = []
    for payload in payloads(file.read_bytes()):
        record = Record()
        record.ParseFromString(payload)
        figures = {"_step": record.history.step.num}
        for item in record.history.item:
            figures[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        if record.HasField("history"):
            steps.append(figures)
    return steps


def test_wandb_has_each_step_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason=REASON)
    monkeypatch.setenv("WANDB_MODE", "offline")
    before = torch.get_rng_state(), random.getstate()
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path).train(stop_at(3))
    start(tmp_path).train()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    files = sorted(
        tmp_path.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime
    )
    assert len({file.name for file in files}) == 1, "the resumed training continues the run"
    parts = [recorded(file) for file in files]
    assert [[figures["_step"] for figures in part] for part in parts] == [[1, 2, 3], [3, 4]]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for figures in parts[0] + parts[1]:
        line = lines[figures["_step"] - 1]
        assert line == {name: figures["_step" if name == "step" else name] for name in line}


def test_wandb_without_a_key_is_a_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason=REASON)
    wandb.teardown()  # otherwise, wandb keeps the first settings
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ValueError, match=r"W&B cannot start a run .*set WANDB_MODE=offline"):
        start(tmp_path).train()


def test_wandb_is_an_optional_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"^wandb=True requires a package: pip install wandb \("):
        start(tmp_path).train()
