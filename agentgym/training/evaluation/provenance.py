"""Records that identify a policy, its code and the worlds."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from importlib.machinery import all_suffixes
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium

import agentgym
from agentgym.assemble.registry import resolve
from agentgym.play.policy import Policy
from agentgym.training.rollout.policies import IN_MEMORY, PolicyConfig
from agentgym.training.rollout.user_policy import UserPolicy
from agentgym.world.digests import digest

_PACKAGE = Path(agentgym.__file__).parent
# Model options that do not affect replies.
_SPEED_ONLY = ("batch_size", "device")
# Files that determine a model's replies.
_WEIGHTS = ("*.json", "*.jinja", "*.safetensors", "*.bin", "*.gguf", "*.model")
# Fields that all policies of a folder share: digests of the package and of the worlds.
SOURCES = ("code", "worlds")
_SHOWN = 16


def provenance(
    config: PolicyConfig, worlds: Iterable[str], policy: Policy | None = None
) -> dict[str, Any]:
    """Return JSON-able data that identifies a policy, agentgym's code and the worlds.

    The data contains the name, the seed, agentgym's version, and digests of the package and the
    worlds. A trained model adds its sampling options and file hash; a module adds the digests of
    its code and imports; an object adds its source digest and its `provenance`.
    """
    facts: dict[str, Any] = {
        "agentgym": agentgym.__version__,
        "code": package_digest(),
        "worlds": {world: world_digest(world) for world in worlds},
        "policy": config.name,
        "seed": config.seed,
    }
    if seats := config.seats:
        players = getattr(policy, "seats", {})
        facts["seats"] = {seat: _identity(seats[seat], players.get(seat)) for seat in seats}
    facts |= _identity(config, policy)
    return dict(json.loads(json.dumps(facts)))


def _identity(config: PolicyConfig, policy: Policy | None = None) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if config.seats:
        return facts
    if config.is_model:
        facts["sampler"] = _sampler(asdict(config.model))
        facts["files"] = _weights_digest(Path(config.name))
    elif config.module:
        facts["modules"] = module_digests(config.module)
    elif config.name.startswith(f"{IN_MEMORY}:") and policy is not None:
        owner = _owner(policy)
        facts["source"] = _source_digest(owner)
        facts["modules"] = module_digests(owner.__module__)
    return facts | getattr(policy, "provenance", {})


def _sampler(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name not in _SPEED_ONLY}


def mismatch(facts: Mapping[str, Any], policy: Mapping[str, Any]) -> str:
    """Describe the first difference between a policy's provenance and its settings in a run."""
    given = {"policy": policy["name"], "seed": policy.get("seed")}
    if "sampler" in facts:
        given["sampler"] = _sampler(policy.get("model") or {})
    return difference(facts, given, given)


def named_after(config: PolicyConfig, policy: Policy | None) -> PolicyConfig:
    """Name an unnamed policy object after its function or class."""
    if policy is None or (config.is_model and hasattr(policy, "reseed")):
        return config
    owner = _owner(policy)
    name = f"{owner.__module__}.{owner.__qualname__}"
    return replace(config, name=f"{IN_MEMORY}:{name}", label=config.label or name)


def difference(kept: Mapping[str, Any], found: Mapping[str, Any], names: Iterable[str] = ()) -> str:
    """Describe the first difference between provenances, ignoring patch versions, or return "".

    `names` are the facts to compare, by default all.
    """
    for name in names or [*kept, *found]:
        old, new = kept.get(name), found.get(name)
        if name in ("worlds", "modules"):
            before, now = old or {}, new or {}
            for part in before.keys() & now.keys():
                if before[part] != now[part]:
                    return _sentence(f"{name[:-1]} {part}", before[part], now[part])
        elif name == "agentgym" and _release(old) == _release(new):
            continue
        elif old != new:
            return _sentence(name, old, new)
    return ""


def _sentence(name: str, old: object, new: object) -> str:
    return f"its {name} was {json.dumps(old)} and is {json.dumps(new)}"


def _release(version: object) -> list[str]:
    return str(version).split(".")[:2]


def _owner(policy: Policy) -> Any:
    target: Any = policy
    while isinstance(target, functools.partial | UserPolicy):
        target = target.func if isinstance(target, functools.partial) else target.policy
    return target if inspect.isroutine(target) or inspect.isclass(target) else type(target)


def _source_digest(owner: Any) -> str:
    try:
        return digest(inspect.getsource(owner))[:_SHOWN]
    except (OSError, TypeError):  # interactive or executed code
        return ""


@lru_cache(maxsize=1)  # edited files do not affect modules that are already loaded
def package_digest() -> str:
    """Return a digest of the package's files."""
    sha = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            sha.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0")
            sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()[:_SHOWN]


def world_digest(world: str) -> str:
    """Return a digest of a world's module and its imports, excluding installed packages."""
    path = str(gymnasium.spec(resolve(world)).kwargs["world"])
    module = path.partition(":")[0]
    own = _file_of(module)
    first = [_hash_file(own)] if own else []
    return digest([first, module_digests(module)])[:_SHOWN]


def module_digests(module: str) -> dict[str, str]:
    """Hash a module and its imports outside installed packages, without importing any of them."""
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file_of(name)
        if name in files or file is None or _is_installed(file):
            continue
        files[name] = file
        parts = name.split(".")
        waiting += [".".join(parts[:k]) for k in range(1, len(parts))]  # the packages around it
        if file.suffix == ".py":
            waiting += _imports(file, name)
    files.pop("__main__", None)  # scripts change between runs
    return {name: _hash_file(file)[:_SHOWN] for name, file in sorted(files.items())}


def _file_of(name: str) -> Path | None:
    if file := getattr(sys.modules.get(name), "__file__", None):
        return Path(file) if Path(file).is_file() else None
    module = Path(*name.split("."))
    for folder, place, suffix in product(sys.path, (module / "__init__", module), all_suffixes()):
        found = Path(folder, f"{place}{suffix}")
        if found.is_file():
            return found
    return None


def _is_installed(file: Path) -> bool:
    if {"site-packages", "dist-packages"} & set(file.parts) or _PACKAGE in file.parents:
        return True
    paths = sysconfig.get_paths()
    return any(Path(paths[name]) in file.parents for name in ("stdlib", "platstdlib"))


def _imports(file: Path, module: str) -> Iterator[str]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            if node.level:
                above = package.split(".")
                parts = above[: len(above) - node.level + 1] + parts
            base = ".".join(filter(None, parts))
            yield base
            for alias in node.names:
                yield f"{base}.{alias.name}"  # perhaps a submodule


def _weights_digest(folder: Path) -> str:
    files: set[Path] = set()
    for name in _WEIGHTS:
        files.update(folder.glob(name))
    return digest([[file.name, _hash_file(file)] for file in sorted(files)])


def _hash_file(file: Path) -> str:
    return _hash_version(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=1_024)  # model files are large
def _hash_version(file: Path, written: int) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
