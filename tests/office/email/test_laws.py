"""Mail server under random hostile and legal calls."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from agentgym.office.email.server import Email
from tests.office.prepared import ADA, BOB, CYD, office
from tests.office.test_laws import call, digest, draw_call, run


def test_failed_calls_of_a_user_change_nothing() -> None:
    rng = np.random.default_rng(11)
    server, other = office(), office()
    kept = other.messages(BOB)
    for _ in range(500):
        tool, arguments = draw_call(server, rng)
        if tool in ("login", "logout"):
            continue
        if "email_id" in arguments and rng.random() < 0.7:
            arguments["email_id"] = str(rng.integers(1, 9))
        before = digest(server)
        shown = run(server, tool, arguments)
        assert shown == run(other, tool, arguments)
        assert digest(server) == before or not shown.startswith("error:"), (tool, arguments)
    assert digest(server) == digest(other) == digest(pickle.loads(pickle.dumps(other)))
    assert [mail for mail in server.messages(BOB) if mail.origin == "filled"] == kept
    sound(server)


def sound(server: Email) -> None:
    for wrong in (
        "PRAGMA foreign_key_check",
        "SELECT * FROM mails WHERE folder = 'Drafts' AND message NOT IN (SELECT id FROM messages WHERE origin = 'draft')",
        "SELECT * FROM messages WHERE origin = 'draft' AND 1 <> (SELECT count(*) FROM mails WHERE message = messages.id)",
        "SELECT * FROM messages WHERE origin <> 'sent' AND id NOT IN (SELECT message FROM mails)",
        "SELECT * FROM messages WHERE files <> (SELECT count(*) FROM attachments WHERE message = messages.id)",
    ):
        assert server.store.rows(wrong) == []


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_match_a_model(seed: int) -> None:
    """The reference model maps a folder and an id to [subject, read, important]."""
    rng = np.random.default_rng(seed)
    server, model = Email(), Model()
    server.add_users((user, "p", "") for user in model.boxes)
    for user in model.boxes:
        server.login_as(user)
        call(server, "create_folder", folder_name="More")
    for step in range(150):
        me = list(model.boxes)[rng.integers(3)]
        server.login_as(me)
        for tool, arguments in model.step(me, step, rng):
            call(server, tool, **arguments)
    sound(server)
    for user, boxes in model.boxes.items():
        shown = {
            (mail.folder, mail.id): [mail.subject, mail.read, mail.important]
            for mail in server.messages(user)
        }
        assert shown == {
            (folder, key): item for folder, items in boxes.items() for key, item in items.items()
        }
        server.login_as(user)
        counts = call(server, "get_folders")
        for folder, items in boxes.items():
            unread = sum(not item[1] for item in items.values())
            assert f" {folder} ({len(items)} total, {unread} unread)" in counts


class Model:
    def __init__(self) -> None:
        self.boxes: dict[str, dict[str, dict[str, list[Any]]]] = {
            user: {"INBOX": {}, "Sent": {}, "Drafts": {}, "Trash": {}, "More": {}}
            for user in (ADA, BOB, CYD)
        }
        self.last = 0

    def add(self, user: str, folder: str, subject: str) -> None:
        self.last += 1
        self.boxes[user][folder][str(self.last)] = [subject, folder != "INBOX", False]

    def step(
        self, me: str, step: int, rng: np.random.Generator
    ) -> list[tuple[str, dict[str, Any]]]:
        mine = self.boxes[me]
        held = [(folder, key) for folder in mine for key in mine[folder]]
        folder, key = held[rng.integers(len(held))] if held else ("", "")
        action = rng.integers(6) if held else 0
        if action <= 1:
            to = list(dict.fromkeys(list(self.boxes)[k] for k in rng.integers(3, size=2)))
            for user, place in [(me, "Sent"), *((user, "INBOX") for user in to)]:
                self.add(user, place, f"s{step}")
            return [
                (
                    "send_email",
                    {"to": ", ".join([*to, "out@far.net"]), "subject": f"s{step}", "body": "b"},
                )
            ]
        if action == 2:
            self.add(me, "Drafts", f"d{step}")
            return [("save_draft", {"subject": f"d{step}", "body": "b"})]
        if action == 3 and mine[folder][key][0][0] == "s":
            target = ["INBOX", "Sent", "Trash", "More"][rng.integers(4)]
            mine[target][key] = mine[folder].pop(key)
            return [("move_email", {"email_id": key, "target_folder": target})]
        if action == 4:
            item = mine[folder].pop(key)
            if folder != "Trash":
                mine["Trash"][key] = item
            return [("delete_email", {"email_id": key})]
        mine[folder][key][1:] = [True, True]
        return [
            ("mark_emails", {"email_ids": [key], "status": "read"}),
            ("mark_emails", {"email_ids": [key], "status": "important"}),
        ]
