"""What played an episode: enough to tell two models apart that have one name."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentgym.digests import digest
from agentgym.messages import Chat
from agentgym.policy import Policy
from agentgym.training.rollout.policies import PolicyConfig
from agentgym.training.rollout.trajectory import Trajectory

_SPEED_ONLY = ("batch_size", "device")
"""Options of a model that change how fast it plays, and not what."""
_WEIGHTS = ("*.json", "*.jinja", "*.safetensors", "*.bin", "*.gguf", "*.model")
"""The files of a model's folder that say what it writes."""


def provenance(config: PolicyConfig, policy: Policy | None = None) -> dict[str, Any]:
    """Return what plays under the name of a policy, as JSON-able data.

    The version of agentgym, the name and seed; of a trained model its sampler and the hash of its
    files; of a factory the hash of its file, and what the policy says of itself in an attribute
    `provenance`, as those behind an endpoint do: model, address, sampler.

    Args:
        config: The choice of the policy.
        policy: The policy, if there is one.
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
    """Return the first fact in which two provenances differ; empty if they play alike.

    Of the versions of agentgym, the last number does not matter: the same seed gives the same bytes
    within a minor version.
    """
    return next((name for name in [*kept, *found] if _fact(kept, name) != _fact(found, name)), "")


def _fact(facts: Mapping[str, Any], name: str) -> Any:
    fact = facts.get(name)
    return str(fact).split(".")[:2] if name == "agentgym" else fact


def hash_prompt(chat: Chat) -> str:
    """Return the digest of all that a policy is shown before its first reply."""
    return digest([[message.to_dict() for message in chat.messages], list(chat.tools)])


def tokens_by_ids(trajectory: Trajectory) -> tuple[int, int] | None:
    """Return the tokens of the prompts and of the replies of an episode, by the ids of a local
    model; None if there are none.
    """
    replies = [step.reply for step in trajectory.steps]
    if not any(reply.ids for reply in replies):
        return None
    return sum(len(reply.prompt_ids) for reply in replies), sum(len(reply.ids) for reply in replies)


def _hash_files(files: Iterable[Path]) -> str:
    """Return the digest of the names and contents of files."""
    return digest([[file.name, _hash_file(file, file.stat().st_mtime_ns)] for file in files])


@lru_cache(maxsize=1_024)  # the files of some models, which are read once in a process
def _hash_file(file: Path, written: int) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
