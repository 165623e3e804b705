"""The ablation: worlds x oracle arms x context strategies x horizons x seeds, recorded as
trajectories.

After LUMINA (section 4.3) for the oracles, LOCA-bench (section 4.2) for the context strategies and
TaskWeaver (section 4) for LORE.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.arguments import list_names
from agentgym.config import Config, TokenCount
from agentgym.messages import Chat
from agentgym.oracles import ARMS
from agentgym.policy import Policy, PolicyError
from agentgym.registry import resolve, spec
from agentgym.stacks import WINDOW, check_arm, check_context
from agentgym.training.evaluation.cell_pool import Lost, play_cells
from agentgym.training.evaluation.scoring import Result, score
from agentgym.training.rollout import (
    CollectionError,
    Collector,
    Episode,
    PolicyConfig,
    RunLock,
    Trajectory,
    TrajectoryLog,
)
from agentgym.training.rollout.engines import describe
from agentgym.training.rollout.episode import Recording
from agentgym.training.rollout.storage import keep_settings, read_settings
from agentgym.world import load_world

SETTINGS = "ablation.json"
TRAJECTORIES = "trajectories.jsonl"
HORIZON = "horizon"
"""The axis that `World.config_for_horizon` reads; any other is an option of the worlds."""

RETRIES = 2
"""The most times that a cell whose worker was killed is played again: a third death of one cell is
no accident.
"""
_AXES = ("world", "arm", "context", "horizon")
"""The labels of a trajectory whose values are listed in the settings, under their plurals."""

Cell = tuple[str, str, str, int, int]
"""World, arm, context strategies, horizon and seed of one episode."""


@dataclass(frozen=True)
class Ablation(Config):
    """Settings of a run. All arms play the same instances, so that their differences are paired.

    Attributes:
        worlds: Ids of worlds, in full or short.
        arms: Oracle arms.
        horizons: The sizes of the tasks, on the axis.
        seeds: Number of instances per world and horizon.
        policy: The policy that plays. A trained model is loaded once, here, and plays episodes of
            a cell together, `policy.model.batch_size` at a time.
        hint_scope: `persistent` or `ephemeral`.
        oracle_options: Arguments of the oracles by letter, as `agentgym.make` takes them.
        shots: Number of in-context examples.
        options: Keyword arguments of the worlds, by world; `""` for all.
        contexts: Context strategies to compare, each several joined by `+`, with arguments as in
            `clear_results:trigger=60k:keep=3`; `none` is the bare window, which trims.
        window: The tokens of the context window; None for no limit, or that of the paper if a
            strategy is asked for.
        axis: The meaning of the sizes: `horizon` for turns that an optimal policy needs, as
            `World.config_for_horizon` reads them, or the name of an option of the worlds.

    Raises:
        ValueError: An id, arm, horizon or option is not right; every combination is checked before
            anything runs.
    """

    worlds: Sequence[str] = ("ListWorld", "TreeWorld", "GridWorld")
    arms: Sequence[str] = ARMS
    horizons: Sequence[int] = (4, 8, 16, 32)
    seeds: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    hint_scope: str = "persistent"
    oracle_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shots: int = 0
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contexts: Sequence[str] = ("none",)
    window: Annotated[int, TokenCount()] | None = None
    axis: str = HORIZON

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("worlds", "arms", "horizons", "contexts"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be given, each once, got {list(values)}")
        if unknown := [name for name in self.options if name and name not in self.worlds]:
            raise ValueError(
                f"options are given for {unknown[0]!r}, which is not among the worlds; "
                f"{list_names(unknown[0], self.worlds, 'worlds')}"
            )
        if any(self.axis in options for options in self.options.values()):
            raise ValueError(
                f"{self.axis} is what sets the sizes of this ablation; give its values as "
                "horizons, not as an option"
            )
        for world in () if self.policy.is_model else self.worlds:
            self.policy.make(resolve(world))
        first = self.worlds[0], self.arms[0], self.horizons[0]
        for world, arm, context, horizon in product(
            self.worlds, self.arms, self.contexts, self.horizons
        ):
            check_arm(arm)
            cell_spec = self.spec(world, arm, context, horizon)
            if ":" in context and (world, arm, horizon) == first:
                # Wrappers check the arguments that the text gives them, whatever the world.
                gymnasium.make(cell_spec, disable_env_checker=True).close()

    def spec(self, world: str, arm: str, context: str, horizon: int) -> EnvSpec:
        """Return the spec of the env of a cell."""
        env_id = resolve(world)
        world_class = load_world(gymnasium.spec(env_id).kwargs["world"])
        sizes = (
            world_class.config_for_horizon(horizon)
            if self.axis == HORIZON
            else {self.axis: horizon}
        )
        given = {**self.options.get("", {}), **self.options.get(world, {})}
        for name in sizes.keys() & given.keys():
            if given[name] != sizes[name]:
                raise ValueError(
                    f"{name}={given[name]!r} contradicts the size {horizon} of {world}, which sets "
                    f"{name}={sizes[name]!r}; leave {name} out, or vary it as the axis"
                )
        options = {**sizes, **given}
        window = (
            WINDOW
            if self.window is None and any(map(check_context, self.contexts))
            else self.window
        )
        managed: dict[str, Any] = {"context": context, "window": window}
        return spec(
            env_id,
            oracles=arm,
            hint_scope=self.hint_scope,
            oracle_options=self.oracle_options,
            shots=self.shots,
            labels=True,
            **managed,
            **options,
        )

    def cells(self) -> list[Cell]:
        """Return all episodes; those that are alike but for the arm stand together."""
        axes = (self.worlds, self.horizons, range(self.seeds), self.arms, self.contexts)
        return [(w, a, c, h, s) for w, h, s, a, c in product(*axes)]

    def play(self, cell: Cell) -> Trajectory:
        """Play one episode; it is a failure if the policy could not reply."""
        world, arm, context, horizon, seed = cell
        env = gymnasium.make(self.spec(world, arm, context, horizon), disable_env_checker=True)
        episode, policy = Episode(env, seed, self.labels(cell)), self.policy.make(world)
        try:
            while not episode.over:
                (reply,) = policy([episode.chat])
                episode.play(reply)
        except PolicyError as error:
            return episode.trajectory(describe(error))
        return episode.trajectory()

    def lost(self, cell: Cell, cause: str) -> Trajectory:
        """Return the trajectory of a cell that could not be played."""
        spec_text = str(self.spec(*cell[:4]).to_json())
        return Recording(spec_text, cell[4], Chat(), self.labels(cell)).trajectory(cause)

    def labels(self, cell: Cell) -> dict[str, Any]:
        """Return the labels of the trajectory of a cell."""
        world, arm, context, horizon, _ = cell
        return {
            "world": world,
            "arm": arm,
            "context": context,
            "horizon": horizon,
            "axis": self.axis,
            "policy": self.policy.name,
        }

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON-able data."""
        return dict(json.loads(json.dumps(asdict(self))))


