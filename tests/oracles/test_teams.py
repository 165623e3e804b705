from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import agentgym
from agentgym.envs.loca import LENGTHS
from agentgym.oracles import TeamPolicy
from agentgym.oracles.teams import _TeamReading
from agentgym.play.policy import Reply
from agentgym.text.messages import TASK_ID, Chat, Message
from agentgym.training.rollout import rollout


class Recording(TeamPolicy):
    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        replies = super().__call__(chats)
        self.texts = [*getattr(self, "texts", []), *(reply.text for reply in replies)]
        return replies


@pytest.mark.parametrize("oracles", ["", "S", "SP", "SH"])
def test_a_long_state_is_sent_in_parts(oracles: str) -> None:
    policy = Recording("ListWorld-team")
    env = agentgym.make("ListWorld-team", oracles=oracles, max_message=60)
    assert rollout(policy, env, seed=0).reward == 1.0
    in_parts = any("<part 2 of " in text for text in policy.texts)
    assert in_parts == ("H" not in oracles), "a hint shows the state to all"


@pytest.mark.parametrize(("oracles", "window"), [("S", 1_500), ("SP", 1_600)])
def test_parts_survive_a_compaction(oracles: str, window: int) -> None:
    policy = Recording("ListWorld-team")
    more: dict[str, Any] = {"context": "compaction", "window": window, "max_message": 60}
    env = agentgym.make("ListWorld-team", oracles=oracles, **more)
    for seed in range(3):
        assert rollout(policy, env, seed).reward == 1.0
    summaries = [text for text in policy.texts if text.endswith(" turn.")]
    assert any("\n<part 2 of " in text for text in summaries)


@pytest.mark.parametrize(
    ("name", "length"), [("WoocommerceNewWelcome", "32k"), ("AcademicWarning", "128k")]
)
def test_an_office_whose_state_is_longer_than_a_message(name: str, length: str) -> None:
    policy = Recording(f"{name}-team")
    env = agentgym.make(f"{name}-team", length=LENGTHS[length])
    assert rollout(policy, env, seed=0).reward == 1.0
    assert any("<part 2 of " in text for text in policy.texts)


def mail(text: str) -> str:
    return f"front_0 tells you ({len(text)} characters):\n{text}"


CHAT = Chat((Message("system", "x"), Message("user", "task", id=TASK_ID)))


def view_of(*texts: str) -> _TeamReading:
    view = _TeamReading(CHAT)
    for text in texts:
        view.take_mail(text)
    return view


PARTS = ["<part 1 of 3>\n<state>\nab\n</part>", "<part 2 of 3>\ncd\n\n</part>",
         "<part 3 of 3>\nef\n</state>\n</part>"]  # fmt: skip


def test_parts_are_joined_when_the_last_is_there() -> None:
    assert (view_of(*PARTS[:2]).summary, view_of(*PARTS[:2]).has_floor) == ("", False)
    assert (view_of(*PARTS).summary, view_of(*PARTS).has_floor) == ("abcd\nef", True)
    again = view_of(*PARTS[:2], *PARTS)
    assert (again.summary, again.has_floor) == ("abcd\nef", True), "the sender began again"


@pytest.mark.parametrize("order", [(1, 2), (0, 2), (2,), (0, 1, 1, 2)])
def test_a_state_with_a_part_lost_is_not_taken(order: Sequence[int]) -> None:
    assert view_of("<state>\nold\n</state>", *(PARTS[k] for k in order)).summary == "old"


@pytest.mark.parametrize("count", range(4))
def test_a_summary_has_the_parts_that_have_come(count: int) -> None:
    before = view_of(*PARTS[:count])
    after = _TeamReading(CHAT)
    after.take_summary(before.write_summary("<state>\nold\n</state>"))
    assert after.has_floor == before.has_floor
    for part in PARTS[count:]:
        after.take_mail(part)
    assert after.summary == ("old" if count == 3 else "abcd\nef")


@pytest.mark.parametrize(
    "text", ["<part 1 of", "<part 9999999 of 2>\nx\n</part>", "<part 1 of 2>\n" * 10_000, "<part 0 of 0>\n\n</part>"]
)  # fmt: skip
def test_hostile_mail_is_a_state_without_a_block(text: str) -> None:
    assert view_of("<state>\nold\n</state>", text).summary == "old"
    view = _TeamReading(CHAT)
    view.read(CHAT.add(Message("user", mail(text))))
    assert view.summary == ""
