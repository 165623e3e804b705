"""The published mail server's calls, and the differences."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from tests.office.published import DISABLED, Call, Difference

ADA, BOB = "ada@x.org", "bob@x.org"


def prepared() -> Email:
    server = Email()
    server.add_users([(ADA, "pa", "Ada L"), (BOB, "pb", "Bob B")])
    day = datetime(2025, 1, 1, 8, tzinfo=UTC)
    files = {"list.csv": b"a,b\n"}
    mails = [
        Mail(f"Bob B <{BOB}>", ADA, "Exam", "On Monday.", day),
        Mail("Cy <cy@far.net>", ADA, "Files", "See there.", day, "<p>See there.</p>", attachments=files),
    ]  # fmt: skip
    server.deliver(mails, user=ADA)
    server.context.files.write("note.txt", "x")
    return server


def of_draft(answers: list[Any]) -> dict[str, Any]:
    draft = next(each for each in answers if isinstance(each, dict) and "updated_at" in each)
    return {"draft_id": draft["id"]}


def line(text: str) -> str:
    return rf"{text}[^\n]*"


LETTER = {"subject": "s", "body": "b", "cc": BOB, "bcc": BOB, "html_body": "<b>b</b>"}
CALLS = [
    Call("check_connection", {}, r"[^\n]+\n✓ IMAP[^\n]+\n✓ SMTP[^\n]+\n\n[^\n]+"),
    Call("login", {"email": ADA, "password": "pa"}),
    Call("get_current_user", {}),
    Call("list_users", {}),
    Call("create_user", {"email": "dan@x.org", "name": "Dan", "password": "pd"}),
    Call("get_emails", {}),
    Call("read_email", {"email_id": "2"}),
    Call("read_email", {"email_id": "1"}),
    Call("search_emails", {"query": "there"}),
    Call("search_emails", {"query": "exam", "page": 1, "page_size": 5}),
    Call("download_attachment", {"email_id": "2", "attachment_filename": "list.csv"}),
    Call("send_email", {"to": f"{BOB}, {ADA}", "subject": "s", "body": "b"}),
    Call("send_email", {"to": BOB, **LETTER, "attachments": ["note.txt"]}),
    Call("reply_email", {"email_id": "1", "body": "yes", "reply_all": True}),
    Call("forward_email", {"email_id": "2", "to": BOB, "body": "fyi"}),
    Call("save_draft", {"to": BOB, **LETTER}),
    Call("update_draft", lambda answers: {**of_draft(answers), "subject": "new"}),
    Call("get_drafts", {}),
    Call("delete_draft", of_draft, line(r"Draft \d+ ")),
    Call("create_folder", {"folder_name": "Proj"}, line('Folder "Proj" ')),
    Call("move_email", {"email_id": "1", "target_folder": "Proj"}),
    Call("move_emails", {"email_ids": ["2"], "target_folder": "Proj"}),
    Call("mark_emails", {"email_ids": ["1", "2"], "status": "important"}),
    Call("get_folders", {}, r"[^\n]+\n(\d+\. [^\n]+ \(\d+ total, \d+ unread\)\n)+"),
    Call("get_mailbox_stats", {"folder_name": "Proj"}),
    Call("get_mailbox_stats", {}),
    Call("get_unread_count", {}, r"[^\n:]+: \d+"),
    Call("get_unread_count", {"folder_name": "Proj"}, r"[^\n:]+: 2"),
    Call("delete_folder", {"folder_name": "Proj"}, line('Folder "Proj" ')),
    Call("delete_email", {"email_id": "1"}, line("Email 1 ")),
    Call("delete_emails", {"email_ids": ["2", "3"]}, line(r"\w+ 2 emails")),
    Call("get_current_user", {}),
    Call("logout", {}),
]  # fmt: skip


def paths(prefix: str, *keys: str) -> set[str]:
    return {prefix + key for key in keys}


_NO_PATH = "attachments have no path, since they are in the mail and come into the workspace by download_attachment"
_UNKNOWN = (
    "A recipient of this domain without a mailbox is reported by a mail to the sender, text that is no address is an error, and "
    "a mail to oneself arrives"
)
_ATOMIC = "An unknown id is an error and then nothing changes"

DIFFERENCES = {
    "check_connection": Difference(
        "The last line is not constant: it tells the time of the server and who is logged in."
    ),
    "list_users": Difference("It needs a login, users are in the order of their addresses, and there are no demo users."),
    "get_emails": Difference(
        f"An unknown folder is an error, the order is by time, whatever the spelling of the dates, and {_NO_PATH}.",
        lacking={"emails[].attachments[].path"},
    ),
    "search_emails": Difference(
        f"It finds mails that have all words, not only the query as one text, and shows names of senders; {_NO_PATH}.",
        added={"emails[].from_name"},
        lacking={"emails[].attachments[].path"},
    ),
    "read_email": Difference(f"An unknown id is an error that is flagged, and {_NO_PATH}.", lacking={"attachments[].path"}),
    "download_attachment": Difference(
        "The attachment is really written to a file, whose path is told.", added={"path"}
    ),
    "send_email": Difference(f"{_UNKNOWN}; {_NO_PATH}.", lacking={"attachments[].path"}),
    "reply_email": Difference(
        f"{_UNKNOWN}; with reply_all all recipients get the reply, not only those in cc."
    ),
    "forward_email": Difference(
        f"{_UNKNOWN}; the text tells sender, date and recipients of the original, and its attachments go along."
    ),
    "save_draft": Difference("A draft is also a mail in the folder Drafts, and has its id there."),
    "get_drafts": Difference("Drafts are also mails in the folder Drafts, and have their ids there."),
    "update_draft": Difference("A draft is also a mail in the folder Drafts, and has its id there."),
    "move_email": Difference("Names of senders are shown, too.", added={"from_name"}),
    "move_emails": Difference(
        f"{_ATOMIC}, and the mails have the same keys as everywhere else, with empty texts for no cc and bcc.",
        added=paths("moved_emails[].", "from_name", "has_attachments"),
        lacking=paths("moved_emails[].", "is_important", "is_read", "message_id"),
        types=paths("moved_emails[].", "cc", "bcc"),
    ),
    "mark_emails": Difference(f"{_ATOMIC}; so is an unknown status."),
    "delete_email": Difference(
        "The line also tells whether the mail moved to Trash or is gone for good."
    ),
    "delete_emails": Difference(
        f"{_ATOMIC}; the line also tells how many are gone for good."
    ),
    **dict.fromkeys(("import_emails", "export_emails", "get_email_headers"), DISABLED),
    "get_folders": Difference("Every mailbox has a folder Drafts, and counts are those of now."),
}  # fmt: skip
