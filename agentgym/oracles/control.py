"""A control agent with deficits that can be planted: the positive control of the oracle method.

If an ablation over the oracle arms is to be believed, it must find a deficit that is known to be there, and only that one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentgym.config import Config, Share
from agentgym.messages import ToolCall
from agentgym.oracles.policies import ParsedChat, ScriptedPolicy, best_call, choose, read_state, take_in, wrong_call
from agentgym.parsing import Dialect
from agentgym.world import World


@dataclass(frozen=True)
class Deficits(Config):
    """The skills that an agent lacks, each as a probability.

    Attributes:
        planning: That it picks a wrong call although it knows the state; a plan hint in the newest message removes it.
        tracking: That it forgets, at each step anew, any one change since the state was last shown; so its state is wrong with a
            probability that grows with the number of changes. A state hint in the newest message removes it.
        distraction: That any one reply in the history draws it off into a random call; so it grows with the length of the
            chat. Pruning the history removes it.
    """

    planning: Share = 0.0
    tracking: Share = 0.0
    distraction: Share = 0.0


class ControlPolicy(ScriptedPolicy):
    """Plays optimally from the text of the chat, but for its deficits.

    It believes hints: it takes the state from a state hint rather than from its memory, and does what a plan hint says rather
    than what it would plan itself.

    Args:
        env_id: The id of the world.
        deficits: What it lacks.
        seed: Seeds its slips.
        dialect: How it writes calls.
    """

    def __init__(self, env_id: str, deficits: Deficits, seed: int = 0, dialect: Dialect = "auto") -> None:
        super().__init__(env_id, seed, dialect)
        self.deficits = deficits

    def act(self, reading: ParsedChat) -> ToolCall:
        """Recall, plan, and slip."""
        turns = reading.turns()
        world = self.recall(reading)
        # Three streams, so that one deficit does not shift the draws of another.
        distracted, planning, tracking = self.draw(reading, world).spawn(3)
        if distracted.random() >= (1 - self.deficits.distraction) ** len(turns):
            return choose(world.legal_calls(), distracted)
        if "state" not in reading.hints:
            world = self._forgetful(reading, tracking)
        if "plan" in reading.hints:
            return world.read_subtask(reading.hints["plan"]) or best_call(world)
        return wrong_call(world, planning) if planning.random() < self.deficits.planning else best_call(world)

    def remember(self, reading: ParsedChat) -> World[object]:
        """The world as the agent would sum it up: with what it has forgotten missing."""
        if "state" in reading.hints:
            return self.recall(reading)
        return self._forgetful(reading, self.draw(reading, self.recall(reading)).spawn(3)[2])

    def _forgetful(self, reading: ParsedChat, rng: np.random.Generator) -> World[object]:
        """The world as the agent remembers it: each past change may be missing."""
        world = self.world.read_task(reading.task)
        read_state(world, reading.summary)
        for turn in reading.turns():
            world.turn += 1
            for call, result in turn:
                if rng.random() >= self.deficits.tracking:
                    take_in(world, call, result)
        return world
