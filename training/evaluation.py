"""What an episode was worth: success and step accuracy (LUMINA, section 4.2), from its trajectory alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one episode.

    Attributes:
        world: The short name of the world.
        arm: The oracle arm: ``""``, `S`, `P`, `SP`, `SH` or `SPH`.
        horizon: The horizon that was asked for, in turns of an optimal policy.
        seed: The seed of the instance; one seed is one cluster in the statistics.
        success: 1.0 if the task was solved, else 0.0.
        steps: Steps with a label.
        optimal: Steps that were optimal.
        alive: Steps before which success was still possible.
        alive_optimal: Steps among those that were optimal.
    """

    world: str
    arm: str
    horizon: int
    seed: int
    success: float
    steps: int
    optimal: int
    alive: int
    alive_optimal: int
