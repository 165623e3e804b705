"""The lock files of CI are complete, hashed, and agree with the versions in `constraints.txt`."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / ".ci" / "locks").glob("*.txt"))
LINE = re.compile(r"(?P<name>[\w.-]+)==(?P<version>\S+) --hash=sha256:[0-9a-f]{64}")
# Packages that an environment uses in a version other than the pinned one.
FREE = {
    "adapters": {"mcp", "openai", "openenv", "pillow", "transformers"},
    "bridges": {"mcp", "pillow"},
}


def versions(lock: Path) -> dict[str, str]:
    lines = lock.read_text(encoding="utf-8").splitlines()
    matches = [LINE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(matches), f"{lock.name} has a line without a version or a hash; run make lock"
    return {canonicalize_name(found["name"]): found["version"] for found in matches if found}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def test_there_are_locks_for_each_environment() -> None:
    assert {lock.name.partition("-")[0] for lock in LOCKS} == {
        "build",
        "dev",
        "adapters",
        "bridges",
    }


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_has_the_versions_that_are_pinned(lock: Path) -> None:
    free = FREE.get(lock.name.partition("-")[0], set())
    locked = versions(lock)
    wrong = {
        name: (locked[name], version)
        for name, version in pins().items()
        if name in locked and name not in free and locked[name].partition("+")[0] != version
    }
    assert not wrong, "locked and pinned versions differ; run make lock"


def test_the_lock_holds_all_that_the_tests_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras, queue, needed = set[str](), ["dev"], list(map(Requirement, project["dependencies"]))
    while queue:
        extra = queue.pop()
        extras.add(extra)
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if requirement.name == "agentgym-suite":
                queue += sorted(requirement.extras - extras)
            else:
                needed.append(requirement)
    (lock,) = (each for each in LOCKS if each.name.startswith("dev-"))
    locked = versions(lock)
    for requirement in needed:
        version = locked.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not locked; run make lock"
        assert requirement.specifier.contains(version), f"{requirement}, locked {version}"
