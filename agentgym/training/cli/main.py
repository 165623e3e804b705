"""The command line: list, play, rollout, ablate, train, score, export, longbench, gsm, serve."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table
except ImportError:
    sys.exit("error: the command line needs its extra: pip install 'agentgym[cli]'")

import gymnasium

from agentgym.envs.loca.config import LENGTHS
from agentgym.messages import Chat
from agentgym.oracles import ARMS
from agentgym.oracles.control import Deficits
from agentgym.parsing import parse
from agentgym.policy import PolicyError
from agentgym.registry import make, resolve, spec, teams, worlds
from agentgym.stacks import strategies
from agentgym.training.cli import train as cli_train
from agentgym.training.cli.export import add_export
from agentgym.training.cli.gsm import add_gsm
from agentgym.training.cli.longbench import add_longbench
from agentgym.training.cli.serve import add_serve
from agentgym.training.evaluation.ablation import PRESETS, Ablation, prepare, results, run
from agentgym.training.evaluation.report import tables, write_report
from agentgym.training.evaluation.scoring import Result
from agentgym.training.rollout.collector import ENGINES, CollectionError, Collector
from agentgym.training.rollout.policies import PolicyConfig
from agentgym.training.rollout.trajectory import Trajectory, TrajectoryLog
from agentgym.world import MissingHook, check_choice

app = typer.Typer(
    help="Long-horizon text worlds for training and examining LLM agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# Tables in a file or a pipe keep their width; a terminal's own width is used there.
console = Console(width=None if sys.stdout.isatty() else 140)
_STRATEGIES = ", ".join(strategies())
_ARMS = ",".join(arm or "none" for arm in ARMS)
_PRESET = f"What the next four are unless given: {', '.join(PRESETS)}."
_SIZES = "Sizes, by commas: turns of an optimal policy; operations (presets of LORE); tokens, such as 8k (loca)."
_EXAMPLE = "an option of the world as name=value, e.g. items=20"

Oracles = Annotated[str, typer.Option(help="Which oracles help: letters of P (plan), S (state), H (history).")]
Options = Annotated[list[str], typer.Option("--set", help=f"{_EXAMPLE}; may be repeated.")]
Window = Annotated[int | None, typer.Option(help="Tokens of the context window; what does not fit is trimmed.")]
Seed = Annotated[int, typer.Option(help="Seed of the first instance.")]
PolicyName = Annotated[
    str, typer.Option(help="control, oracle, noisy, random, the folder of a trained model, or package.module:factory.")
]
Noise = Annotated[float, typer.Option(help="Error rate of the noisy policy.")]
Planning = Annotated[float, typer.Option(help="Planning deficit of the control agent, in [0, 1].")]
Tracking = Annotated[float, typer.Option(help="Tracking deficit of the control agent, in [0, 1].")]
Distraction = Annotated[float, typer.Option(help="Distraction deficit of the control agent, in [0, 1].")]


def main() -> None:
    """The entry point of the `agentgym` command."""
    sys.path.insert(0, str(Path.cwd()))  # so that --policy finds a module of the user's
    app()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Turn what is wrong with the user's input into one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError, MissingHook, gymnasium.error.Error) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def _told_how_to_go_on() -> Iterator[None]:
    """Say that a run which was interrupted, or whose endpoint or workers broke down, can be taken up again."""
    try:
        yield
    except (PolicyError, CollectionError) as error:
        typer.echo(f"error: {error}\nthe same command goes on from here", err=True)
        raise typer.Exit(1) from None
    except MissingHook as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on from here", err=True)
        raise typer.Exit(130) from None


@app.command("list")
def list_worlds() -> None:
    """List the worlds with their presets, and the teams."""
    for entry in (*worlds(presets=True), *teams()):
        options = " ".join(f"{name}={value}" for name, value in entry.options.items())
        typer.echo(f"{entry.id:34} {options or entry.summary}")


@app.command()
def play(
    env_id: str,
    seed: Seed = 0,
    oracles: Oracles = "",
    options: Options = [],  # noqa: B006 - typer's form of a repeated option
) -> None:
    """Play a world yourself in the terminal. Type a call such as pop(id=3); Ctrl-D ends."""
    with _clear_errors():
        env = make(env_id, oracles=oracles, **_parse_options(options))
    chat, _ = env.reset(seed=seed)
    typer.echo(chat.to_text())
    over = False
    shown: dict[str, int] = {}  # by system message, which tells the agents of a team apart
    while not over:
        try:
            line = input("\n> ")
        except EOFError:
            typer.echo("\nleft before the end")
            return
        shown[chat.messages[0].text] = len(chat.messages)
        chat, reward, terminated, truncated, info = env.step(_as_reply(line))
        over = terminated or truncated
        typer.echo("\n" + Chat(_news(chat, shown.get(chat.messages[0].text, -1))).to_text())
    typer.echo(f"\n{'solved' if info['success'] else 'not solved'} in {info['turn']} turns, score {reward}")
    for fault in (info["detail"].report or {}).get("faults", ()):
        typer.echo(f"- {fault}")


@app.command()
def rollout(
    env_id: str,
    policy: PolicyName = "oracle",
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 1,
    seed: Seed = 0,
    oracles: Oracles = "",
    context: Annotated[str, typer.Option(help=f"Context strategies, joined by +: {_STRATEGIES}.")] = "none",
    window: Window = None,
    options: Options = [],  # noqa: B006
    noise: Noise = 0.1,
    planning: Planning = 0.0,
    tracking: Tracking = 0.0,
    distraction: Distraction = 0.0,
    num_envs: Annotated[int, typer.Option(help="The most episodes that are played at once.")] = 1,
    engine: Annotated[str, typer.Option(help=f"What plays them: {', '.join(ENGINES)}.")] = "lockstep",
    timeout: Annotated[float | None, typer.Option(help="Seconds after which a step is given up, with its episode.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the trajectories to this JSONL file; what it holds is not played again.")
    ] = None,
    show: Annotated[bool, typer.Option(help="Print the last chat of each episode.")] = False,
) -> None:
    """Let a policy play a world. With --out, the same command goes on where it was stopped."""
    with _clear_errors():
        config = PolicyConfig(policy, noise=noise, deficits=Deficits(planning, tracking, distraction))
        player = config.make(resolve(env_id))
        asked = spec(env_id, oracles=oracles, labels=True, context=context, window=window, **_parse_options(options))
        collector = Collector(asked, num_envs, engine=engine, timeout=timeout)
        played = collector.collect(player, range(seed, seed + episodes), out, {"policy": policy})
        if out is not None:
            TrajectoryLog(out).prepare()
    solved = broken = 0
    with _told_how_to_go_on(), collector, _progress() as progress:
        for trajectory in progress.track(played, total=episodes, description="episodes"):
            solved += not trajectory.failure and trajectory.steps[-1].info["success"]
            broken += bool(trajectory.failure)
            progress.console.print(_in_a_line(trajectory), highlight=False)
            if show:
                progress.console.print(trajectory.last.to_text(), markup=False, highlight=False)
    typer.echo(f"solved {solved} of {episodes - broken}" + (f"; {broken} broke and are not counted" if broken else ""))


def _in_a_line(trajectory: Trajectory) -> str:
    if trajectory.failure:
        return f"seed {trajectory.seed}: {trajectory.failure}"
    return f"seed {trajectory.seed}: score {trajectory.reward}, {trajectory.steps[-1].info['turn']} turns"


@app.command()
def ablate(
    preset: Annotated[str, typer.Option("--preset", "--suite", help=_PRESET)] = "lumina",
    world: Annotated[str | None, typer.Option(help="Worlds, separated by commas.")] = None,
    arms: Annotated[str | None, typer.Option(help=f"Oracle arms, separated by commas; all: {_ARMS}.")] = None,
    horizons: Annotated[str | None, typer.Option("--horizons", "--lengths", help=_SIZES)] = None,
    seeds: Annotated[int | None, typer.Option(help="Instances per world and horizon.")] = None,
    policy: PolicyName = "control",
    planning: Planning = 0.02,
    tracking: Tracking = 0.01,
    distraction: Distraction = 0.002,
    noise: Noise = 0.1,
    hint_scope: Annotated[str, typer.Option(help="persistent or ephemeral.")] = "persistent",
    shots: Annotated[int, typer.Option(help="In-context examples.")] = 0,
    context: Annotated[str, typer.Option(help=f"Context strategies to compare, by commas: none, {_STRATEGIES}; or a+b.")] = "none",
    window: Window = None,
    options: Annotated[list[str], typer.Option("--set", help=f"{_EXAMPLE}, or World.name=value for one world.")] = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Folder for trajectories, results and figures.")] = Path("runs/ablation"),
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = os.cpu_count() or 1,
) -> None:
    """Run the ablation of oracles and context strategies; started again, it goes on where it was stopped."""
    with _clear_errors():
        ablation = Ablation(
            **_of_preset(preset, world, arms, horizons, seeds, window, options),
            policy=PolicyConfig(policy, noise=noise, deficits=Deficits(planning, tracking, distraction)),
            hint_scope=hint_scope,
            shots=shots,
            contexts=_split(context),
        )
        prepare(ablation, out)
    with _progress() as progress, _told_how_to_go_on():
        task = progress.add_task("episodes", total=len(ablation.cells()))
        rows = run(ablation, out, workers, lambda episodes: progress.advance(task, episodes))
    _report(rows, out)


def _of_preset(
    preset: str, world: str | None, arms: str | None, sizes: str | None, seeds: int | None, window: int | None, options: list[str]
) -> dict[str, Any]:
    """What a preset leaves to an ablation, with what the user has given in its place or, for options, besides."""
    check_choice("preset", preset, list(PRESETS))
    chosen = dict(PRESETS[preset])
    if world is not None:
        chosen["worlds"] = _split(world)
    if arms is not None:
        chosen["arms"] = ["" if arm == "none" else arm for arm in _split(arms)]
    if sizes is not None:
        chosen["horizons"] = [LENGTHS.get(text.lower()) or _integer("horizons", text) for text in _split(sizes)]
    chosen |= {name: value for name, value in (("seeds", seeds), ("window", window)) if value is not None}
    given, held = _options_by_world(options), chosen.get("options", {})
    return {**chosen, "options": {name: {**held.get(name, {}), **given.get(name, {})} for name in {**held, **given}}}


@app.command()
def train(
    world: Annotated[str, typer.Option(help="The world to learn.")] = "ListWorld",
    horizons: Annotated[str, typer.Option(help="Turns of an optimal policy in training, separated by commas.")] = "3",
    arms: Annotated[str, typer.Option(help="Oracle arms in training, by commas; the first is the one of the curve.")] = "none",
    context: Annotated[str, typer.Option(help=f"Context strategies in training, by commas: none, {_STRATEGIES}; or a+b.")] = "none",
    window: Window = None,
    options: Options = [],  # noqa: B006
    noise: Annotated[float, typer.Option(help="Error rate of the teacher, in each step.")] = 0.2,
    cloning: Annotated[int, typer.Option(help="Steps of cloning in the first arm and context.")] = 600,
    hints: Annotated[int, typer.Option(help="Steps of cloning in all arms and contexts after it.")] = 300,
    rl: Annotated[int, typer.Option(help="Steps of reinforcement learning (GRPO) after it.")] = 120,
    episodes: Annotated[int, typer.Option(help="Held-out episodes of each evaluation.")] = 100,
    seed: Annotated[int, typer.Option(help="Seeds the weights and all that is drawn.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the model, its checkpoints and its learning curve.")] = Path("runs/train"),
) -> None:
    """Train a small transformer from nothing: cloning, then GRPO. Started again, it goes on where it was stopped."""
    with _clear_errors():
        learning = cli_train.prepare(
            world=world,
            horizons=[_integer("horizons", text) for text in _split(horizons)],
            arms=["" if arm == "none" else arm for arm in _split(arms)],
            contexts=_split(context),
            window=window,
            options=_parse_options(options),
            noise=noise,
            cloning_steps=cloning,
            hint_steps=hints,
            rl_steps=rl,
            episodes=episodes,
            seed=seed,
            out=out,
        )
    with _progress() as progress, _told_how_to_go_on():
        written = cli_train.run(learning, progress)
    typer.echo("wrote " + ", ".join(map(str, written)))


@app.command("score")
def score_folder(folder: Annotated[Path, typer.Argument(help="A folder that `agentgym ablate` wrote.")]) -> None:
    """Score the trajectories of an ablation again, and make its tables and figures anew."""
    with _clear_errors():
        with console.status("scoring trajectories"):
            rows = results(folder)
        if not rows:
            raise ValueError(f"{folder} holds no trajectories; run: agentgym ablate --out {folder}")
    _report(rows, folder)


def _report(rows: list[Result], out: Path) -> None:
    with console.status("tables and figures"):
        written = write_report(rows, out)
    for title, header, lines in tables(rows):
        table = Table(title=title, title_justify="left")
        for place, name in enumerate(header):
            table.add_column(name, overflow="fold", no_wrap=place == 0)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    typer.echo("wrote " + ", ".join(str(path) for path in written))


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _integer(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{name} must be whole numbers separated by commas, got {text!r}")
    return int(text)


def _parse_options(options: list[str]) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes name=value, got {option!r}")
        parsed[name] = _value(value)
    return parsed


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _options_by_world(options: list[str]) -> dict[str, dict[str, Any]]:
    by_world: dict[str, dict[str, Any]] = {}
    for path, value in _parse_options(options).items():
        world, _, name = path.rpartition(".")
        by_world.setdefault(world, {})[name] = value
    return by_world


def _as_reply(line: str) -> str:
    """What a person typed, as a reply: a bare call gets the fence that the env expects."""
    return line if parse(line).calls else f"```python\n{line}\n```"


def _news(chat: Chat, shown: int) -> tuple[Any, ...]:
    """What came after the reply that was just typed; all of it where the history is pruned."""
    return tuple(chat.messages[shown + 1 :]) or tuple(chat.messages[-1:])


add_export(app, _clear_errors, _parse_options)
add_longbench(app, _clear_errors, _told_how_to_go_on, console)
add_gsm(app, _clear_errors)
add_serve(app, _clear_errors, _parse_options)

if __name__ == "__main__":
    main()
