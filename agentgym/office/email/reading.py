"""Mail server: listing, searching and reading emails."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym.office.email.mailboxes import EmailPart, content_type, show_draft
from agentgym.office.email.messages import numbered_names
from agentgym.office.server import page_of
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

_DOWNLOADS = "attachments"  # folder in the workspace

_MAX_TERMS = 50  # each word is compared with every email in the folder

_TERM = re.compile(r'(?:(from|to|subject|body):\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
# Lines of an email's searchable text, by query field.
_FIELDS = {"subject": slice(0, 1), "from": slice(1, 2), "to": slice(2, 4), "body": slice(4, 5)}


_PAGE = """
SELECT id FROM mails WHERE user = ? AND folder = ? ORDER BY at DESC, id DESC LIMIT ? OFFSET ?
"""


class Reading(EmailPart):
    """Tools that list, search and read emails."""

    @tool
    def get_emails(self, folder: str = "INBOX", page: int = 1, page_size: int = 20) -> Row:
        """List the emails of a folder with their full text, newest first.

        Args:
            folder: Folder name.
            page: Page number, from 1.
            page_size: Emails per page, 1 to 100.
        """
        total, ids = self._folder_page(folder, page, page_size)
        emails = self.show_mails(ids)
        return {**_page_numbers(total, page, page_size), "emails": emails}

    @tool
    def get_drafts(self, page: int = 1, page_size: int = 20) -> Row:
        """List the drafts with their full text, last changed first.

        Args:
            page: Page number, from 1.
            page_size: Drafts per page, 1 to 100.
        """
        total, ids = self._folder_page("Drafts", page, page_size)
        drafts = list(map(show_draft, self.by_id(ids)))
        return {**_page_numbers(total, page, page_size), "drafts": drafts}

    @tool
    def search_emails(
        self, query: str, folder: str = "INBOX", page: int = 1, page_size: int = 20
    ) -> Row:
        """Search the emails of a folder; matches come with their full text, newest first.

        An email matches if subject, sender, recipients or text contain every word of the query, ignoring case and also
        inside longer words.

        Args:
            query: Words; "several words" in quotation marks form a phrase; from:, to:, subject: or body: before a word
                limits where it is searched.
            folder: Folder name.
            page: Page number, from 1.
            page_size: Emails per page, 1 to 100.
        """
        ids = self._search(query, folder)
        emails = self.show_mails(page_of(ids, page, page_size))
        return {**_page_numbers(len(ids), page, page_size), "emails": emails}

    @tool
    def read_email(self, email_id: str) -> Row:
        """Get one email with its full text.

        Args:
            email_id: Email ID.
        """
        return self.show_mail(self.mine(email_id))

    @tool
    def download_attachment(self, email_id: str, attachment_filename: str) -> Row:
        """Save an attachment in the workspace folder `attachments`; existing files are kept.

        Args:
            email_id: Email ID.
            attachment_filename: Name of the attachment.
        """
        attachments = self.to_mail(self.mine(email_id)).attachments
        if attachment_filename not in attachments:
            names = ", ".join(attachments) or "none"
            raise ToolError(
                f"not found: email {email_id} has no attachment {echo(attachment_filename)}; "
                f"attachments: {names}"
            )
        data = attachments[attachment_filename]
        path = self._download(attachment_filename, data)
        return {
            "filename": attachment_filename,
            "size": len(data),
            "content_type": content_type(attachment_filename),
            "path": path,
            "message": f"Attachment saved to {path}",
        }

    def _folder_page(self, folder: str, page: int, page_size: int) -> tuple[int, list[int]]:
        me = self.my_id()
        name = self.folder(me, folder)
        sql = "SELECT count(*) FROM mails WHERE user = ? AND folder = ?"
        total = self.store.value(sql, me, name)
        places = page_of(range(total), page, page_size)
        if not places:
            return total, []
        rows = self.store.rows(_PAGE, me, name, len(places), places[0])
        return total, [row["id"] for row in rows]

    def _search(self, query: str, folder: str) -> list[int]:
        me = self.my_id()
        name = self.folder(me, folder)
        terms = []
        for field, phrase, word in _TERM.findall(query):
            if phrase or word:
                terms.append((field.lower(), (phrase or word).casefold()))
        if not terms:
            raise ToolError(
                f"invalid argument: query must name at least one word, got {echo(query)}"
            )
        if len(terms) > _MAX_TERMS:
            raise ToolError(
                f"limit exceeded: a query may have at most {_MAX_TERMS} words, got {len(terms)}"
            )
        sql = f"""SELECT mails.id, words FROM mails JOIN messages ON messages.id = message
            WHERE user = ? AND folder = ? {"AND instr(words, ?) " * len(terms)}
            ORDER BY at DESC, mails.id DESC"""
        texts = [text for _, text in terms]
        rows = self.store.rows(sql, me, name, *texts)
        return [row["id"] for row in rows if _fields_contain(row["words"], terms)]

    def _download(self, name: str, data: bytes) -> str:
        files = self.context.files
        for numbered in numbered_names(name):
            path = f"{_DOWNLOADS}/{numbered}"
            if not files.exists(path):
                return files.write(path, data)
            if files.is_file(path) and files.read(path) == data:
                return files.resolve(path)
        raise AssertionError  # the names never end


def _fields_contain(words: str, terms: Sequence[tuple[str, str]]) -> bool:
    # The first four lines are the subject, sender and recipients; the rest is the body.
    lines = words.split("\n", 4)
    for field, term in terms:
        if not field:
            continue
        if not any(term in line for line in lines[_FIELDS[field]]):
            return False
    return True


def _page_numbers(total: int, page: int, page_size: int) -> Row:
    return {
        "total": total,
        "page": page,
        "page_size": page_size,
        "total_pages": -(-total // page_size),
    }