def run_ablation(
    ablation: Ablation,
    out: Path,
    workers: int,
    on_progress: Callable[[int], None] = lambda episodes: None,
    on_loss: Callable[[Cell, str], None] = lambda cell, cause: None,
    player: Policy | None = None,
) -> list[Result]:
    """Play the episodes that a folder does not hold yet, and score all of them.

    Trajectories are written as they finish, so a run that was killed goes on where it stopped. A
    worker that is killed costs the cell that it was playing: that is played again, at most
    `RETRIES` times, and then lost. So is a cell for which the policy had no reply. Lost cells are
    in the log as failures and are played when the run is started again.

    Args:
        ablation: The settings.
        out: The folder for settings and trajectories; created if missing. Nobody else can write to
            it meanwhile.
        workers: Number of processes; 1 for this one. A trained model plays in this one.
        on_progress: Called with how many more episodes are there; earlier runs' come first.
        on_loss: Called with a cell that was lost and the cause.
        player: The model that `ablation.policy` names, if it is in memory already.

    Raises:
        CollectionError: Cell after cell was lost.
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Somebody else writes to the folder.
        ValueError: The folder holds another ablation.
        OSError: The folder cannot be written.
    """
    log = prepare_ablation(ablation, out)
    with RunLock(out), log.writing():
        done = {_cell(result) for result in load_results(out)}
        on_progress(len(done))
        missing = [cell for cell in ablation.cells() if cell not in done]
        losses = 0
        for cell, line, failure in _play_all(ablation, missing, workers, player):
            log.append(line)
            losses = losses + 1 if failure else 0
            if failure:
                on_loss(cell, failure)
            else:
                on_progress(1)
            if losses > 2 * workers:  # twice over, since all workers may fail together
                raise CollectionError(
                    f"{losses} cells were lost one after the other; the last one: {failure}"
                )
        return _read_results(out)[0]


def load_results(out: Path) -> list[Result]:
    """Return the scores of all trajectories in a folder, in the order of their cells.

    Each cell counts once, the first if an older version wrote it twice; what does not belong to the
    settings of the folder is left out. A warning says so.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
    """
    results, doubles, strays = _read_results(out)
    for count, what in ((doubles, "doubles"), (strays, f"not cells of {SETTINGS}")):
        if count:
            warnings.warn(
                f"{count} trajectories in {out / TRAJECTORIES} are {what} and do not count; to "
                f"move them out: agentgym doctor {out} --repair",
                stacklevel=2,
            )
    return results


