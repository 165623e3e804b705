"""Policies by name, for the command line and JSON configs, and their provenance."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentgym.assemble.context_options import check_values, read_arguments, split_arguments
from agentgym.assemble.registry import is_team
from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy, TeamPolicy
from agentgym.oracles.policies import Deficits, ScriptedPolicy, ThinkingPolicy
from agentgym.play.policy import Policy, PolicyError, Reply
from agentgym.text.imports import import_named
from agentgym.text.messages import Chat
from agentgym.text.validation import list_names
from agentgym.training.extras import MissingExtraError, needs_extra
from agentgym.training.rollout.models.sampling import ModelOptions
from agentgym.training.rollout.trajectory import Trajectory
from agentgym.training.rollout.user_policy import adapt, is_policy
from agentgym.world.config import Config, Seed
from agentgym.world.digests import digest

# Either file marks the folder of a model (transformers or PEFT).
_MODELS = ("config.json", "adapter_config.json")
# Offset between the seeds of two samples: a prime larger than any seed that people choose by hand.
_APART = 1_000_003
# Model options that do not affect replies.
_SPEED_ONLY = ("batch_size", "device")
# Files that determine what a model writes.
_WEIGHTS = ("*.json", "*.jinja", "*.safetensors", "*.bin", "*.gguf", "*.model")
EXTERNAL = "external"
"""Agent in another process that calls tools over MCP (`agentgym serve --out`); a name may follow:
`external:name`.
"""


def _control(
    env_id: str,
    planning: float = 0.0,
    tracking: float = 0.0,
    distraction: float = 0.0,
    seed: int = 0,
) -> Policy:
    return ControlPolicy(env_id, Deficits(planning, tracking, distraction), seed)


def _oracle(env_id: str, seed: int = 0) -> Policy:
    return OraclePolicy(env_id, seed)


def _noisy(env_id: str, p: float = 0.1, seed: int = 0) -> Policy:
    return NoisyPolicy(env_id, p, seed)


def _thinking(env_id: str, p: float = 0.0, seed: int = 0) -> Policy:
    return ThinkingPolicy(NoisyPolicy(env_id, p, seed) if p else OraclePolicy(env_id, seed))


def _random(env_id: str, seed: int = 0) -> Policy:
    return RandomPolicy(env_id, seed)


SCRIPTED: Mapping[str, Callable[..., Policy]] = {
    "control": _control,
    "oracle": _oracle,
    "noisy": _noisy,
    "thinking": _thinking,
    "random": _random,
}
"""Scripted policies by name; a function's arguments are the options of its name."""


@dataclass(frozen=True)
class PolicyConfig(Config):
    """Choice of a policy, with its options in one word (`agentgym.assemble.context_options`):
    `noisy:p=0.2`.

    Attributes:
        name: `control` (options `planning`, `tracking` and `distraction`), `oracle`, `noisy` (`p`),
            `thinking` (`p`) or `random`, each with an optional `seed`; the folder of a trained
            model; `package.module:factory`, where `factory(env_id)` returns a policy (any that
            `UserPolicy` takes) and accepts the options that follow, as in
            `package.module:factory:depth=3`; `package.module:policy`, a policy whose parameter is
            named `chat` or `chats`; or `external:name` for
            an agent connected by `agentgym serve`.
        seed: Seed of a trained model, and of scripted policies without a `seed` option.
        model: Options of a trained model, which is greedy by default.
        label: Name in tables and figures; empty for `name`.
    """

    name: str = "control"
    seed: Seed = 0
    model: ModelOptions = field(default_factory=ModelOptions)
    label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        name, options = self._split()
        if name in SCRIPTED:
            read_arguments(name, SCRIPTED[name], options)
            return
        if Path(name).is_dir() and options:
            raise ValueError(
                f"{name} is the folder of a trained model, which takes no options in its name, got "
                f"{self.name!r}; use --temperature, --device and so on, or `model`"
            )
        check_values(name, SCRIPTED)
        if name == EXTERNAL or ":" in name or self.is_model:
            return
        if Path(name).is_dir():
            raise ValueError(
                f"{name} contains no trained model; run `agentgym train --out {name}` to its "
                "end first"
            )
        raise ValueError(
            f"there is no policy {name!r}; {list_names(name, tuple(SCRIPTED), 'policies')}, "
            "package.module:factory, or the folder of a trained model"
        )

    @property
    def column(self) -> str:
        """Return the policy's name in tables and figures."""
        return self.label or self.name

    @property
    def module(self) -> str:
        """Return the factory's module, or an empty string."""
        name = self._split()[0]
        beside = name in SCRIPTED or self.is_model or name.partition(":")[0] == EXTERNAL
        return "" if beside else name.partition(":")[0]

    @property
    def draws(self) -> bool:
        """Return whether two samples of one instance can differ."""
        return not self.is_model or self.model.temperature > 0

    def make(self, env_id: str, sample: int = 0) -> Policy:
        """Return the policy for a world or a team; a scripted policy plays all agents of a team.

        Args:
            env_id: The world or team.
            sample: Index of the sample of an instance. Scripted policies and factories with a
                `seed` get a different seed for each sample; the caller reseeds trained models.

        Raises:
            ValueError: An option is invalid, the factory cannot be imported, or the model cannot be
                read.
        """
        name, options = self._split()
        if name in SCRIPTED:
            return self._scripted(env_id, name, options, sample)
        module, _, function = name.partition(":")
        if module == EXTERNAL:
            return _play_outside
        if self.is_model:
            return _load(
                self.name,
                max(file.stat().st_mtime_ns for file in self._model_files()),
                self.model.to_json(),
                self.seed,
            )
        try:
            factory: Callable[..., Policy] = getattr(import_named(module), function)
        except MissingExtraError:
            raise
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"policy {self.name!r} cannot be imported ({error}); write package.module:factory"
            ) from error
        if is_policy(factory) and not options:
            return adapt(factory)
        given = read_arguments(name, factory, options)
        seeded = inspect.signature(factory).parameters.get("seed")
        if sample and seeded is not None:
            first = given.get("seed", seeded.default)
            given["seed"] = _seed_of(sample, first if isinstance(first, int) else self.seed)
        return adapt(factory(env_id, **given))

    def _split(self) -> tuple[str, dict[str, str]]:
        """Return the name and its options; folder names are not split."""
        return (self.name, {}) if Path(self.name).is_dir() else split_arguments(self.name)

    def _scripted(self, env_id: str, name: str, options: Mapping[str, str], sample: int) -> Policy:
        given = {"seed": self.seed, **read_arguments(name, SCRIPTED[name], options)}
        given["seed"] = _seed_of(sample, given["seed"])
        policy = SCRIPTED[name](env_id, **given)
        if not is_team(env_id):
            return policy
        if not isinstance(policy, ScriptedPolicy):
            raise ValueError(f"the policy {name!r} cannot play the team {env_id}")
        return TeamPolicy(env_id, policy)

    @property
    def is_model(self) -> bool:
        """Return whether this is a local model."""
        return bool(self._model_files())

    def _model_files(self) -> list[Path]:
        return [file for name in _MODELS if (file := Path(self.name) / name).is_file()]


