from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agentgym.cli import app

BASE = {
    "ablate": [
        *("--world", "ListWorld", "--oracles", "none", "--horizons", "4", "--episodes", "1"),
        *("--workers", "1", "--policy", "oracle"),
    ],
    "rollout": ["ListWorld"],
    "play": ["ListWorld"],
    "train": ["--model", "nowhere"],
}
ABSURD = ("0", "-1", "nan", "inf", "1e400", "1.5", "x", "", "9" * 30)
COMMANDS = vars(typer.main.get_command(app))["commands"]


def numeric_options() -> list[str]:
    found = []
    for command in BASE:
        for parameter in COMMANDS[command].params:
            name = parameter.opts[-1]
            is_number = parameter.type_descriptor.annotation in (int, float)
            is_number = is_number or parameter.metavar == "TOKENS"
            if is_number or name in ("--horizons", "--price"):
                found.append(f"{command} {name}")
    return found


def run(command: str, *options: str) -> tuple[int, str, str]:
    base = BASE[command]
    for option in options:
        if (name := option.partition("=")[0]) in base:
            place = base.index(name)
            base = base[:place] + base[place + 2 :]
    shown = CliRunner().invoke(app, [command, *base, *options], input="")
    if shown.exception is not None and not isinstance(shown.exception, SystemExit):
        raise shown.exception
    return shown.exit_code, shown.stdout, shown.stderr


@pytest.mark.family(option=numeric_options(), value=list(ABSURD))
def test_an_absurd_number_is_one_sentence_or_a_run(
    option: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, name = option.split()
    code, out, error = run(command, f"{name}={value}")
    if code == 0:
        assert "nan" not in out
        return
    sentence = error.strip().splitlines()[-1]
    assert sentence.lower().startswith(("error: ", "the budget is exhausted; "))
    assert "Traceback" not in error


@pytest.mark.parametrize("option", ["ablate --episodes", "ablate --context", "rollout --seed"])
def test_a_doubled_option_is_one_sentence(option: str) -> None:
    command, name = option.split()
    code, _, error = run(command, f"{name}=1", f"{name}=2")
    assert code == 2
    assert error.strip().splitlines()[-1].endswith(f"{name} is given 2 times; give it once")


@pytest.mark.parametrize("window", ["1", "10", "300"])
@pytest.mark.parametrize("command", ["ablate", "rollout"])
def test_a_window_below_the_first_prompt_is_refused(
    command: str, window: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in (f"--window={window}", f"--context=none:window={window}"):
        code, _, error = run(command, option)
        assert code == 2
        assert "does not fit the window; raise --window" in error
