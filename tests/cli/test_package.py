from __future__ import annotations

import asyncio
import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.text.requirements import DISTRIBUTION
from tests.helpers import run_python


def write(folder: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["package", *words[:1], str(folder), *words[1:]])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("target", ["openenv", "verifiers"])
@pytest.mark.parametrize(("world", "extra"), [("ListWorld", ""), ("NhlB2bAnalysis", ",office")])
def test_a_package_names_the_distribution_with_the_extras_of_its_world(
    tmp_path: Path, target: str, world: str, extra: str
) -> None:
    write(tmp_path / "it", world, "--for", target)
    data = tomllib.loads((tmp_path / "it" / "pyproject.toml").read_text(encoding="utf-8"))
    assert data["project"]["name"] == f"agentgym-{world.lower()}"
    assert data["project"]["dependencies"][0] == f"{DISTRIBUTION}[{target}{extra}]"


def test_a_server_has_the_stack(tmp_path: Path) -> None:
    write(
        tmp_path / "it", "ListWorld", "--for", "openenv", "--set", "oracles=SP", "--set", "items=6"
    )
    text = (tmp_path / "it" / "server" / "app.py").read_text(encoding="utf-8")
    assert "Stack(\"agentgym/ListWorld-v0\", {'items': 6, 'oracles': 'SP'})" in text
    compile(text, "app.py", "exec")


def test_openenv_accepts_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(
        "openenv", "0.10", reason="openenv has an environment of its own: make adapters"
    )
    folder = tmp_path / "it"
    write(folder, "ListWorld", "--for", "openenv", "--set", "items=6")
    report = run_python("-m", "openenv.cli", "validate", str(folder))
    assert "PASS  static.manifest" in report.stdout, report.stdout + report.stderr
    assert "FAIL" not in report.stdout
    monkeypatch.syspath_prepend(str(folder))
    server = importlib.import_module("server.app")
    assert callable(server.app)
    assert callable(server.main)


@pytest.mark.parametrize(
    ("world", "seats"),
    [("ListWorld", ["agent"]), ("ListWorld-team", ["actor_0", "closer_0"])],
)
def test_verifiers_validates_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: str, seats: list[str]
) -> None:
    vf: Any = pytest.importorskip(
        "verifiers.v1", reason="verifiers has an environment of its own: make adapters"
    )
    validate: Any = importlib.import_module("verifiers.v1.cli.validate")
    configs: Any = importlib.import_module("verifiers.v1.configs.cli.validate")
    name = "my-" + "-".join(seats).replace("_", "-")
    write(tmp_path / "it", world, "--for", "verifiers", "--set", "items=6", "--name", name)
    monkeypatch.syspath_prepend(str(tmp_path / "it"))
    config = configs.ValidateConfig.model_validate(
        {
            "taskset": {"id": name, "stop": 2},
            "runtime": {"type": "subprocess"},
            "output_dir": tmp_path,
            "rich": False,
        }
    )
    rows = asyncio.run(validate.run_validate(config))
    assert [row["valid"] for row in rows] == [True, True]
    # `vf-eval` loads an environment with one agent per seat.
    loaded = vf.load_environment(vf.resolve_env_config({"taskset": {"id": name}}))
    assert list(loaded.config.agent_harnesses()) == seats
    module = sys.modules[name.replace("-", "_")]
    (task,) = module.load_environment(range(1), oracles="S").taskset
    assert task.data.options == {"items": 6, "oracles": "S"}
    assert len(list(module.load_environment().taskset.take(3))) == 3, "as the hub calls it"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ListWorld-team", "--for", "openenv"), "is a team, and this bridge plays one agent"),
        (("ListWorld", "--for", "openenv", "--set", "itmes=6"), "has no option 'itmes'"),
        (("ListWorld", "--for", "verifiers", "--name", "My Env"), "--name must be lower-case"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["package", words[0], str(tmp_path / "it"), *words[1:]])
    assert result.exit_code != 0
    assert message in result.output
    assert not (tmp_path / "it").exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = CliRunner().invoke(app, ["package", "ListWorld", str(tmp_path), "--for", "openenv"])
    assert result.exit_code != 0
    assert "already exists" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_hint_names_a_folder_that_pip_does_not_look_up_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["package", "ListWorld", "mine", "--for", "verifiers"])
    assert f"pip install {tmp_path.resolve() / 'mine'}" in result.stdout.replace("\n", "")
