"""Check an installed wheel's modules, data licences, absolute links, import path and types."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
# licence files for the package's data
NOTICES = "agentgym/**/NOTICES*"
USER = """
import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout

env = agentgym.make("ListWorld", oracles="SP", labels=True)
assert rollout(OraclePolicy("ListWorld"), env, seed=0).reward == 1.0
reveal_type(agentgym.Chat().messages)
"""


def main() -> None:
    wheel = zipfile.ZipFile(sys.argv[1])
    check_metadata(wheel)
    held = {name for name in wheel.namelist() if name.startswith("agentgym/")}
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
        mypy = [sys.executable, "-m", "mypy", "--strict", "user.py"]
        checked = subprocess.run(mypy, cwd=elsewhere, check=True, capture_output=True, text=True)
    if '"typing.Sequence[agentgym.text.messages.Message]"' not in checked.stdout:
        sys.exit(f"a user's code does not see the types of the package:\n{checked.stdout}")
    print(f"the wheel holds all {len(held)} files, imports and type-checks")


def check_metadata(wheel: zipfile.ZipFile) -> None:
    files = {name.partition(".dist-info/")[2]: name for name in wheel.namelist()}
    notices = {str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob(NOTICES)}
    licences = {f"licenses/{name}" for name in {"LICENSE", *notices}}
    if missing := sorted(licences - files.keys()):
        sys.exit(f"the wheel lacks {missing}: add them to license-files in pyproject.toml")
    metadata = email.message_from_bytes(wheel.read(files["METADATA"]))
    if not {"Repository", "Issues", "Changelog"} <= {
        each.partition(",")[0] for each in metadata.get_all("Project-URL", [])
    }:
        sys.exit("the metadata of the wheel lacks the addresses of the project")
    description = metadata.get_payload()
    relative = re.findall(r"\]\((?!https://|#)[\w./-]*[./][^)]*\)", str(description))
    if relative or "](https://" not in str(description):
        sys.exit(f"links of the description lead nowhere on PyPI: {relative}")


if __name__ == "__main__":
    main()
