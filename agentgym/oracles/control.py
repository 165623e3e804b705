"""A scripted policy with deficits that can be planted: the positive control of the oracle method.

If an ablation over the oracle arms is to be believed, it must find a deficit that is known to be
there, and only that one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentgym.config import Config, Share
from agentgym.messages import ToolCall
from agentgym.oracles.choices import best_call, choose, wrong_call
from agentgym.oracles.policies import NoisyPolicy, ScriptedPolicy
from agentgym.oracles.reading import ParsedChat, apply_result, read_state
from agentgym.parsing import Dialect
from agentgym.world import World


@dataclass(frozen=True)
class Deficits(Config):
    """Deficits of an agent, each as a probability in [0, 1].

    Attributes:
        planning: That it picks a wrong call although it knows the state; a plan hint in the newest
            message removes it.
        tracking: That it forgets, drawn again at each step, any one change since the state was last
            shown; so its state is wrong with a probability that grows with the number of changes. A
            state hint in the newest message removes it.
        distraction: That any one reply in the history draws it off into a random call; so it grows
            with the length of the chat. Pruning the history removes it.
    """

    planning: Share = 0.0
    tracking: Share = 0.0
    distraction: Share = 0.0


class ControlPolicy(ScriptedPolicy):
    """Scripted policy that plays optimally from the text of the chat, but for its deficits.

    It believes hints: it takes the state from a state hint rather than from its memory, and does
    what a plan hint says rather than what it would plan itself.

    Args:
        env_id: The id of the world.
        deficits: The skills that it lacks.
        seed: Seeds its slips.
        dialect: The form in which it writes calls; `auto` for the one that the env asks for.
    """

    hooks = NoisyPolicy.hooks

    def __init__(
        self, env_id: str, deficits: Deficits, seed: int = 0, dialect: Dialect = "auto"
    ) -> None:
        super().__init__(env_id, seed, dialect)
        self.deficits = deficits

    def act(self, parsed: ParsedChat) -> ToolCall:
        """Recall the state, plan, and slip."""
        world = self.recall(parsed)
        # Three streams, so that one deficit does not shift the draws of another.
        distracted, planning, tracking = self.draw(parsed).spawn(3)
        if distracted.random() >= (1 - self.deficits.distraction) ** parsed.past.turns:
            return choose(world.legal_calls(), distracted)
        if "state" not in parsed.hints:
            world = self._recall_with_gaps(parsed, tracking)
        if "plan" in parsed.hints:
            return world.read_subtask(parsed.hints["plan"]) or best_call(world)
        return (
            wrong_call(world, planning)
            if planning.random() < self.deficits.planning
            else best_call(world)
        )

    def remember(self, parsed: ParsedChat) -> World[object]:
        """Return the world as the agent would sum it up: without what it has forgotten."""
        if "state" in parsed.hints:
            return self.recall(parsed)
        return self._recall_with_gaps(parsed, self.draw(parsed).spawn(3)[2])

    def _recall_with_gaps(self, parsed: ParsedChat, rng: np.random.Generator) -> World[object]:
        """Return the world as the agent remembers it: each past change may be missing, which is drawn
        again at each step.
        """
        if not self.deficits.tracking:
            return parsed.past.world(self.world, parsed.task, parsed.summary)
        world = self.world.read_task(parsed.task)
        read_state(world, parsed.summary)
        for event in parsed.past.events:
            if event is None:
                world.turn += 1
            elif rng.random() >= self.deficits.tracking:
                apply_result(world, *event)
        return world