def _seed_of(sample: int, seed: int) -> int:
    """Return a sample's seed; the first sample uses the given seed."""
    return (seed + sample * _APART) % 2**32


def _play_outside(chats: Sequence[Chat]) -> list[Reply]:
    raise PolicyError("an external agent plays over MCP: agentgym serve --out")


@lru_cache(maxsize=2)
def _load(folder: str, written: int, options: str, seed: int) -> Policy:
    """Load a model once, since an ablation requests the policy in each episode."""
    with needs_extra("a trained model", "train"):
        from agentgym.training.rollout.models.pretrained import load_policy  # noqa: PLC0415 - slow to import, and an extra
    return load_policy(Path(folder), ModelOptions(**json.loads(options)), seed)


def provenance(config: PolicyConfig, policy: Policy | None = None) -> dict[str, Any]:
    """Return JSON-able data that identifies a policy beyond its name.

    It contains agentgym's version, the name and the seed; for a trained model its sampling options
    and file hash; for a factory its file hash. A policy's `provenance` attribute is added, as with
    endpoints (model, URL, sampling options).

    Args:
        config: The choice of the policy.
        policy: The policy, if available.
    """
    facts: dict[str, Any] = {
        "agentgym": importlib.metadata.version("agentgym"),
        "policy": config.name,
        "seed": config.seed,
    }
    if config.is_model:
        folder = Path(config.name)
        facts["sampler"] = {k: v for k, v in asdict(config.model).items() if k not in _SPEED_ONLY}
        facts["files"] = _hash_files(sorted({f for name in _WEIGHTS for f in folder.glob(name)}))
    elif config.module:
        spec = importlib.util.find_spec(config.module)
        if spec is not None and spec.origin and Path(spec.origin).is_file():
            facts["file"] = _hash_files([Path(spec.origin)])
    facts |= getattr(policy, "provenance", {})
    return dict(json.loads(json.dumps(facts)))


def other(kept: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the first key in which two provenances differ, or an empty string.

    Patch versions of agentgym are ignored: within a minor version the same seed gives the same
    bytes.
    """
    return next((name for name in [*kept, *found] if _fact(kept, name) != _fact(found, name)), "")


def _fact(facts: Mapping[str, Any], name: str) -> Any:
    fact = facts.get(name)
    return str(fact).split(".")[:2] if name == "agentgym" else fact


def hash_prompt(chat: Chat) -> str:
    """Return a digest of everything that a policy is shown before its first reply."""
    return digest([[message.to_dict() for message in chat.messages], list(chat.tools)])


def tokens_by_ids(trajectory: Trajectory) -> tuple[int, int] | None:
    """Return the prompt tokens and reply tokens of a local model's episode; None without ids."""
    replies = [step.reply for step in trajectory.steps]
    if not any(reply.ids for reply in replies):
        return None
    return sum(len(reply.prompt_ids) for reply in replies), sum(len(reply.ids) for reply in replies)


def _hash_files(files: Iterable[Path]) -> str:
    return digest([[file.name, _hash_file(file, file.stat().st_mtime_ns)] for file in files])


@lru_cache(maxsize=1_024)  # model files are large
def _hash_file(file: Path, written: int) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
