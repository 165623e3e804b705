"""Ablations: worlds x oracle arms x context strategies x horizons x seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Annotated, Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.assemble.registry import resolve, spec
from agentgym.assemble.wrapper_stack import WINDOW, check_arm, check_context
from agentgym.oracles import ARMS
from agentgym.play.policy import PolicyError
from agentgym.text.messages import Chat
from agentgym.text.validation import list_names
from agentgym.training.evaluation.scoring import hash_prompt
from agentgym.training.rollout import Episode, PolicyConfig, Trajectory
from agentgym.training.rollout.episode import Recording
from agentgym.training.rollout.faults import describe
from agentgym.training.rollout.policies import tokens_by_ids
from agentgym.training.rollout.seat_policies import adapt, agents_of, check_seats
from agentgym.training.rollout.user_policy import UserPolicy
from agentgym.world.config import Config, TokenCount
from agentgym.world.world import load_world

# The default axis, which `World.config_for_horizon` reads; other axes are world options.
HORIZON = "horizon"
# Labels that, together with the seed, identify a trajectory's cell.
LABELS = ("world", "arm", "context", "horizon", "policy", "sample")


class Cell(NamedTuple):
    """One episode of a study; `sample` counts the policy's episodes on one instance, from 0."""

    world: str
    arm: str
    context: str
    horizon: int
    seed: int
    sample: int = 0
    policy: str = ""

    def __str__(self) -> str:
        sample = f", sample {self.sample}" if self.sample else ""
        return (
            f"{self.world}, arm {self.arm or 'none'}, context {self.context}, "
            f"horizon {self.horizon}, seed {self.seed}{sample}"
        )


