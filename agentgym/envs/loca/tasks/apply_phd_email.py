"""Send professors application archives with the requested structure (LOCA-bench, table 7)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from pydantic import Field

from agentgym.envs.loca.archives import read_archive
from agentgym.envs.loca.checks import file_state, same_subject, set_failures
from agentgym.envs.loca.draws import LAST, address, people, pick, shuffled, text_of, whole
from agentgym.envs.loca.fragments import mail_of, read_folder
from agentgym.envs.loca.plan import Plan, PlanStep, read, write
from agentgym.envs.loca.protected_state import DRAFTS
from agentgym.envs.loca.records import Record
from agentgym.envs.loca.service_checks import mail_failures, mail_places
from agentgym.envs.loca.task import OfficeConfig, OfficeTask
from agentgym.envs.loca.writing.applications import (
    FLAT,
    LETTERS,
    NEWEST,
    OLDEST,
    PAPER_OF_PHRASE,
    ROOT,
    Correspondence,
    Layout,
    asks_for_papers,
    draw_layout,
    draw_papers,
    draw_tree,
    members_of,
)
from agentgym.office.email.messages import Mail
from agentgym.office.files.pdfs import read_pdf
from agentgym.office.memory import KnowledgeGraph
from agentgym.text.tools import ToolError, echo

ME = "maryc@mcp.com"
SUBJECT = "submit_material"
LIST = "/workspace/archives.json"
OUT = "/workspace/outbox"
OUTBOX = f"file {OUT}"
AUTOMATIC = "Automatic reply: "
SCRIPT = f"""python -c '
import json, pathlib, zipfile
for target, members in json.load(open("{LIST}")).items():
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        for name, source in members.items():
            archive.write(source, name)
'"""
_PAPER = re.compile(r"^\[FILE\] ((?:award|letter)\S*)", re.MULTILINE)
_LINE = re.compile(r"^([│├└─ ]*+)(\S+)(?: \((.+)\)|(?<=/))$", re.MULTILINE)
# Share of professors who mention an archive structure without requesting one.
_SHOWN_RATE = 0.12
# Probabilities that a professor has written before, and that an automatic reply has arrived.
_REPEAT_RATE, _AUTOMATIC_RATE = 0.25, 0.15
_OTHERS = 8  # number of professors per unrelated email
_SENDER = re.compile(r"(?<![^\s<>])([^\s<>]+@[^\s<>]+)>?$")


@dataclass(frozen=True, kw_only=True)
class ApplyPhDEmailConfig(OfficeConfig):
    """The size is the number of professors who have replied.

    Attributes:
        positives: The number of professors who request papers. Default: one tenth of the size, from
            1 to 32.
        different_structures: Whether each professor requests a different archive structure.
    """

    positives: Annotated[int, Field(ge=1, le=500)] | None = None
    different_structures: bool = True


