"""Policies by name, for the command line and JSON configs."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from agentgym.assemble.context_options import (
    check_arguments,
    check_values,
    read_arguments,
    split_arguments,
)
from agentgym.assemble.registry import is_team
from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy, TeamPolicy
from agentgym.oracles.policies import Deficits, ScriptedPolicy, ThinkingPolicy
from agentgym.play.policy import Policy, PolicyError, Reply
from agentgym.text.imports import import_named
from agentgym.text.messages import Chat
from agentgym.text.validation import list_names
from agentgym.training.extras import MissingExtraError, needs_extra
from agentgym.training.rollout.models.sampling import ModelOptions
from agentgym.training.rollout.seat_policies import SeatPolicies, adapt
from agentgym.training.rollout.trajectory import Trajectory
from agentgym.training.rollout.user_policy import is_policy
from agentgym.world.config import Config, Seed

# A folder with one of these files contains a transformers or PEFT model.
_MODELS = ("config.json", "adapter_config.json")
# Seed offset between samples: a prime larger than any seed that users choose by hand.
_APART = 1_000_003
# An agent that calls tools over MCP from another process (`agentgym serve --out`).
EXTERNAL = "external"
# Name prefix of a policy that is passed to `run_ablation` as an object, as in `object:mine.play`.
IN_MEMORY = "object"
# Matches the seats in a policy name such as `player_0=oracle,player_1=noisy`.
_SEAT = re.compile(r"(?:^|,)([a-z]+_[0-9]+)=")


def _control(
    env_id: str,
    planning: float = 0.0,
    tracking: float = 0.0,
    distraction: float = 0.0,
    seed: int = 0,
) -> Policy:
    return ControlPolicy(env_id, Deficits(planning, tracking, distraction), seed)


def _oracle(env_id: str, notes: bool = False, seed: int = 0) -> Policy:
    return OraclePolicy(env_id, seed, notes=notes)


def _noisy(env_id: str, p: float = 0.1, seed: int = 0) -> Policy:
    return NoisyPolicy(env_id, p, seed)


def _thinking(env_id: str, p: float = 0.0, notes: bool = False, seed: int = 0) -> Policy:
    policy = (
        NoisyPolicy(env_id, p, seed, notes=notes) if p else OraclePolicy(env_id, seed, notes=notes)
    )
    return ThinkingPolicy(policy)


def _random(env_id: str, seed: int = 0) -> Policy:
    return RandomPolicy(env_id, seed)


# The options after a policy's name become the function's arguments.
SCRIPTED: Mapping[str, Callable[..., Policy]] = {
    "control": _control,
    "oracle": _oracle,
    "noisy": _noisy,
    "thinking": _thinking,
    "random": _random,
}


@dataclass(frozen=True)
class PolicyConfig(Config):
    """Policy name with options, such as `noisy:p=0.2` (syntax:
    `agentgym.assemble.context_options`).

    Attributes:
        name: The scripted policies, with their options in parentheses, are `control` (`planning`,
            `tracking`, `distraction`), `oracle` (`notes`), `noisy` (`p`), `thinking` (`p`, `notes`)
            and `random`; all of them also accept `seed`. Any other name is the folder of a
            trained model, or `package.module:function`. A function with the parameter `chat` or
            `chats` is a policy. For a factory such as `package.module:factory:depth=3`,
            `factory(env_id, depth=3)` must return a policy in any form that `UserPolicy` accepts.
            `external:name` is an agent connected by `agentgym serve`. For a team, give one policy
            per seat, as in `player_0=oracle,player_1=noisy:p=0.2`.
        seed: Seed of a trained model, and of scripted policies without a `seed` option.
        model: Options of a trained model; by default, decoding is greedy. A factory receives all
            options that are set; the factory of an endpoint accepts only `temperature`
            and `max_new_tokens`.
        label: Name in tables and figures; if empty, `name` is used.
        transport: Options of a factory that do not affect replies and are not recorded, such as an
            endpoint's `cache`.
    """

    name: str = "control"
    seed: Seed = 0
    model: ModelOptions = field(default_factory=ModelOptions)
    label: str = ""
    transport: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._parts:
            return
        name, options = self._split()
        if self.model.temperature is None and not self.module:
            # Set the default temperature explicitly, so that records contain it.
            object.__setattr__(self, "model", replace(self.model, temperature=0.0))
        if name in SCRIPTED:
            read_arguments(name, SCRIPTED[name], options)
            return
        if Path(name).is_dir() and options:
            raise ValueError(
                f"{name} is a trained model's folder, whose name cannot contain options, got "
                f"{self.name!r}; set `model`, or use options such as --temperature"
            )
        check_values(name, SCRIPTED)
        if name == EXTERNAL or ":" in name or self.is_model:
            return
        if Path(name).is_dir():
            raise ValueError(
                f"{name} contains no trained model; finish `agentgym train --out {name}` first"
            )
        raise ValueError(
            f"there is no policy {name!r}; {list_names(name, tuple(SCRIPTED), 'policies')}, "
            "package.module:factory, or the folder of a trained model"
        )

    @property
    def seats(self) -> dict[str, PolicyConfig]:
        """The policy of each seat, or an empty dict for a policy without seats. A repeated seat or
        an invalid policy raises `ValueError`.
        """
        texts = read_seats(self.name)
        return {seat: replace(self, name=text, label="") for seat, text in texts.items()}

    @property
    def _parts(self) -> tuple[PolicyConfig, ...]:
        return tuple({part.name: part for part in self.seats.values()}.values())

    @property
    def column(self) -> str:
        """Name in tables and figures."""
        return self.label or self.name

    @property
    def module(self) -> str:
        """The module of the first factory, or an empty string if there is no factory."""
        if parts := self._parts:
            return next((part.module for part in parts if part.module), "")
        name = self._split()[0]
        module = name.partition(":")[0]
        beside = name in SCRIPTED or self.is_model or module in (EXTERNAL, IN_MEMORY)
        return "" if beside else module

    @property
    def draws(self) -> bool:
        """Report whether two samples of one instance can differ."""
        if parts := self._parts:
            return any(part.draws for part in parts)
        return not self.is_model or bool(self.model.temperature)

    def make(self, env_id: str, sample: int = 0, instance: int = 0) -> Policy:
        """Return the policy for a world or a team. A scripted policy plays all agents of a team.

        Scripted policies and factories with a `seed` receive a different seed for each `sample`;
        the caller reseeds trained models. Factories with a `sample` receive the sample number and
        the instance's seed, so that an endpoint's cache distinguishes episodes with equal prompts.

        Raises:
            ValueError: An option is invalid, or the factory or model cannot be loaded.
        """
        if self._parts:
            made = {part.name: part.make(env_id, sample, instance) for part in self._parts}
            return SeatPolicies({seat: made[part.name] for seat, part in self.seats.items()})
        name, options = self._split()
        if name in SCRIPTED:
            return self._scripted(env_id, name, options, sample)
        module, _, function = name.partition(":")
        if module in (EXTERNAL, IN_MEMORY):
            return _play_outside
        if self.is_model:
            return _load(
                self.name,
                max(file.stat().st_mtime_ns for file in self._model_files()),
                self.model.to_json(),
                self.seed,
            )
        factory = self._import(module, function)
        if is_policy(factory) and not options:
            return adapt(factory)
        owner = getattr(factory, "config", factory)
        given = read_arguments(name, owner, options)
        given |= self._model_arguments(name, owner, given)
        check_arguments(name, owner, self.transport)
        given |= self.transport
        parameters = inspect.signature(owner).parameters
        if sample and "seed" in parameters:
            first = given.get("seed", parameters["seed"].default)
            if owner is factory or first is not None:
                given["seed"] = _seed_of(sample, first if isinstance(first, int) else self.seed)
        if owner is not factory:
            given.setdefault("sample", f"{instance}.{sample}")
        return adapt(factory(env_id, **given))

    @property
    def is_endpoint(self) -> bool:
        """Report whether the policy's factory accepts endpoint options."""
        if parts := self._parts:
            return any(part.is_endpoint for part in parts)
        module, _, function = self._split()[0].partition(":")
        return bool(self.module) and hasattr(self._import(module, function), "config")

    def _import(self, module: str, function: str) -> Callable[..., Policy]:
        try:
            return cast("Callable[..., Policy]", getattr(import_named(module), function))
        except MissingExtraError:
            raise
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"policy {self.name!r} cannot be imported ({error}); write package.module:factory"
            ) from error

    def _model_arguments(
        self, name: str, owner: Callable[..., Any], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        names = inspect.signature(owner).parameters
        arguments: dict[str, Any] = {}
        for option in fields(ModelOptions):
            value = getattr(self.model, option.name)
            if value == getattr(ModelOptions(), option.name):
                continue
            argument = option.name
            if argument == "max_new_tokens" and argument not in names:
                argument = "max_tokens"
            if argument in given:
                raise ValueError(
                    f"{option.name} is set twice, to {value!r} and in {self.name!r}; set it once"
                )
            check_arguments(name, owner, [argument])
            arguments[argument] = value
        return arguments

    def _split(self) -> tuple[str, dict[str, str]]:
        return (self.name, {}) if Path(self.name).is_dir() else split_arguments(self.name)

    def _scripted(self, env_id: str, name: str, options: Mapping[str, str], sample: int) -> Policy:
        given = {"seed": self.seed, **read_arguments(name, SCRIPTED[name], options)}
        given["seed"] = _seed_of(sample, given["seed"])
        policy = SCRIPTED[name](env_id, **given)
        if not is_team(env_id):
            return policy
        if not isinstance(policy, ScriptedPolicy):
            raise ValueError(
                f"the policy {name!r} cannot play the team {env_id}; use noisy:p=0.2 or oracle"
            )
        return TeamPolicy(env_id, policy)

    @property
    def is_model(self) -> bool:
        """Report whether this policy, or one of its seats, is a local model."""
        if parts := self._parts:
            return any(part.is_model for part in parts)
        return bool(self._model_files())

    def _model_files(self) -> list[Path]:
        return [file for name in _MODELS if (file := Path(self.name) / name).is_file()]


def read_seats(text: str) -> dict[str, str]:
    """Map the seats in `player_0=oracle,player_1=noisy` to policy names; return an empty dict for a
    single policy. A repeated seat raises `ValueError`.
    """
    if not _SEAT.match(text) or Path(text).exists():
        return {}
    _, *parts = _SEAT.split(text)
    names = parts[::2]
    if twice := [seat for seat in names if names.count(seat) > 1]:
        raise ValueError(f"the seat {twice[0]!r} is named twice in {text!r}; name each seat once")
    return dict(zip(names, parts[1::2], strict=True))


def _seed_of(sample: int, seed: int) -> int:
    return (seed + sample * _APART) % 2**32


def _play_outside(chats: Sequence[Chat]) -> list[Reply]:
    raise PolicyError(
        "this policy cannot be created by name; connect an external agent with `agentgym serve "
        "--out`, or pass an object as run_ablation(player=...)"
    )


@lru_cache(maxsize=2)
def _load(folder: str, written: int, options: str, seed: int) -> Policy:
    with needs_extra("a trained model", "train"):
        from agentgym.training.rollout.models.pretrained import load_policy  # noqa: PLC0415 - slow to import, and an extra
    return load_policy(Path(folder), ModelOptions(**json.loads(options)), seed)


def tokens_by_ids(trajectory: Trajectory) -> tuple[int, int] | None:
    """Return the total prompt and reply tokens of an episode, or None without token ids."""
    replies = [step.reply for step in trajectory.steps]
    if not any(reply.ids for reply in replies):
        return None
    prompt_tokens = sum(len(reply.prompt_ids) for reply in replies)
    return prompt_tokens, sum(len(reply.ids) for reply in replies)
