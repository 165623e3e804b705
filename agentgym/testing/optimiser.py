"""Train a small model on reward alone, without tool results; whatever it earns leaks from the
prompts.

The model is a softmax over the choices of a call, linear in hashed features of its observations:
the prompt and its own calls. Features relate a choice to the prompt (its position, its distance
from each number, the end of the prompt), so that rewards alone reveal most tells: a budget, a
length, an id, a position.

Groups of episodes start from one instance. Episodes better than their group's mean are reinforced
in proportion (reward-weighted regression), and replayed occasionally.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentgym.play.env import ToolEnv
from agentgym.testing.guesses import EXTREMES, FEATURES, UNITS, cut, options, words
from agentgym.testing.playing import Transcript, play, start
from agentgym.text.messages import ToolCall

# Indices into an array.
Indices = NDArray[np.intp]

# Calls per episode: more than a prompt alone can justify, and few enough for thousands of episodes.
TURNS = 12
_BITS = 18  # bits of a hash; one training run uses a few tens of thousands of features
_ODD = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, which spreads the products
_PARTS = 48  # text choices from the prompt, from both of its ends
# Text choices for any prompt: answers of any world.
_CONSTANTS = ("", "yes", "no", "unknown", *map(str, range(17)))
_INTEGERS = 17  # integer choices, starting at the minimum
# Up to this many choices, each is crossed with the prompt's words: a tool, a choice in a schema.
_FEW = 20
_ENDS = 6  # words considered at either end of a prompt, where ids and budgets are
# Episodes per instance. With forty possible answers, about every second group contains a success.
_GROUP = 24
_EXPLORE = 0.1  # so that a habit learnt early does not end the search
_REPLAYED = 12  # earlier groups replayed with each new one, because playing is the main cost
# Equal for all features, so that features shared by many instances outgrow those of one; a choice
# has about sixty.
_STEP = 0.03


@dataclass(frozen=True)
class CallChoice:
    """The choices at one point of a call, and the selected one.

    Attributes:
        rows: The choice that each feature belongs to.
        features: The features of all choices, as indices of the weights.
        chosen: The selected choice.
    """

    rows: Indices
    features: Indices
    chosen: int


# Choices of the episodes above their group's mean, with their weights.
Success = Sequence[tuple[float, CallChoice]]


class MaskedPolicy:
    """Policy over a world's calls that never sees a result.

    Attributes:
        weights: The weight of each feature.
    """

    def __init__(self) -> None:
        self.weights = np.zeros(1 << _BITS)

    def odds(self, rows: Indices, features: Indices) -> NDArray[np.float64]:
        """Return the probability of each choice."""
        scores = np.bincount(rows, self.weights[features])
        odds = np.exp(scores - scores.max())
        shares: NDArray[np.float64] = odds / odds.sum()
        return shares

    def choose(
        self, seen: Transcript, rng: np.random.Generator | None, explore: float = 0.0
    ) -> tuple[ToolCall, list[CallChoice]]:
        """Choose the next call part by part; also return the choices.

        Args:
            seen: The prompt and the calls so far; results are ignored.
            rng: The random source; without it the likeliest choices are taken.
            explore: The share of uniformly random choices.
        """
        prompt, calls = _read(seen.task), [call for turn in seen.turns for call, _ in turn]
        choices: list[CallChoice] = []

        def pick(where: str, values: Sequence[Any]) -> Any:
            texts = tuple(map(str, values))
            rows, features = _relations(prompt, where, texts).with_calls(prompt, calls)
            odds = self.odds(rows, features)
            drawn = (1 - explore) * odds + explore / len(odds)
            place = int(np.argmax(odds)) if rng is None else int(rng.choice(len(odds), p=drawn))
            choices.append(CallChoice(rows, features, place))
            return values[place]

        tools = {tool.name: tool for tool in seen.tools}
        tool = tools[pick("tool", list(tools))]
        arguments = {
            name: pick(f"{tool.name}.{name}", _values(tool.parameters["properties"][name], prompt))
            for name in tool.parameters.get("required", ())
        }
        return ToolCall(tool.name, arguments), choices


class OptimisedShortcut:
    """Shortcut that plays the likeliest calls of a trained policy."""

    name = "optimiser that sees no result"

    def __init__(self, policy: MaskedPolicy) -> None:
        self._policy = policy

    def act(self, seen: Transcript) -> Sequence[ToolCall]:
        """Return the likeliest call."""
        return [self._policy.choose(seen, None)[0]] if len(seen.turns) < TURNS else ()


@dataclass(frozen=True, eq=False)
class _Prompt:
    """A parsed prompt.

    Attributes:
        facts: Simple facts about it, such as its length and its first numbers.
        marks: The words at its ends with their last letters, without those that are facts.
        parts: The possible choices from it, in order.
        places: The position of each part, by unit, from the front and from the back.
        extremes: The rules that pick each part.
    """

    facts: Mapping[str, str]
    marks: Sequence[str]
    parts: Sequence[str]
    places: Mapping[str, Sequence[tuple[str, int, int]]]
    extremes: Mapping[str, Sequence[str]]


@lru_cache(maxsize=64)  # the episodes of one group share a prompt
def _read(text: str) -> _Prompt:
    """Parse a prompt."""
    seen = Transcript(text, (), ())
    facts = {name: fact(seen) for name, fact in FEATURES.items() if "result" not in name}
    places: dict[str, list[tuple[str, int, int]]] = {}
    extremes: dict[str, list[str]] = {}
    short = cut(text)
    for unit, parts in [
        *((u, split(short)) for u, split in UNITS.items()),
        ("options", options(short)),
    ]:
        for k, part in enumerate(parts):
            places.setdefault(part, []).append((unit, k, len(parts) - k))
        for rule, select in EXTREMES.items() if parts else ():
            extremes.setdefault(select(parts), []).append(f"{unit} {rule}")
    tokens = words(short)
    every = list(dict.fromkeys([*options(short), *tokens]))
    half = _PARTS // 2
    shown = every if len(every) <= _PARTS else every[:half] + every[-half:]
    ends = [*enumerate(tokens[:_ENDS]), *((k - _ENDS, w) for k, w in enumerate(tokens[-_ENDS:]))]
    marks = [f"{k} {mark}" for k, word in ends for mark in (word, f"-{word[-1:]}")]
    return _Prompt(facts, marks, shown, places, extremes)


def _values(schema: Mapping[str, Any], prompt: _Prompt) -> list[Any]:
    """Return the choices for an argument."""
    if "enum" in schema:
        return list(schema["enum"])
    if "anyOf" in schema:
        return _values(schema["anyOf"][0], prompt)
    kind = schema.get("type", "")
    if kind in ("integer", "number"):
        least = schema.get("minimum", 0)
        most = min(schema.get("maximum", least + _INTEGERS - 1), least + _INTEGERS - 1)
        listed = [int(part) for part in prompt.parts if part.lstrip("-").isdigit()]
        return list(dict.fromkeys([*range(int(least), int(most) + 1), *listed]))
    if kind == "string":
        return list(dict.fromkeys([*prompt.parts, *_CONSTANTS]))
    least_of: Mapping[str, list[Any]] = {"boolean": [True, False], "array": [[]], "object": [{}]}
    return least_of.get(kind, [None])


@dataclass(frozen=True, eq=False)
class _Relations:
    """Features of choices that do not depend on the calls so far, with the data for those that do.

    Attributes:
        rows: The choice that each feature belongs to.
        features: The features.
        texts: A digest of each choice.
        spot_rows: The choice at each position of a choice in the prompt.
        spot_units: A digest of the unit of each position.
        spots: The number of each position, from the front.
    """

    rows: Indices
    features: Indices
    texts: Indices
    spot_rows: Indices
    spot_units: Indices
    spots: Indices

    def with_calls(self, prompt: _Prompt, calls: Sequence[ToolCall]) -> tuple[Indices, Indices]:
        """Return the choices with all features, including those that depend on the calls: the turn,
        the last call, and the distance from the last choice's position.
        """
        turn, last = len(calls), calls[-1] if calls else None
        after = _digest(f"{last.name} {last.arguments}") if last else 0
        before = str(next(iter(last.arguments.values()), "")) if last else ""
        more = [
            _mixed(1, self.texts, turn),
            _mixed(2, self.texts, after),
            _mixed(3, self.spot_units, self.spots, turn),
            _mixed(4, self.spot_units, self.spots - turn),
        ]
        rows = [self.rows, *[np.arange(len(self.texts))] * 2, *[self.spot_rows] * 2]
        for unit, place, _ in prompt.places.get(before, ()):
            alike = self.spot_units == _digest(unit)
            more.append(_mixed(5, self.spot_units[alike], self.spots[alike] - place))
            rows.append(self.spot_rows[alike])
        return np.concatenate(rows), np.concatenate([self.features, *more])


@lru_cache(maxsize=512)
def _relations(prompt: _Prompt, where: str, texts: tuple[str, ...]) -> _Relations:
    """Return the relations of choices to a prompt."""
    few = len(texts) <= _FEW
    named = [(k, name) for k, text in enumerate(texts) for name in _names(prompt, text, few)]
    spots = [(k, u, at) for k, text in enumerate(texts) for u, at, _ in prompt.places.get(text, ())]
    mask = (1 << _BITS) - 1
    return _Relations(
        np.array([k for k, _ in named], np.intp),
        np.array([_digest(f"{where}|{name}") & mask for _, name in named], np.intp),
        np.array([_digest(f"{where}|{text}") for text in texts], np.intp),
        np.array([k for k, _, _ in spots], np.intp),
        np.array([_digest(unit) for _, unit, _ in spots], np.intp),
        np.array([at for _, _, at in spots], np.intp),
    )


def _names(prompt: _Prompt, text: str, few: bool) -> Iterator[str]:
    """Yield the relations of a choice to a prompt, as text."""
    yield f"is {text}"
    yield from (f"rule {rule}" for rule in prompt.extremes.get(text, ()))
    spots = prompt.places.get(text, ())
    for unit, front, back in spots:
        yield f"{unit} {front}"
        yield f"{unit} -{back}"
    for name, value in prompt.facts.items():
        yield f"{name} {value} {text}"
        if not value.lstrip("-").isdigit():
            continue
        yield from (f"{name} {unit} by {front - int(value)}" for unit, front, _ in spots)
        if text.lstrip("-").isdigit():
            yield f"{name} by {int(text) - int(value)}"
    if few:
        yield from (f"mark {mark} {text}" for mark in prompt.marks)


def _digest(text: str) -> int:
    return zlib.crc32(text.encode())


def _mixed(kind: int, *parts: Indices | int) -> Indices:
    """Return weight indices for combinations of numbers."""
    total: Any = np.array([kind], np.uint64)
    for part in parts:
        total = (total ^ np.asarray(part).astype(np.uint64)) * np.uint64(_ODD)
    places: Indices = (total >> np.uint64(64 - _BITS)).astype(np.intp)
    return places


def optimise(
    env: ToolEnv,
    seeds: Iterable[int],
    on_progress: Callable[[float], None] = lambda reward: None,
) -> MaskedPolicy:
    """Train a policy without tool results on a world's rewards.

    Args:
        env: The training env.
        seeds: The seeds of its instances; a group plays each once.
        on_progress: Called with the mean reward of each group.
    """
    policy, successes = MaskedPolicy(), list[Success]()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        begun = start(env, seed)
        played = [_play(begun.clone(), policy, rng) for _ in range(_GROUP)]
        rewards = np.array([reward for reward, _ in played])
        on_progress(float(rewards.mean()))
        gains = np.maximum(rewards - rewards.mean(), 0)
        if gains.any():
            pairs = zip((gains / gains.sum()).tolist(), (made for _, made in played), strict=True)
            # Limit the length, because harmless calls would let an episode continue forever.
            successes.append([(g / len(made), each) for g, made in pairs if g for each in made])
        replayed = rng.permutation(len(successes))[:_REPLAYED].tolist()
        for place in [len(successes) - 1, *replayed] if successes else ():
            _reinforce(policy, successes[place])
    return policy


def _play(
    env: ToolEnv, policy: MaskedPolicy, rng: np.random.Generator
) -> tuple[float, list[CallChoice]]:
    """Play an episode; return its score and the choices."""
    choices: list[CallChoice] = []

    def act(seen: Transcript) -> Sequence[ToolCall]:
        if len(seen.turns) >= TURNS:
            return ()
        call, made = policy.choose(seen, rng, _EXPLORE)
        choices.extend(made)
        return [call]

    return play(env, act)[0], choices


def _reinforce(policy: MaskedPolicy, success: Success) -> None:
    """Increase the probability of choices by a step along the gradient of their weighted
    log-likelihood.
    """
    slopes = []
    for weight, choice in success:
        share = -policy.odds(choice.rows, choice.features)
        share[choice.chosen] += 1
        slopes.append(_STEP * weight * share[choice.rows])
    features = np.concatenate([choice.features for _, choice in success])
    np.add.at(policy.weights, features, np.concatenate(slopes))