def _read_results(out: Path) -> tuple[list[Result], int, int]:
    """Return the results of a folder, and the numbers of doubles and of strays among them."""
    settings = load_settings(out)
    results: dict[Cell, Result] = {}
    doubles = strays = 0
    for trajectory in TrajectoryLog(out / TRAJECTORIES):
        if trajectory.failure:
            continue
        result = score(trajectory)
        if settings is not None and not belongs(trajectory, settings):
            strays += 1
        elif _cell(result) in results:
            doubles += 1
        else:
            results[_cell(result)] = result
    return sorted(results.values(), key=_cell), doubles, strays


def _cell(result: Result) -> Cell:
    return result.world, result.arm, result.context, result.horizon, result.seed


def name_cell(cell: Cell) -> str:
    """Return a cell in words."""
    world, arm, context, horizon, seed = cell
    return f"{world}, arm {arm or 'none'}, context {context}, horizon {horizon}, seed {seed}"


def cell_of(trajectory: Trajectory) -> Cell:
    """Return the cell of a trajectory.

    Raises:
        KeyError: It was not recorded by an ablation.
    """
    world, arm, context, horizon = (trajectory.labels[name] for name in _AXES)
    return world, arm, context, horizon, trajectory.seed


def belongs(trajectory: Trajectory, settings: Mapping[str, Any]) -> bool:
    """Return whether a trajectory is one of a cell of an ablation with these settings."""
    labels = trajectory.labels
    return (
        all(labels.get(name) in settings[f"{name}s"] for name in _AXES)
        and 0 <= trajectory.seed < settings["seeds"]
        and labels.get("axis") == settings["axis"]
        and labels.get("policy") == settings["policy"]["name"]
    )


def load_settings(out: Path) -> dict[str, Any] | None:
    """Return the settings of an ablation as JSON-able data; None if there are none.

    Raises:
        DamagedFileError: They cannot be read.
    """
    return read_settings(out / SETTINGS, Ablation().settings())


def prepare_ablation(ablation: Ablation, out: Path) -> TrajectoryLog:
    """Make the folder of an ablation, or check that it is one.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Somebody else writes to the folder.
        ValueError: The folder holds another ablation.
        OSError: The folder cannot be written.
    """
    log, expected = TrajectoryLog(out / TRAJECTORIES), ablation.settings()
    with RunLock(out):
        settings = load_settings(out)
        if settings is None:
            strays = (t for t in log if not belongs(t, expected))
            if (stray := next(strays, None)) is not None:
                raise ValueError(
                    f"{log.path} holds an episode of another ablation ({stray.labels}, seed "
                    f"{stray.seed}); choose another folder or delete it"
                )
        keep_settings(out / SETTINGS, expected, settings)
    return log


def _play_all(
    ablation: Ablation, cells: Sequence[Cell], workers: int, player: Policy | None
) -> Iterator[_Played]:
    """Yield the lines of cells as they end, and the cause of each that failed."""
    play = partial(_play, ablation)
    if ablation.policy.is_model:
        yield from _play_together(ablation, cells, player)
        return
    if workers == 1:
        yield from map(play, cells)
        return
    size = len(ablation.arms) * len(ablation.contexts)
    batches = [cells[k : k + size] for k in range(0, len(cells), size)]
    for ended in play_cells(play, batches, workers, RETRIES):
        if isinstance(ended, Lost):
            yield ended.cell, ablation.lost(ended.cell, ended.cause).to_json(), ended.cause
        else:
            yield ended


def _play_together(
    ablation: Ablation, cells: Sequence[Cell], player: Policy | None
) -> Iterator[_Played]:
    """Yield the lines of cells that one model plays, those of one env in batches."""
    seeds: dict[tuple[str, str, str, int], list[int]] = {}
    for world, arm, context, horizon, seed in cells:
        seeds.setdefault((world, arm, context, horizon), []).append(seed)
    for cell, some in seeds.items():
        policy = player or ablation.policy.make(cell[0])
        batch = min(len(some), ablation.policy.model.batch_size)
        with Collector(ablation.spec(*cell), batch) as collector:
            for trajectory in collector.collect(policy, some, labels=ablation.labels((*cell, 0))):
                yield (*cell, trajectory.seed), trajectory.to_json(), trajectory.failure


def _play(ablation: Ablation, cell: Cell) -> _Played:
    trajectory = ablation.play(cell)
    return cell, trajectory.to_json(), trajectory.failure


_Played = tuple[Cell, str, str]
"""A cell, the line of its trajectory, and the cause if it failed."""
