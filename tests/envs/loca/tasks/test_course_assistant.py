from __future__ import annotations

import re
from typing import Any

import pytest

from agentgym.envs.loca.tasks.course_assistant import (
    ACCOUNT,
    ENROLLED,
    ME,
    PASSWORD,
    ROSTER,
    SHEET,
    SUBJECT,
    WITHDRAWN,
)
from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from agentgym.office.spreadsheet.workbooks import read_workbook
from tests.envs.loca.office import Change, final_state_tests, fresh, resend, unsent

TASK = "CourseAssistant"
OPTIONS = {"length": 16_000, "seed": 1}


def roster(world: Any) -> list[list[str]]:
    return read_workbook(world.office.context.files.read(ROSTER))[SHEET][1:]


def again(**changes: Any) -> Change:
    def apply(world: Any) -> None:
        mail = unsent(world, world.office.get(Email).sent()[0])
        shown = {"to": mail.to, "body": mail.body}
        asked = {
            name: change(shown.get(name, ""), world) if callable(change) else change
            for name, change in changes.items()
        }
        resend(world, mail, **asked)

    return apply


def in_html(world: Any) -> str:
    address = next(iter(world.truth["missing"]))
    name, number = world.truth["missing"][address]
    return f"<p>Dear <b>{name}</b> ({number}),</p><p>please hand in.</p>"


def other(world: Any) -> list[str]:
    return next(
        row for row in roster(world) if row[3] == ENROLLED and row[2] not in world.truth["missing"]
    )


def longer(body: str, world: Any) -> str:
    name = body.removeprefix("Dear ").partition(",")[0]
    world.truth["names"].append(f"{name} Zimmermann")
    return body.replace(name, f"{name} Zimmermann")


def to_student(world: Any) -> None:
    email = world.office.get(Email)
    email.login_as(other(world)[2])
    name, number, address, _ = next(
        row for row in roster(world) if row[2] in world.truth["missing"]
    )
    again(body=f"{name} {number}", to=address)(world)


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "another subject": (again(subject="NLP-course-emergency"), "another subject"),
    "a longer subject": (again(subject=f"Re: {SUBJECT}"), "another subject"),
    "the text says the opposite": (
        again(body=lambda body, _: f"{body} But you need not hand in anything."),
        "nothing is missing",
    ),
    "the text says that it has come": (
        again(body=lambda body, _: f"{body} Your slides have been received."),
        "nothing is missing",
    ),
    "no ID": (
        again(body=lambda body, _: body.replace("(student ID", "(student").replace("2000", "")),
        "should have the ID",
    ),
    "the ID of another student": (
        again(body=lambda body, world: f"{body} {other(world)[1]}"),
        "should have the ID",
    ),
    "the ID only as a part of a number": (
        again(body=lambda body, _: body.replace("2000", "12000")),
        "should have the ID",
    ),
    "no name": (
        again(body=lambda body, _: f"Dear student,{body.partition(',')[2]}"),
        "should have the name",
    ),
    "the first name only": (
        again(body=lambda body, _: f"{body.split()[0]} {body.split()[1]},{body.partition(',')[2]}"),
        "name",
    ),
    "the name of another student": (
        again(body=lambda body, world: f"{body} {other(world)[0]}"),
        "should have the name",
    ),
    "a longer name": (again(body=longer), "should have the name"),
    "another student in the HTML": (
        again(html_body=lambda _, world: f"<p>{other(world)[0]}</p>"),
        "should have the ID",
    ),
    "HTML that says another thing": (
        again(html_body="<p>You have handed in, all is fine.</p>"),
        "should have the ID",
    ),
    "HTML that shows nothing": (again(html_body=f"<{ME}>"), "should have the ID"),
    "a hidden copy": (again(bcc="x@elsewhere.example.org"), "unexpected"),
    "all in one mail": (
        again(to=lambda to, world: f"{to}, {list(world.truth['missing'])[-1]}"),
        "unexpected",
    ),
    "a very long mail": (again(body=lambda body, _: "x" * 200_000), "should have the ID"),
    "from another account": (to_student, "not from the mailbox"),
}
EQUIVALENTS: dict[str, Change] = {
    "a condition": again(
        body=lambda body, _: f"{body} If you have already submitted it, please ignore this mail."
    ),
    "what has not come": again(
        body=lambda body, _: (
            f"{body} Your slides have not been received, and were not submitted by anybody else."
        )
    ),
    "another wording": again(
        body=lambda body, _: f"Hello!\n{body.replace(chr(10), ' ').upper()}\nVirginia Diaz"
    ),
    "the name in two lines": again(body=lambda body, _: body.replace(" ", "\n")),
    "as HTML alone": again(body="", html_body=lambda _, world: in_html(world)),
    "the name and ID in the HTML": again(
        body="Please read the HTML.", html_body=lambda _, world: in_html(world)
    ),
    "name and ID in cells of a table": again(
        html_body=lambda _, world: "<table><tr><td>{}</td><td>{}</td></tr></table>".format(
            *world.truth["missing"][next(iter(world.truth["missing"]))]
        )
    ),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, **OPTIONS
)


# Handwritten pattern, independent of the package's parsers.
DRAFT = re.compile(
    r"only a draft|until I have finished|as a first version|not the final|my proposal from|outline; the|an older state"
    r"|This is a draft"
    r"|as I see now|Do not grade|last third is empty|just the handout|is not written|only tests my|in another mail"
    r"|not done yet|that counts will come|I still owe|only what I have so far|, not my slides|still running|yet to finish the"
    r"|last year's example, not mine|before I submit the real"
)


def looks_right(mail: Mail, number: str) -> bool:
    return mail.subject.casefold().startswith(f"nlp-presentation-{number}-") and any(
        n.endswith(".pdf") for n in mail.attachments
    )


def counts(mail: Mail, number: str) -> bool:
    return looks_right(mail, number) and not DRAFT.search(mail.body)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_by_roster_and_mailbox(seed: int) -> None:
    world = fresh(TASK, 64_000, seed)
    mails = world.office.get(Email).messages(ME, "INBOX")
    rows = roster(world)
    missing = {
        email: [name, number]
        for name, number, email, status in rows
        if status == ENROLLED and not any(counts(mail, number) for mail in mails)
    }
    assert missing == world.truth["missing"]
    senders = {row[1] for row in missing.values()}
    drafts = {number for number in senders for mail in mails if looks_right(mail, number)}
    assert len(drafts) >= 3, "some have sent nothing but a draft"
    assert len({row[1] for row in rows}) == len({row[2] for row in rows}) == len(rows)
    assert 0.08 < len(missing) / len(rows) < 0.45
    assert 0.08 < sum(row[3] == WITHDRAWN for row in rows) / len(rows) < 0.35


def test_the_password_is_needed_and_the_users_do_not_give_the_answer_away() -> None:
    world = fresh(TASK)
    assert "user" not in world.office.get(Email).session
    assert {user["email"] for user in world.office.get(Email).users()} == {
        ME,
        *(row[2] for row in roster(world)),
    }
    world.office.call("login", {"email": ME, "password": PASSWORD})
    assert PASSWORD in world.office.context.files.read_text(ACCOUNT)
