from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import agentgym

ROOT = Path(__file__).parents[2]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = CONFIGURATION["project"]
HOME = PROJECT["urls"]["Repository"]
HOOK = CONFIGURATION["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
PAGES = [
    path
    for pattern in ("*.md", "docs/*.md", "examples/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
]
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_code(page: str) -> str:
    # Ignore code, in which brackets have other meanings.
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", page, flags=re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_through_no_link_of_the_file_system(page: Path) -> None:
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        path = page.parent / target.partition("#")[0]
        assert path.exists(), f"{page.name} links to {target}"
        assert path.absolute() == path.resolve() or ".." in target, f"{target} is behind a symlink"


def test_the_description_on_pypi_has_no_relative_link_and_the_same_code() -> None:
    page = text("README.md")
    for rule in HOOK["substitutions"]:
        page = re.sub(rule["pattern"], rule["replacement"], page)
    assert LINK.findall(without_code(page)) == []
    assert f"]({HOME}/blob/main/docs/" in page
    code = re.compile(r"```.*?```", re.DOTALL)
    assert code.findall(page) == code.findall(text("README.md"))
    linked = re.findall(rf"\]\({re.escape(HOME)}/blob/main/([^)#]+)", page)
    assert all((ROOT / each).is_file() for each in linked)


def test_every_notice_of_bundled_data_is_a_licence_of_the_wheel() -> None:
    listed = {path for pattern in PROJECT["license-files"] for path in ROOT.glob(pattern)}
    notices = set((ROOT / "agentgym").rglob("NOTICES*"))
    assert notices
    assert listed == {ROOT / "LICENSE", *notices}
    assert set(PROJECT["license"].split(" AND ")) == {"Apache-2.0", "MIT"}


def test_data_of_others_stand_beside_their_notice() -> None:
    data = [path for pattern in ("*.tsv", "*.csv", "*.json", "*.txt", "*.parquet", "*.gz")
            for path in (ROOT / "agentgym").rglob(pattern)]  # fmt: skip
    assert data
    for path in data:
        # Skip the project's own tool descriptions, default record fields and hostile texts.
        if path.name.startswith("hostile_") or path.is_relative_to(ROOT / "agentgym/office"):
            continue
        assert path.name in (path.parent / "NOTICES.md").read_text(encoding="utf-8")


def test_every_file_of_the_package_has_a_row_of_a_licence() -> None:
    page = (ROOT / "docs" / "data_licences.md").read_text(encoding="utf-8")
    shipped = page[page.index("## Shipped") : page.index("## Read, not shipped")]
    rows = re.findall(r"^\| (`.*?) \| .* \| ([^|]+) \|$", shipped, re.MULTILINE)
    assert all(licence.strip() for _, licence in rows)
    package = ROOT / "agentgym"
    patterns = [pattern for files, _ in rows for pattern in re.findall(r"`([^`]+)`", files)]
    covered = {path for pattern in patterns for path in package.glob(pattern)}
    assert all(any(package.glob(pattern)) for pattern in patterns), "a row without files"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "agentgym"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    files = {ROOT / name for name in listed if not name.endswith(".py")}
    assert len(files) > 40
    assert {path for path in files if path.is_file()} - covered == set()


def test_the_citation_is_that_of_the_version() -> None:
    yaml: Any = pytest.importorskip("yaml")
    citation = yaml.safe_load(text("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == PROJECT["version"] == agentgym.__version__
    assert citation["authors"] == PROJECT["authors"]
    assert citation["repository-code"] == HOME
    assert citation["license"] == PROJECT["license"].split(" AND ")
    assert {"message", "title", "type", "keywords"} <= citation.keys()
