"""Write the CI lock files, which list each package of an environment with its version and hashes.

`python .ci/lock.py` locks all environments; `python .ci/lock.py adapters` locks one of them.

In a fresh environment, pip resolves the extras with `constraints.txt`. `make check LOCKED=1`
installs only files with these hashes. A lock is valid for the Python version and platform in its
file name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# For example 3.11-linux-x86_64.
PLATFORM = f"{sys.version_info.major}.{sys.version_info.minor}-{sysconfig.get_platform()}"
# Build requirements are also locked, so that a build downloads nothing else.
BUILD = ("hatchling", "hatch-fancy-pypi-readme", "editables", "setuptools", "wheel")
ADAPTERS = "cli,endpoint,export,office,renderers,train,verifiers,verl"
BRIDGES = "cli,inspect,office,openenv,trl"
TESTS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
# For each environment: the packages to install, and the packages whose constraints are ignored.
ENVIRONMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "build": (BUILD, ()),
    "dev": ((".[dev]", *BUILD), ()),
    # Other libraries need older releases of these packages than `constraints.txt` allows.
    "adapters": (
        (f".[{ADAPTERS}]", "verifiers[openenv]", *TESTS, *BUILD),
        ("mcp", "openai", "openenv", "pillow", "transformers"),
    ),
    "bridges": ((f".[{BRIDGES}]", *TESTS, *BUILD), ("mcp", "pillow")),
}


def main() -> None:
    for name in sys.argv[1:] or ENVIRONMENTS:
        path = ROOT / ".ci" / "locks" / f"{name}-{PLATFORM}.txt"
        path.parent.mkdir(exist_ok=True)
        lines = sorted(map(lock_line, resolve(name)))
        head = f"# Made by `make lock` ({name}, Python {PLATFORM}); do not edit.\n"
        path.write_text(head + "".join(lines), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(lines)} packages")


def resolve(name: str) -> list[dict[str, Any]]:
    packages, free = ENVIRONMENTS[name]
    constraints = [
        line
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        if line.partition("==")[0] not in free
    ]
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "venv" / "bin" / "python"
        report, limits = Path(folder) / "report.json", Path(folder) / "constraints.txt"
        limits.write_text("".join(constraints), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        options = ["--dry-run", "--ignore-installed", "--report", str(report)]
        command = [*pip, *options, "--constraint", str(limits), *packages]
        subprocess.run(command, cwd=ROOT, check=True)
        files: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [each for each in files if "dir_info" not in each["download_info"]]


def lock_line(package: dict[str, Any]) -> str:
    metadata = package["metadata"]
    digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{metadata['name'].lower()}=={metadata['version']} --hash=sha256:{digest}\n"


if __name__ == "__main__":
    main()
