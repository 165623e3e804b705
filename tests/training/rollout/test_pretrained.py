"""Malformed files in the folder of a model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from agentgym.training.rollout import make_model, make_tokenizer
from agentgym.training.rollout.models.pretrained import find_model, load_model, save_model


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    tokenizer = make_tokenizer(["system user assistant"], 300)
    save_model(make_model(tokenizer, width=16, layers=1, heads=2), tokenizer, folder)
    return folder


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"]
)
@pytest.mark.parametrize("bad", [b"3", b"null", b"[]", b"", b"\xff\xfe\0"])
def test_a_malformed_file_of_a_model_is_one_error(
    good: Path, tmp_path: Path, name: str, bad: bytes
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    load_model(find_model(str(folder)), torch.device("cpu"), torch.float32)
    (folder / name).write_bytes(bad)
    with pytest.raises((ValueError, OSError)):
        load_model(find_model(str(folder)), torch.device("cpu"), torch.float32)
