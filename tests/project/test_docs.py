"""README and docs/ are correct: their code runs, and their commands and files exist."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import agentgym
from agentgym import Chat
from agentgym.cli import app
from agentgym.oracles import ControlPolicy
from agentgym.oracles.policies import Deficits
from agentgym.sandboxes import SandboxUnavailable
from tests.helpers import forgotten_worlds, run_python
from tests.training.rollout.endpoint_server import Answer, serving

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Folders in docs/ that a site build creates.
GENERATED = ("api", "servers", "worlds", "wrappers", "_build")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    if path.parent == ROOT or path.relative_to(DOCS).parts[0] not in GENERATED
}
TUTORIALS = sorted(page for page in PAGES if page.startswith("docs/tutorials/"))
EXAMPLES = [
    pytest.param(block, id=f"{page}-{number}")
    for page, text in PAGES.items()
    if page not in TUTORIALS
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
]


def run(code: str, folder: Path, **variables: str) -> str:
    shown = run_python("-W", "error", "-c", code, cwd=folder, env={**os.environ, **variables})
    if "MissingRequirement" in shown.stderr:
        raise SandboxUnavailable(shown.stderr)  # skips the test if the host cannot run programs
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


@pytest.mark.parametrize("block", EXAMPLES)
def test_an_example_runs_by_itself(block: str) -> None:
    run(block, ROOT)


def blocks_of(tutorial: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", PAGES[tutorial], re.DOTALL))


@pytest.mark.rotation(tutorial=[page for page in TUTORIALS if "oracle_study" not in page])
def test_a_tutorial_runs_from_top_to_bottom(tutorial: str, tmp_path: Path) -> None:
    assert run(blocks_of(tutorial), tmp_path).strip()


@pytest.fixture
def endpoint() -> Iterator[Mapping[str, str]]:
    """Serve a bad planner behind a chat completions endpoint; yield its connection settings."""
    agent = ControlPolicy("ListWorld", Deficits(planning=0.3))

    def reply(request: dict[str, Any], number: int) -> Answer:
        (reply,) = agent([Chat.from_openai(request["messages"])])
        return Answer({"content": reply.text})

    with serving(reply) as server:
        yield {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_MODEL": "planner",
            "OPENAI_API_KEY": "none",
        }


@pytest.mark.rotation
def test_the_study_of_an_endpoint_finds_its_deficit(
    endpoint: Mapping[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("openai", reason="the extra endpoint is not installed")
    printed = run(blocks_of("docs/tutorials/oracle_study.md"), tmp_path, **endpoint)
    counts = {
        arm: int(text.split()[0])
        for arm, text in ast.literal_eval(printed.strip().splitlines()[-1]).items()
    }
    assert counts["P"] == 8 > max(counts["none"], counts["P_"])


def commands_of(tutorial: str) -> list[str]:
    text = re.sub(
        r"\\\n\s*", "", "\n".join(re.findall(r"```bash\n(.*?)```", PAGES[tutorial], re.DOTALL))
    )
    return [line.partition(" #")[0] for line in text.splitlines() if line.startswith("agentgym")]


@pytest.mark.exhaustive  # minutes
@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_the_commands_of_a_tutorial_run_as_printed(
    tutorial: str, endpoint: Mapping[str, str], tmp_path: Path
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGES[tutorial], re.DOTALL)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "my_worlds.py").write_text("\n".join(blocks[:2]))
    environment = {**os.environ, **endpoint, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    for command in commands_of(tutorial):
        words = ["-m", *shlex.split(command)]
        if "view" in words:  # `view` serves until it is stopped
            line = [sys.executable, *words]
            with subprocess.Popen(
                line, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE
            ) as served:
                assert served.stdout is not None
                assert "http://127.0.0.1" in served.stdout.readline()
                served.terminate()
            continue
        shown = run_python(*words, cwd=tmp_path, env=environment)
        assert shown.returncode == 0, f"{command}\n{shown.stdout}\n{shown.stderr}"


def snippets() -> Iterator[tuple[str, str, bool]]:
    for page, text in PAGES.items():
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                yield page, line, False
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        yield from ((page, code, True) for code in re.findall(r"`([^`]+)`", prose))


COMMANDS = {
    (page, command.strip(), in_prose)
    for page, text, in_prose in snippets()
    for command in re.split(r"&&|#|;", text)
    if re.match(r"agentgym \w", command.strip())
}
COMMAND: Any = typer.main.get_command(app)
# Parser errors for a command or option that prose mentions without its arguments.
MENTIONS = {"MissingParameter", "BadOptionUsage", "NoArgsIsHelpError"}


def parse_command(words: list[str]) -> None:
    command = COMMAND
    context = command.make_context(words[0], words[1:])
    while hasattr(command, "commands"):  # a command group
        rest = [*context._protected_args, *context.args]
        name, command, arguments = command.resolve_command(context, rest)
        context = command.make_context(name, arguments, parent=context)


def test_every_command_on_the_pages_is_one_of_the_command_line() -> None:
    refused = []
    for page, command, in_prose in sorted(COMMANDS):
        try:
            parse_command(shlex.split(command))
        except Exception as error:  # noqa: BLE001 - whatever the parser says is reported
            if not (in_prose and type(error).__name__ in MENTIONS):
                refused.append(f"{page}: {command}: {type(error).__name__} {error}")
    assert len(COMMANDS) > 60
    assert refused == []


# Commands that need the reader's own worlds, endpoints or models.
ELSEWHERE = re.compile(r"guess|my_package|--price")
OF_POLICIES = re.compile(r" --(policy|max-new-tokens|batch-size) \S+")
STUDIES = [
    OF_POLICIES.sub("", command)
    for _, command, in_prose in sorted(COMMANDS)
    if command.startswith("agentgym ablate ") and not in_prose and not ELSEWHERE.search(command)
]


def test_every_printed_ablation_can_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that can be parsed may still contradict each other or the world."""
    monkeypatch.setattr("agentgym.cli.ablate.prepare_ablation", lambda *given: None)
    monkeypatch.setattr("agentgym.cli.ablate._play", lambda *given: None)
    with forgotten_worlds():
        for command in STUDIES:
            result = CliRunner().invoke(app, shlex.split(command)[1:])
            assert result.exit_code == 0, f"{command}\n{result.output}"
    assert len(STUDIES) > 20


