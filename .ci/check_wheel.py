"""Check an installed wheel: it holds every module of the repository, imports from elsewhere, and
type-checks strictly.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
USER = """
import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout

env = agentgym.make("ListWorld", oracles="SP", labels=True)
assert rollout(env, OraclePolicy("ListWorld"), seed=0).reward == 1.0
reveal_type(agentgym.Chat().messages)
"""


def main() -> None:
    """Fail with a message at the first thing that is wrong."""
    held = {
        name for name in zipfile.ZipFile(sys.argv[1]).namelist() if name.startswith("agentgym/")
    }
    package = REPOSITORY / "agentgym"
    wanted = {
        str(path.relative_to(REPOSITORY))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if held != wanted:
        sys.exit(f"the wheel's files differ from the repository's: {sorted(held ^ wanted)}")
    with tempfile.TemporaryDirectory() as elsewhere:
        user = Path(elsewhere) / "user.py"
        user.write_text(USER, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-P", "-c", USER.replace("reveal_type", "type")],
            cwd=elsewhere,
            check=True,
        )
        mypy = [sys.executable, "-m", "mypy", "--strict"]
        subprocess.run([*mypy, "-p", "agentgym"], cwd=elsewhere, check=True)
        checked = subprocess.run(
            [*mypy, "user.py"], cwd=elsewhere, check=True, capture_output=True, text=True
        )
    if '"typing.Sequence[agentgym.messages.Message]"' not in checked.stdout:
        sys.exit(f"a user's code does not see the types of the package:\n{checked.stdout}")
    print(f"the wheel holds all {len(held)} files, imports and type-checks")


if __name__ == "__main__":
    main()
