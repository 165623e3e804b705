"""Helpers for commands: completion, errors, option parsing, progress and tables."""

from __future__ import annotations

import json
import re
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import gymnasium
import typer
from gymnasium.envs.registration import EnvSpec
from rich import table as rich_table
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agentgym.assemble.wrapper_stack import strategies
from agentgym.cli.terminal import PlainConsole
from agentgym.play.policy import PolicyError
from agentgym.text.tokens import counter
from agentgym.text.validation import list_names, parse_count
from agentgym.training.evaluation import Table
from agentgym.training.rollout import (
    CollectionError,
    DamagedFileError,
    ModelOptions,
    OtherRunError,
    PolicyConfig,
    RunLockedError,
)
from agentgym.training.rollout.endpoints.config import TRANSPORT
from agentgym.training.rollout.policies import SCRIPTED, read_seats
from agentgym.training.rollout.storage import write_text
from agentgym.world.world import MissingHook

# Labels contain no `:` or `/`, so an `=` in policy options or in a path does not end a label.
_LABEL = re.compile(r"([\w. -]+)=(.+)", re.DOTALL)
_GO_ON = "rerun the command to resume"
# Tables that are redirected to a file or a pipe have a fixed width.
console = PlainConsole(width=None if sys.stdout.isatty() else 140)

OPTION_HELP = "a world option as name=value, e.g. items=20"


def short_id(env_id: str) -> str:
    """Return an id without its namespace and version."""
    return env_id.rpartition("/")[2].removesuffix("-v0")


WorldId = Annotated[
    str, typer.Argument(metavar="ID", help="A world, a preset or a team (agentgym list).")
]
Options = Annotated[list[str], typer.Option("--set", help=f"{OPTION_HELP}; may be repeated.")]
CONTEXT_HELP = (
    f"none, {', '.join(strategies())}; joined by +, optionally with arguments, as in "
    "clear_results:trigger=60k:keep=3+compaction:trigger=0.8:window=96k"
)
Window = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS",
        help="Context window in tokens, such as 96k; longer chats are trimmed.",
    ),
]
_POLICY_HELP = (
    f"{', '.join(SCRIPTED)}, optionally with options, as in noisy:p=0.1:seed=3; a trained model's "
    "folder; package.module:factory, where factory(env_id, **options) returns a policy; or "
    "package.module:policy, where policy(chats) returns a text for each chat."
)
SeatNames = Annotated[
    list[str], f"{_POLICY_HELP} Repeat it as SEAT=policy (player_0=oracle) for each seat of a team."
]
PolicyNames = Annotated[
    list[str],
    f"{_POLICY_HELP} May be repeated; NAME=policy sets the name in tables and figures, and "
    "SEAT=policy (player_0=oracle) one policy for each seat of a team.",
]
Device = Annotated[str | None, "Model device, e.g. cuda; default: a GPU if available."]
DTypeName = Annotated[str | None, "Model dtype: auto, float32, bfloat16 or float16."]
Temperature = Annotated[
    float | None, "Sampling temperature; default: 0 (greedy) for a local model, an endpoint's own."
]
EndpointOptions = Annotated[
    list[str],
    f"An endpoint's option as name=value, e.g. cache=runs/cache; may be repeated. Names: "
    f"{', '.join(TRANSPORT)}. Other options follow the policy's name.",
]
MaxNewTokens = Annotated[
    str | None,
    typer.Option(metavar="TOKENS", help="Maximum reply length in tokens, such as 2k."),
]
BatchSize = Annotated[int | None, "Maximum number of episodes per model batch; default 32."]
Template = Annotated[
    list[str],
    "A chat template variable as name=value, e.g. enable_thinking=false; may be repeated.",
]


def write_templates(folder: Path, files: Mapping[Path, str], words: Mapping[str, str]) -> None:
    """Write filled-in templates to a folder; raise ValueError unless it is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} already exists; choose a new or empty folder")
    for source, place in files.items():
        path = folder / string.Template(place).substitute(words)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8")
        write_text(path, string.Template(text).substitute(words))


def fail(message: str, code: int = 2) -> NoReturn:
    """Print a message to stderr and exit."""
    typer.echo(message, err=True)
    raise typer.Exit(code) from None


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Print user errors in one line and exit with code 2."""
    try:
        yield
    except (ValueError, OSError, MissingHook, gymnasium.error.Error) as error:
        if isinstance(error, OSError) and error.filename and error.strerror:
            fail(f"error: {error.filename}: {error.strerror}; choose another place")
        fail(f"error: {error}")


@contextmanager
def resume_hint(out: Path | None) -> Iterator[None]:
    """Turn errors into an exit code, with a hint to resume if the run has begun."""
    try:
        yield
    except (RunLockedError, DamagedFileError, OtherRunError, MissingHook) as error:
        fail(f"error: {error}")
    except (PolicyError, CollectionError, OSError) as error:
        hint = f"\n{_GO_ON}" if out is not None and out.exists() else ""
        fail(f"error: {error}{hint}", 1)
    except KeyboardInterrupt:
        hint = f"; {_GO_ON}" if out is not None and out.exists() else ""
        fail(f"interrupted{hint}", 130)