@dataclass(frozen=True)
class Ablation(Config):
    """Settings of a run. All arms play the same instances, so their differences are paired.

    Attributes:
        horizons: Task sizes, measured by `axis`.
        seeds: The number of instances per world and horizon.
        policy: The policy to evaluate; a trained model plays up to `policy.model.batch_size`
            concurrent episodes.
        hint_scope: `persistent` or `ephemeral`.
        oracle_options: Arguments of the oracles by letter, as in `agentgym.make`.
        options: Keyword arguments by world; `""` applies to all worlds.
        contexts: Context strategies to compare, with optional arguments as in
            `clear_results:trigger=60k:keep=3`; `+` combines strategies. The
            strategy `none` only trims the history to the window.
        window: The context window in tokens. If None, runs with a context strategy use LOCA-bench's
            window, and other runs have no limit.
        axis: The measure of task size: `horizon` (an optimal policy's turns; see
            `World.config_for_horizon`), or the name of a world option.
        samples: Episodes per instance.

    Raises:
        ValueError: An id, arm, horizon, option or combination of them is invalid.
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
    samples: Annotated[int, Field(ge=1, le=10_000)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("worlds", "arms", "horizons", "contexts"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(
                    f"{name} must list one or more distinct values, got {list(values)}"
                )
        for name in self.options:
            if name and name not in self.worlds:
                raise ValueError(
                    f"options are given for {name!r}, which is not among the worlds; "
                    f"{list_names(name, self.worlds, 'worlds')}"
                )
        if self.samples > 1 and not self.policy.draws:
            raise ValueError(
                f"{self.samples} samples of {self.policy.name} at temperature 0 would be "
                "identical; set a temperature above 0"
            )
        if any(self.axis in options for options in self.options.values()):
            raise ValueError(
                f"{self.axis} is the axis of this ablation; give its values as "
                "horizons, not as an option"
            )
        if not self.policy.is_model:
            for world in self.worlds:
                self.policy.make(resolve(world))
        object.__setattr__(self, "arms", tuple(dict.fromkeys(map(shortest_arm, self.arms))))
        for cell in product(self.worlds, self.arms, self.contexts, self.horizons):
            self.spec(*cell)
        self._check_wrappers()

    def _check_wrappers(self) -> None:
        arm, size = self.arms[0], self.horizons[0]
        for context in self.contexts:
            if ":" in context:  # wrappers validate arguments
                gymnasium.make(self.spec(self.worlds[0], arm, context, size)).close()
        if seats := tuple(self.policy.seats):
            for world in self.worlds:
                env = gymnasium.make(self.spec(world, arm, self.contexts[0], size))
                check_seats(seats, agents_of(env))
                env.close()

    def spec(self, world: str, arm: str, context: str, horizon: int) -> EnvSpec:
        """Return the env spec of a cell."""
        env_id = resolve(world)
        world_class = load_world(gymnasium.spec(env_id).kwargs["world"])
        sizes: Mapping[str, Any] = {self.axis: horizon}
        if self.axis == HORIZON:
            sizes = world_class.config_for_horizon(horizon)
        given = {**self.options.get("", {}), **self.options.get(world, {})}
        for name in sizes.keys() & given.keys():
            if given[name] != sizes[name]:
                raise ValueError(
                    f"{name}={given[name]!r} contradicts the size {horizon} of {world}, which sets "
                    f"{name}={sizes[name]!r}; leave {name} out, or vary it as the axis"
                )
        return spec(
            env_id,
            oracles=arm,
            hint_scope=self.hint_scope,
            oracle_options=self.oracle_options,
            shots=self.shots,
            labels=True,
            context=context,
            window=window_of(vars(self)),
            **{**sizes, **given},
        )

    def cells(self) -> list[Cell]:
        """Return all episodes in the order of `cells_of`."""
        return cells_of(vars(self), self.policy.column)

    def play(
        self,
        cell: Cell,
        played_by: Mapping[str, Any] | None = None,
        player: UserPolicy | None = None,
        *,
        shared: bool = False,
    ) -> Trajectory:
        """Play one episode. A policy error fails the episode; only a fatal `PolicyError` is raised.

        If `shared`, the player's token usage includes other episodes' tokens and is not recorded.
        """
        policy = player or adapt(self.policy.make(cell.world, cell.sample, cell.seed))
        failure = ""
        with closing(gymnasium.make(self.spec(*cell[:4]), disable_env_checker=True)) as env:
            episode = Episode(env, cell.seed, self.labels(cell, played_by), str(cell))
            try:
                episode.play_with(policy)
            except PolicyError as error:
                if error.fatal:
                    raise
                failure = describe(error)
        used = None if shared else getattr(policy, "usage", None)
        if not used:
            return finish(episode.trajectory(failure))
        return finish(episode.trajectory(failure), (used.prompt_tokens, used.completion_tokens))

    def lost(self, cell: Cell, cause: str) -> Trajectory:
        """Return a trajectory without steps for a cell that could not be played."""
        spec_text = str(self.spec(*cell[:4]).to_json())
        return Recording(spec_text, cell.seed, Chat(), self.labels(cell)).trajectory(cause)

    def labels(self, cell: Cell, played_by: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a cell's trajectory labels."""
        facts = dict(played_by or {})
        if "worlds" in facts:
            facts["worlds"] = {cell.world: facts["worlds"][cell.world]}
        labels = {name: getattr(cell, name) for name in LABELS}
        return {**labels, "axis": self.axis, "provenance": facts}

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON-able data."""
        settings = dict(json.loads(json.dumps(asdict(self))))
        del settings["policy"]["transport"]
        return settings


def shortest_arm(arm: str) -> str:
    """Return an arm's canonical spelling, such as `S0.5P` for `P1S0.50`."""
    order = "SPH"  # in the paper's order
    parts = re.findall(r"[A-Z][^A-Z]*", check_arm(arm))
    return "".join(sorted(parts, key=lambda part: (part[0] not in order, order.find(part[0]))))


def cells_of(run: Mapping[str, Any], policy: str) -> list[Cell]:
    """Return all episodes of a run, given the fields of `Ablation`.

    Samples and seeds vary slowest, so an interrupted study has some episodes of each size.
    """
    axes = (range(run["samples"]), range(run["seeds"]), run["worlds"], run["horizons"])
    each = product(*axes, run["arms"], run["contexts"])
    return [Cell(w, a, c, h, seed, k, policy) for k, seed, w, h, a, c in each]


def window_of(run: Mapping[str, Any]) -> int | None:
    """Return a run's context window; with a context strategy, the default is LOCA-bench's."""
    window: int | None = run["window"]
    if window is None and any(map(check_context, run["contexts"])):
        return WINDOW
    return window


def finish(trajectory: Trajectory, tokens: tuple[int, int] | None = None) -> Trajectory:
    """Add the prompt digest and token counts to an episode's labels."""
    first = trajectory.steps[0].chat if trajectory.steps else trajectory.last
    labels = {**trajectory.labels, "prompt": hash_prompt(first)}
    if tokens := tokens or tokens_by_ids(trajectory):
        labels["tokens"] = list(tokens)
    return replace(trajectory, labels=labels)


def cell_of(trajectory: Trajectory) -> Cell:
    """Return a trajectory's cell; `KeyError` if no ablation recorded the trajectory."""
    labels = {"sample": 0, **trajectory.labels, "seed": trajectory.seed}
    return Cell(**{name: labels[name] for name in Cell._fields})