BUILT = "docs/_build"  # the output of `make site`


def test_targets_and_files_on_the_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    missing = []
    for page, text, _ in snippets():
        missing += [
            (page, target)
            for target in re.findall(r"(?:^|&& )make (\w+)", text)
            if f"\n{target}:" not in makefile
        ]
        missing += [
            (page, name)
            for name in re.findall(r"(?:^|[ `])((?:benchmarks|tests|docs|\.ci)/[\w./*-]+)", text)
            if not any(ROOT.glob(name.rstrip("/."))) and not name.startswith(BUILT)
        ]
    assert missing == []


def test_links_between_the_pages_lead_somewhere() -> None:
    # The site build checks links within docs/, and this test checks the links in README.
    broken = [
        (page, link)
        for page, text in PAGES.items()
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text)
        if "://" not in link
        and not (ROOT / page).parent.joinpath(link).exists()
        and not {*Path(link).parts[:-1]} & {*GENERATED}
    ]
    assert broken == []


def test_readme_is_short_and_names_every_world() -> None:
    assert README.count("\n") <= 150
    names = {entry.world.__name__ for entry in agentgym.worlds()}
    rows = re.findall(r"^\| \[.*\]\(docs/.*\| (`.*`) \|$", README, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(names)


def test_the_two_commands_are_targets_of_the_makefile_and_ci_runs_one() -> None:
    commands = re.search(r"```bash\n(make \w+) .*\n(make \w+) .*\n```", README)
    assert commands is not None
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in commands.groups():
        assert f"\n{line.split()[1]}:" in makefile
    assert commands[2] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    import generate  # noqa: PLC0415 - as above

    return generate


def test_every_wrapper_of_the_packages_has_a_page(generate: Any) -> None:
    pages = {page.wrapper.__name__ for page in generate.wrappers.PAGES}
    assert pages == generate.wrappers.exported_wrappers()


@pytest.mark.parametrize("name", ["GridWorld", "MultimodalWorld", "CourseAssistant"])
def test_the_page_of_a_world_has_all_that_a_reader_asks_for(generate: Any, name: str) -> None:
    entries = [entry for entry in agentgym.worlds(presets=True) if entry.world.__name__ == name]
    page = generate.worlds.world_page(entries[0].world, entries, None)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [
        "An episode", "Tools", "Options", "Score and end", "Presets", "Audit", "Source",
    ]  # fmt: skip
    assert ("score 1 after" in page) or ("was not played" in page) or ("Not played" in page)
    assert ('class="boards"' in page) is (name == "GridWorld")
    pictures = re.findall(r'<figure><img alt="([^"]*)" width="\d+" src="data:image/png', page)
    assert len(pictures) == 3 * (name == "GridWorld")
    assert all("A" in text and "&#10;" in text for text in pictures)
    assert f"`{entries[-1].id}`" in page
    folder = re.findall(r"\(\.\./papers/(\w+)\.md\)", page)
    assert (DOCS / "papers" / f"{folder[0]}.md").is_file()


# Words that a newcomer may look up, with the page that explains them.
EXPLAINED = {
    **dict.fromkeys(("horizon", "temperature", "oracle", "placebo", "arm", "window"), "glossary"),
    "FAQ": "faq",
    "sandbox": "sandbox",
}


def test_the_search_lists_the_explaining_page_first() -> None:
    node, site = shutil.which("node"), DOCS / "_build" / "html"
    if node is None or not (site / "searchindex.js").is_file():
        pytest.skip("needs node, and the site (make site)")
    words = [node, str(Path(__file__).with_name("search.js")), str(site), *EXPLAINED]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    pages = [json.loads(line) for line in shown.splitlines()]
    assert {word: found[0] for word, found in zip(EXPLAINED, pages, strict=True)} == EXPLAINED
    references = ("api/", "worlds/", "servers/", "wrappers/")
    for found in pages:
        kinds = [name.startswith(references) for name in found]
        assert kinds == sorted(kinds), "explanations come before references"


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_a_notebook_has_the_code_of_its_tutorial(generate: Any, tutorial: str) -> None:
    cells = json.loads(generate.notebooks.notebook(PAGES[tutorial]))["cells"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    assert "".join(f"{source}\n\n" for source in code).strip() == blocks_of(tutorial).strip()
    assert code[0].startswith(("import", "from"))


def test_what_a_page_shows_of_a_chat_is_text(generate: Any) -> None:
    message = agentgym.Message("tool", "<script>alert(1)</script>\n`````\n" + "word " * 900)
    block = generate.markup.chat_block([message, "<b>left out</b>"], limit=100)
    assert block.count("```") == 2
    assert "<script>" not in block
    assert "<b>" not in block
    assert "more characters]" in block