def progress_bar() -> Progress:
    """Return a progress bar that shows the completed count and the remaining time."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def show_table(table: Table) -> None:
    """Print a table."""
    title, header, rows = table
    shown = rich_table.Table(title=title, title_justify="left")
    for place, name in enumerate(header):
        shown.add_column(name, overflow="fold", no_wrap=place == 0)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def split(text: str) -> list[str]:
    """Split a string at commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def join_seats(names: Sequence[str], agents: Sequence[str]) -> list[tuple[str, str]]:
    """Return (label, policy) pairs, or one pair if every name sets the policy of a single seat."""
    seats = [list(read_seats(name)) for name in names]
    if all(len(each) == 1 and each[0] in agents for each in seats):
        return [("", ",".join(names))]
    pairs = []
    for name, each in zip(names, seats, strict=True):
        pairs.append(("", name) if len(each) > 1 else split_label(name))
    return pairs


def split_label(text: str) -> tuple[str, str]:
    """Split a label from a string such as `small=runs/train`."""
    found = _LABEL.fullmatch(text)
    if found is None or Path(text).exists():
        return "", text
    return found[1], found[2]


def parse_arms(text: str) -> list[str]:
    """Parse oracle arms; `none` is the arm without oracles."""
    return ["" if arm == "none" else arm for arm in split(text)]


def parse_tokens(name: str, text: str | None) -> int | None:
    """Parse a number of tokens; None if the option is missing."""
    return None if text is None else parse_count(name, text)


def check_window(env_spec: EnvSpec, seed: int) -> None:
    """Raise `ValueError` if an instance's first prompt exceeds the context window."""
    env = gymnasium.make(env_spec, disable_env_checker=True)
    try:
        chat, _ = env.reset(seed=seed)
        info = env.step("")[-1]
    finally:
        env.close()
    if info["detail"].ended == "context_overflow":
        size = counter("cl100k_base").count_chat(chat)
        raise ValueError(
            f"the first prompt of {short_id(env_spec.id)} has about {size} tokens and does not fit "
            "the window; raise --window"
        )


def parse_sizes(text: str) -> list[int]:
    """Parse comma-separated task sizes, such as 4 or 8k."""
    sizes = []
    for part in split(text):
        sizes.append(parse_count("horizons", part))
    return sizes


def model_options(
    device: str | None,
    dtype: str | None,
    temperature: float | None,
    max_new_tokens: str | None,
    batch_size: int | None,
    template: list[str],
) -> ModelOptions:
    """Return a model's options, with defaults for arguments that are None."""
    given: dict[str, Any] = {
        "device": device,
        "dtype": dtype,
        "temperature": temperature,
        "batch_size": batch_size,
    }
    return ModelOptions(
        **without_none(given),
        max_new_tokens=parse_tokens("max_new_tokens", max_new_tokens),
        template=parse_options(template, "--template"),
    )


def without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, which are not None."""
    return {name: value for name, value in options.items() if value is not None}


def endpoint_options(options: list[str]) -> dict[str, Any]:
    """Parse the endpoint options that do not affect replies."""
    parsed = parse_options(options, "--endpoint")
    for name in parsed:
        if name not in TRANSPORT:
            raise ValueError(
                f"--endpoint has no option {name!r}; {list_names(name, TRANSPORT, 'options')}; "
                "options that affect replies follow the policy's name, as in :top_p=0.9"
            )
    return parsed


def policy_configs(
    names: Iterable[tuple[str, str]], model: ModelOptions, endpoint: list[str]
) -> list[PolicyConfig]:
    """Return the settings of policies, given (label, policy) pairs; two may not share a column."""
    transport = endpoint_options(endpoint)
    policies = {}
    for label, name in names:
        policy = PolicyConfig(name, model=model, label=label, transport=transport)
        if policy.column in policies:
            raise ValueError(
                f"{policy.column} names two policies; set distinct names (NAME=policy)"
            )
        policies[policy.column] = policy
    return list(policies.values())


def parse_options(options: list[str], flag: str = "--set") -> dict[str, Any]:
    """Parse repeated name=value options."""
    parsed: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ValueError(f"{flag} must be name=value, got {option!r}")
        if name in parsed:
            raise ValueError(f"{flag} sets {name} twice; set it once")
        parsed[name] = _parse_value(value)
    return parsed


def parse_world_options(options: list[str], *, taken: Sequence[str]) -> dict[str, Any]:
    """Parse world options; reject options that the command sets itself."""
    parsed = parse_options(options)
    for path in parsed:
        name = path.rpartition(".")[2]
        if name in taken:
            raise ValueError(f"--set {path}: the command sets {name} itself; see its --help")
    return parsed


def _parse_value(text: str) -> Any:
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
