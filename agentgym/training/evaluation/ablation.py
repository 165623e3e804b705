"""The ablation: worlds x oracle arms x context strategies x horizons x seeds, recorded as
trajectories.

After LUMINA (section 4.3) for the oracles, LOCA-bench (section 4.2) for the context strategies and
TaskWeaver (section 4) for LORE.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.config import Config
from agentgym.oracles import ARMS
from agentgym.registry import resolve, spec
from agentgym.stacks import WINDOW, check_arm, check_context
from agentgym.training.evaluation.scoring import Result, score
from agentgym.training.rollout import PolicyConfig, TrajectoryLog, rollout
from agentgym.training.rollout.workers import follow_the_parent
from agentgym.world import load_world

SETTINGS = "ablation.json"
TRAJECTORIES = "trajectories.jsonl"
HORIZON = "horizon"
"""The axis that `World.config_for_horizon` reads; any other is an option of the worlds."""

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
        policy: The policy that plays.
        hint_scope: `persistent` or `ephemeral`.
        oracle_options: Arguments of the oracles by letter, as `agentgym.make` takes them.
        shots: Number of in-context examples.
        options: Keyword arguments of the worlds, by world; `""` for all.
        contexts: Context strategies to compare, each several joined by `+`; `none` is the bare
            window, which trims.
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
    window: int | None = None
    axis: str = HORIZON

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("worlds", "arms", "horizons", "contexts"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be given, each once, got {list(values)}")
        if unknown := [name for name in self.options if name and name not in self.worlds]:
            raise ValueError(
                f"options are given for {unknown[0]!r}, which is not among the worlds "
                f"{list(self.worlds)}"
            )
        if any(self.axis in options for options in self.options.values()):
            raise ValueError(
                f"{self.axis} is what sets the sizes of this ablation; give its values as "
                "horizons, not as an option"
            )
        for world in self.worlds:
            self.policy.make(resolve(world))
        for world, arm, context, horizon in product(
            self.worlds, self.arms, self.contexts, self.horizons
        ):
            check_arm(arm)
            self.spec(world, arm, context, horizon)

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

    def play(self, cell: Cell) -> str:
        """Play one episode and return the JSON line of its trajectory."""
        world, arm, context, horizon, seed = cell
        env = gymnasium.make(self.spec(world, arm, context, horizon), disable_env_checker=True)
        labels = {
            "world": world,
            "arm": arm,
            "context": context,
            "horizon": horizon,
            "axis": self.axis,
            "policy": self.policy.name,
        }
        return rollout(env, self.policy.make(world), seed, labels).to_json()

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON-able data."""
        return dict(json.loads(json.dumps(asdict(self))))


def run_ablation(
    ablation: Ablation,
    out: Path,
    workers: int,
    on_progress: Callable[[int], None] = lambda episodes: None,
) -> list[Result]:
    """Play the episodes that a folder does not hold yet, and score all of them.

    Trajectories are written as they finish, so a run that was killed goes on where it stopped.

    Args:
        ablation: The settings.
        out: The folder for settings and trajectories; created if missing.
        workers: Number of processes.
        on_progress: Called with how many more episodes are there; earlier runs' come first.

    Raises:
        ValueError: The folder holds another ablation.
        OSError: The folder cannot be written.
    """
    log = prepare_ablation(ablation, out)
    done = {_cell(result) for result in load_results(out)}
    on_progress(len(done))
    missing = [cell for cell in ablation.cells() if cell not in done]
    for lines in _play_all(ablation, missing, workers):
        log.append(*lines)
        on_progress(len(lines))
    return load_results(out)


def load_results(out: Path) -> list[Result]:
    """Return the scores of all trajectories in a folder, in the order of their cells."""
    trajectories = (
        trajectory for trajectory in TrajectoryLog(out / TRAJECTORIES) if not trajectory.failure
    )
    return sorted(map(score, trajectories), key=_cell)


def _cell(result: Result) -> Cell:
    return result.world, result.arm, result.context, result.horizon, result.seed


def prepare_ablation(ablation: Ablation, out: Path) -> TrajectoryLog:
    """Make the folder of an ablation, or check that it is one.

    Raises:
        ValueError: The folder holds another ablation.
        OSError: The folder cannot be written.
    """
    settings = out / SETTINGS
    expected = ablation.settings()
    if settings.exists() and json.loads(settings.read_text(encoding="utf-8")) != expected:
        raise ValueError(
            f"{out} holds an ablation with other settings (see {settings.name}); choose another "
            "folder or delete it"
        )
    out.mkdir(parents=True, exist_ok=True)
    if not settings.exists():
        settings.write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    log = TrajectoryLog(out / TRAJECTORIES)
    log.repair()
    return log


def _play_all(ablation: Ablation, cells: Sequence[Cell], workers: int) -> Iterator[list[str]]:
    """Yield the lines of finished episodes, a batch of cells at a time."""
    size = len(ablation.arms) * len(ablation.contexts)
    batches = [cells[k : k + size] for k in range(0, len(cells), size)]
    if workers == 1:
        yield from (_play(ablation, batch) for batch in batches)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=follow_the_parent) as pool:
        futures: list[Future[list[str]]] = [
            pool.submit(_play, ablation, batch) for batch in batches
        ]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _play(ablation: Ablation, cells: Sequence[Cell]) -> list[str]:
    return [ablation.play(cell) for cell in cells]