class ApplyPhDEmail(OfficeTask[ApplyPhDEmailConfig]):
    """Find the professors who request application papers, and send each professor an archive with
    the requested structure.

    Without a working sandbox, terminal calls raise RuntimeError.
    """

    Config = ApplyPhDEmailConfig
    servers = ("filesystem", "terminal", "pdf_tools", "memory", "email", "claim_done")
    outputs = ("archives", "mails")
    remade = (f"file {LIST}", OUTBOX)
    forbidden = (DRAFTS,)
    harmless: ClassVar[Mapping[str, str]] = {
        "own:email.sent.messages.body": "the text of a mail to a professor",
        "own:email.sent.messages.html": "the same as HTML",
        "own:email.sent.messages.words": "the same as the index of the mailbox has it",
    }
    tokens_per_unit = 308.0
    text = text_of("prompts", "ApplyPhDEmail")

    def draw(self, size: int) -> None:
        rng = self.rng
        last = pick(rng, [name for name in LAST if name.startswith("C")])
        name = f"Mary {pick(rng, ('', 'Ann ', 'Jo '))}{last}"
        student = f"{whole(rng, 2019, 2024)}{whole(rng, 100_000):05}"
        names = people(rng, size + 3)
        self._mails = Correspondence(rng, self.start, names[size:])
        letters, awards = draw_papers(rng, self.files, name, student, names[size:])
        root = ROOT.replace("<Name>", name.replace(" ", "_")).replace("<Student_ID>", student)
        count = self.config.positives or min(32, max(1, round(size / 10)))
        first = draw_layout(rng)
        marks = rng.permutation(size) + 1
        expected, mails = {}, []
        for k, professor in enumerate(names[:size]):
            domain = f"{pick(rng, ('cs', 'math', 'ai'))}.{pick(rng, LAST).lower()}.example.edu"
            sender = address(professor, int(marks[k]), domain)
            layout = draw_layout(rng) if self.config.different_structures else first
            if k < count:
                texts = self._positive(layout)
                expected[sender] = members_of(layout, root, letters)
            else:
                texts = self._negative()
            mails += self._letters(professor, sender, texts)
        for _ in range(-(-size // _OTHERS)):
            sender, subject, text = self._mails.news()
            mails.append(Mail(sender, ME, subject, text, self._moment()))
        self.email.add_user(ME, "castillo-2025", name)
        self.email.login_as(ME)
        self.email.deliver(sorted(mails, key=lambda mail: mail.date))
        self._remember(name, student)
        self.truth = {
            "wanted": expected,
            "root": root,
            "awards": awards,
            "mails": mail_places(self.email.store),
            "files": file_state(self.files),
        }

    def _remember(self, name: str, student: str) -> None:
        facts = [
            f"My full name is {name}.",
            f"My mail address is {ME}.",
            f"My student card at college had the number B{student[3:]}.",
            f"I am enrolled at Westlake University; my student ID is {student}.",
            "My passport ends in 2029.",
        ]
        self.office.get(KnowledgeGraph).set_person("me", shuffled(self.rng, facts))

    def _positive(self, layout: Layout) -> list[str]:
        write = self._mails
        tree = self._tree(layout)
        if self.rng.random() >= _REPEAT_RATE:
            return [write.request("ask", tree)]
        if self.happens(0.5):
            return [write.refusal(), write.request("ask", tree)]
        return [write.request("ask", self._tree()), write.request("changed", tree)]

    def _negative(self) -> list[str]:
        kind = self.rng.random()
        write = self._mails
        if kind < _SHOWN_RATE:
            return [write.request("shown", self._tree())]
        if kind < _SHOWN_RATE + 0.3 * _REPEAT_RATE:
            return [write.request("ask", self._tree()), write.withdrawal()]
        return [write.refusal() for _ in range(1 + int(self.happens(_REPEAT_RATE / 2)))]

    def _letters(self, professor: str, box: str, texts: Sequence[str]) -> list[Mail]:
        sender = f"{professor} <{box}>" if self.happens(0.8) else box
        write = self._mails
        moment = self._moment()
        mails = []
        for text in texts:
            body = write.signed(text, professor)
            mails.append(Mail(sender, ME, write.says("subject"), body, moment))
            moment += timedelta(minutes=self.whole(60, 2_000))
        if self.happens(_AUTOMATIC_RATE):
            moment = mails[0].date + timedelta(minutes=self.whole(-2_000, 4_000))
            mails.append(Mail(sender, ME, f"{AUTOMATIC}PhD application", write.absence(), moment))
        return mails

    def _tree(self, layout: Layout | None = None) -> str:
        return draw_tree(self.rng, layout or draw_layout(self.rng))

    def _moment(self) -> datetime:
        return self.start - timedelta(minutes=self.whole(6_000, 30_000))

    def plan(self) -> Plan:
        (name, student), names = yield [
            read("Read the memory.", _read_person, "read_graph"),
            read("List the papers.", _PAPER.findall, "list_directory", path=FLAT),
        ]
        steps = []
        for paper in names:
            file = {"pdf_file_path": f"{FLAT}/{paper}", "end_page": 9}
            steps.append(read(f"Read {paper}.", _read_paper, "read_pdf_pages", **file))
        dated = yield steps
        dated_papers = ((*facts, paper) for facts, paper in zip(dated, names, strict=True))
        letters, awards = [], []
        for _, author, paper in sorted(dated_papers):  # the oldest paper comes first
            if paper.startswith("letter"):
                letters.append((author, paper))
            else:
                awards.append(f"{FLAT}/{paper}")
        newest: dict[str, Sequence[Any]] = {}
        for request in (yield from read_folder(_read_request)):
            # Only the last mail of a professor counts.
            if request[1] > newest.get(request[0], ("", ""))[1]:
                newest[request[0]] = request
        root = ROOT.replace("<Name>", name.replace(" ", "_")).replace("<Student_ID>", student)
        archives: dict[str, Mapping[str, str]] = {}
        sources: set[str] = set()
        mails = []
        for box, (_, _, files) in sorted(newest.items()):
            if not files:
                continue
            archive = f"{OUT}/{len(archives) + 1}/{root}.zip"
            archives[archive] = _sources(files, root, letters)
            sources |= set(archives[archive].values())
            mails.append(_send_step(box, archive, root, name))
        listed = write(
            "Write down what belongs into each archive.",
            "archives",
            "write_file",
            thing=f"file {LIST}",
            same=("path",),
            accepts=lambda arguments: json.loads(arguments["content"]) == archives,
            path=LIST,
            content=json.dumps(archives, indent=1),
        )
        yield [*_merges(awards, sources), listed]
        label = "Make the archives."
        yield write(
            label, "archives", "run_command", thing=OUTBOX, same=("command",), command=SCRIPT
        )
        yield mails

    def task_failures(self) -> Iterator[str]:
        missing = dict(self.truth["wanted"])
        for mail in self.email.sent():
            recipient = ", ".join(mail.recipients)
            if recipient in missing:
                for fault in self._wrong(mail, missing.pop(recipient)):
                    yield f"the mail to {recipient}: {fault}"
            else:
                yield f"the mail {echo(mail.subject)} to {echo(recipient)}: not requested, or a duplicate"
        for recipient in missing:
            yield f"there is no mail to {recipient}"
        yield from mail_failures(self.email.store, self.truth["mails"])

    def _wrong(self, mail: Mail, expected: Mapping[str, str]) -> Iterator[str]:
        name = f"{self.truth['root']}.zip"
        if not _is_application(mail, self.truth["root"]):
            yield f"the subject is {echo(mail.subject)}, the attachments are {echo(list(mail.attachments))}"
        try:
            files = read_archive(mail.attachments.get(name, b""))
        except ToolError as error:
            yield str(error)
            return
        listed = [path for path in files if not path.endswith("/")]
        yield from set_failures("the archive", listed, list(expected))
        for path in files:
            if path.endswith("/") and not any(file.startswith(path) for file in expected):
                yield f"the archive: the folder {echo(path)} should not be there"
        for path, source in expected.items():
            if path in files and not self._same(files[path], source):
                yield f"the archive: {path} is not {source}"

    def _same(self, data: bytes, source: str) -> bool:
        files = self.truth["files"]
        if source not in (OLDEST, NEWEST):
            return bool(data == files[f"/workspace/{FLAT}/{source}"])
        awards = self.truth["awards"]
        if source == NEWEST:
            awards = awards[::-1]
        pages = []
        for award in awards:
            pages += _pages(files[f"/workspace/{FLAT}/{award}"])
        try:
            return _pages(data) == pages
        except ToolError:
            return False


def _is_application(mail: Mail, root: str) -> bool:
    return same_subject(mail, SUBJECT) and list(mail.attachments) == [f"{root}.zip"]


def _pages(data: bytes) -> list[str]:
    return [" ".join(page.split()) for page in read_pdf(data)]


def _read_person(text: str) -> tuple[str, str]:
    notes = " ".join(json.loads(text)["entities"][0]["observations"])
    name = re.findall(r"full name is ([^.]{1,200})\.", notes)
    student = re.findall(r"my student ID is (\d+)", notes)
    return name[0], student[0]


def _read_paper(text: str) -> tuple[str, str]:
    day = datetime.strptime(re.findall(r"^Date: (.+)$", text, re.MULTILINE)[0], "%d %B %Y")
    author = re.findall(r"^Author: .* (\S+)$", text, re.MULTILINE)
    return f"{day:%Y-%m-%d}", author[0] if author else ""


def _read_request(mail: Record) -> tuple[str, str, Layout | None] | None:
    if mail["subject"].startswith(AUTOMATIC):
        return None
    above = [(-1, "")]  # the depths and paths of the folders around the current line
    files: Layout = {}
    for before, name, what in _LINE.findall(mail["body"]):
        while above[-1][0] >= len(before):
            above.pop()
        path = above[-1][1] + name
        if name.endswith("/"):
            above.append((len(before), path))
        elif what in PAPER_OF_PHRASE:
            files[path] = PAPER_OF_PHRASE[what]
    asked = files if files and asks_for_papers(mail["body"]) else None
    return _SENDER.findall(mail["from"])[0], mail["date"], asked


def _sources(files: Layout, root: str, letters: Sequence[tuple[str, str]]) -> dict[str, str]:
    sources = {}
    for path, paper in files.items():
        place = path.replace(ROOT, root)
        if paper == LETTERS:
            for n, (author, letter) in enumerate(letters, 1):
                name = place.replace("<Last_Name>", author).replace("<n>", str(n))
                sources[name] = f"/workspace/{FLAT}/{letter}"
        elif paper in (OLDEST, NEWEST):
            sources[place] = _merged(paper)
        else:
            sources[place] = f"/workspace/{FLAT}/{paper}"
    return sources


def _send_step(to: str, archive: str, root: str, name: str) -> PlanStep:
    body = "Dear professor,\n\nhere are the papers that you have asked for.\n\nBest regards\n"
    return write(
        f"Send the archive to {to}.",
        "mails",
        "send_email",
        same=("to",),
        accepts=lambda mail: _is_application(mail_of(mail), root),
        to=to,
        subject=SUBJECT,
        body=body + name,
        attachments=[archive],
    )


def _merged(paper: str) -> str:
    return f"{OUT}/{paper.replace(', ', '_').replace(' ', '_')}.pdf"


def _merges(awards: list[str], sources: set[str]) -> Iterator[PlanStep]:
    for order, paths in ((OLDEST, awards), (NEWEST, awards[::-1])):
        target = _merged(order)
        if target in sources:
            label = f"Merge the {order}."
            merged: dict[str, Any] = {"pdf_paths": paths, "output_path": target}
            yield write(label, "archives", "merge_pdfs", thing=OUTBOX, **merged)
