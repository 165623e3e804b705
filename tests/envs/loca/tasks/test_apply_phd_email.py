from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.tasks.apply_phd_email import ME, _read_request
from agentgym.envs.loca.writing.applications import (
    ASKING,
    FLAT,
    LETTERS,
    NEWEST,
    OLDEST,
    PAPERS,
    ROOT,
    draw_layout,
    draw_tree,
    replies_book,
)
from agentgym.office.email.messages import addresses
from agentgym.office.email.server import Email
from agentgym.office.files.pdfs import read_pdf, write_pdf
from tests.envs.loca.office import Change, carry_out, faults_after, fresh, no_file, resend, unsent
from tests.helpers import needs_workbench

TASK = "ApplyPhDEmail"
OPTIONS = {"length": 16_000, "seed": 2}
Files = dict[str, bytes]


def packed(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def unpacked(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def chosen(world: Any, source: str) -> Any:
    return next(
        mail
        for mail in world.office.get(Email).sent()
        if source in world.truth["wanted"][mail.to].values()
    )


def path_of(world: Any, mail: Any, source: str) -> str:
    return next(path for path, what in world.truth["wanted"][mail.to].items() if what == source)


def again(
    change: Callable[[Files, Any, Any], Files | bytes | None] = lambda *_: None,
    source: str = "",
    **changes: Any,
) -> Any:
    def apply(world: Any) -> None:
        mail = unsent(world, chosen(world, source) if source else world.office.get(Email).sent()[0])
        held = unpacked(next(iter(mail.attachments.values())))
        made = change(dict(held), world, mail)
        made = held if made is None else made
        data = made if isinstance(made, bytes) else packed(made)
        path = world.office.context.files.write(f"again/{world.truth['root']}.zip", data)
        resend(world, mail, **{"attachments": [path], **changes})

    return apply


def swapped(files: Files, *_: Any) -> Files:
    one, two = list(files)[:2]
    return {**files, one: files[two], two: files[one]}


def renamed(old: str, new: str) -> Callable[..., Files]:
    return lambda files, *_: {re.sub(old, new, name): data for name, data in files.items()}


def awards(world: Any) -> list[tuple[str, ...]]:
    return [
        read_pdf(world.office.context.files.read(f"{FLAT}/{paper}"))
        for paper in world.truth["awards"]
    ]


def merged(pages: Callable[[Any], list[tuple[str, ...]]]) -> Callable[..., Files]:
    def change(files: Files, world: Any, mail: Any) -> Files:
        made = write_pdf([page.split("\n") for award in pages(world) for page in award])
        return {**files, path_of(world, mail, source_of(world)): made}

    return change


def source_of(world: Any) -> str:
    asked = {what for members in world.truth["wanted"].values() for what in members.values()}
    return OLDEST if OLDEST in asked else NEWEST


def in_order(world: Any) -> list[tuple[str, ...]]:
    return awards(world)[:: 1 if source_of(world) == OLDEST else -1]


def award_mail(change: Callable[..., Files]) -> Change:
    return lambda world: again(change, source_of(world))(world)


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "a copy to herself": (again(cc=ME), "not requested"),
    "no attachment": (again(attachments=[]), "the attachments are"),
    "one file more attached": (
        lambda world: again(attachments=[f"again/{world.truth['root']}.zip", f"{FLAT}/CV.pdf"])(world),
        "the attachments are",
    ),
    "a file is missing": (again(lambda files, *_: dict(list(files.items())[1:])), "is missing"),
    "a file more": (again(lambda files, world, _: {**files, f"{world.truth['root']}/old_CV.pdf": b"x"}), "should not be there"),
    "a folder more": (again(lambda files, world, _: {**files, f"{world.truth['root']}/Other/": b""}), "should not be there"),
    "another name of the folder": (again(renamed("Application_Materials_", "Materials_")), "is missing"),
    "another student ID": (again(renamed(r"_\d+/", "_B12345/")), "is missing"),
    "blanks in the name": (again(renamed("_Mary_", " Mary ")), "is missing"),
    "without the folder": (again(renamed("^[^/]*/", "")), "is missing"),
    "flat": (again(renamed("/[^/]*/", "/")), "is missing"),
    "two files swapped": (again(swapped), "is not"),
    "the old CV": (
        again(
            lambda files, world, mail: {
                **files, path_of(world, mail, "CV.pdf"): world.office.context.files.read(f"{FLAT}/old_CV.pdf"),
            },
            "CV.pdf",
        ),
        "is not CV.pdf",
    ),
    "the letters swapped": (
        again(
            lambda files, world, mail: {
                **files,
                path_of(world, mail, "letter_1.pdf"): files[path_of(world, mail, "letter_2.pdf")],
                path_of(world, mail, "letter_2.pdf"): files[path_of(world, mail, "letter_1.pdf")],
            },
            "letter_1.pdf",
        ),
        "is not letter_",
    ),
    "the letters counted from 0": (again(renamed("-1.pdf", "-0.pdf"), "letter_1.pdf"), "is missing"),
    "the awards in the other order": (award_mail(merged(lambda world: in_order(world)[::-1])), "is not awards"),
    "an award is missing": (award_mail(merged(lambda world: in_order(world)[:-1])), "is not awards"),
    "an award twice": (award_mail(merged(lambda world: [*in_order(world), in_order(world)[0]])), "is not awards"),
    "one award only": (
        award_mail(lambda files, world, mail: {
            **files,
            path_of(world, mail, source_of(world)): world.office.context.files.read(f"{FLAT}/{world.truth['awards'][0]}"),
        }),
        "is not awards",
    ),
    "awards that are no PDF": (
        award_mail(lambda files, world, mail: {**files, path_of(world, mail, source_of(world)): b"\0" * 50_000}),
        "is not awards",
    ),
    "no archive": (again(lambda *_: b"PK\3\4 and no more"), "readable zip archive"),
    "a path that leads out": (again(lambda files, *_: {**files, "../x": b"1"}), "should not be there"),
    "a bomb": (again(lambda files, *_: {**files, "x": bytes(2**23)}), "limit exceeded"),
}  # fmt: skip
EQUIVALENTS: dict[str, Change] = {
    "in another order": again(lambda files, *_: dict(reversed(files.items()))),
    "with entries for the folders": again(
        lambda files, *_: {f"{name.rpartition('/')[0]}/": b"" for name in files} | files,
    ),
    "another text and HTML": again(body="x", html_body="<p>x</p>"),
    "the awards merged by another program": award_mail(merged(in_order)),
    "the outbox is cleared": no_file("outbox"),
    "the archive is changed after it was sent": lambda world: world.office.context.files.write(
        f"outbox/1/{world.truth['root']}.zip", "x"
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_fail(name: str) -> None:
    needs_workbench()
    change, words = NEAR_MISSES[name]
    assert words in " ".join(faults_after(TASK, change, **OPTIONS))


@pytest.mark.parametrize("name", EQUIVALENTS)
def test_equivalents_pass(name: str) -> None:
    needs_workbench()
    assert faults_after(TASK, EQUIVALENTS[name], **OPTIONS) == []


# Handwritten pattern, independent of the package's parsers.
NOT_NOW = re.compile(
    r"nothing to send|wait until I write|application elsewhere|and not I|cannot take you|do not send your papers"
    r"|to give you an idea"
    r"|Applicants of the coming|My group is full|the committee has chosen|not a request|may take months|only then can I"
    r"|decide about applicants|would want your file|too early"
)


def positive(text: str) -> bool:
    return ROOT in text and not NOT_NOW.search(text)


def test_sentences_that_ask_for_nothing_are_known_by_other_words() -> None:
    """Check the pattern `NOT_NOW`, which `positive` uses."""
    phrases = {kind: replies_book().kinds[kind] for kind in ("shown", *ASKING)}
    for kind, group in phrases.items():
        for phrase in group:
            texts = list(phrase.forms())
            assert all(bool(NOT_NOW.search(text)) == (kind == "shown") for text in texts), texts


def newest_mails(world: Any) -> tuple[dict[str, str], Counter[str]]:
    newest: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for mail in world.office.get(Email).messages(ME, "INBOX"):  # oldest first
        box = addresses(mail.sender)[0][1]
        if mail.subject.startswith("Automatic reply:"):
            counts["automatic"] += 1
            continue
        if box in newest:
            kinds = (positive(newest[box]), positive(mail.text))
            counts[{(True, False): "closed", (False, True): "opened"}.get(kinds, "twice")] += 1
        newest[box] = mail.text
    return newest, counts


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_by_the_mails(seed: int) -> None:
    world = fresh(TASK, 64_000, seed)
    newest, _ = newest_mails(world)
    asked = {box: text for box, text in newest.items() if positive(text)}
    assert asked.keys() == world.truth["wanted"].keys()
    assert 0.05 < len(asked) / len(newest) < 0.15
    numbers = [int(re.findall(r"(\d+)@", box)[0]) for box in asked]
    assert max(numbers) > len(asked), "their addresses do not tell who asks"
    for box, text in asked.items():
        for path, source in world.truth["wanted"][box].items():
            *folders, name = path.split("/")
            assert all(folder in text for folder in folders[1:])
            assert source.startswith("letter_") or name in text
            phrases = PAPERS[LETTERS if source.startswith("letter_") else source]["phrases"]
            assert any(phrase in text for phrase in phrases)


def test_every_structure_is_read_as_it_was_drawn() -> None:
    rng, styles, depths = np.random.default_rng(3), set(), set()
    for _ in range(300):
        layout = draw_layout(rng)
        tree = draw_tree(rng, layout)
        asking = replies_book().write("ask", rng)
        styles.add(
            "lines"
            if "├" in tree or "└" in tree
            else "paths"
            if tree.count(ROOT) > 1
            else "indentation"
        )
        depths |= {path.count("/") for path in layout}
        mail = {
            "subject": "x",
            "from": "A B <a@b.example.edu>",
            "date": "d",
            "body": f"{asking}\n\n{tree}\n\nBye (soon)\nA/B",
        }
        read = _read_request(mail)
        assert read is not None
        assert read[2] == {
            f"{ROOT}/{path}": next(p for p, forms in PAPERS.items() if what in forms["phrases"])
            for path, what in layout.items()
        }
    assert (styles, depths) == ({"lines", "paths", "indentation"}, {1, 2})


def test_a_host_that_cannot_run_programs_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    workbench = pytest.importorskip("agentgym.sandboxes.workbench")
    monkeypatch.setattr(workbench, "_command", lambda: ("/no/bwrap",))
    with pytest.raises(RuntimeError, match="programs cannot run on this host"):
        carry_out(fresh(TASK))
