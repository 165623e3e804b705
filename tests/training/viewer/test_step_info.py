"""Every field of StepInfo reaches the viewer."""

from __future__ import annotations

import json
import re
from dataclasses import fields

from agentgym.training.viewer import build_view
from agentgym.training.viewer.page import asset
from agentgym.world.step_info import StepInfo
from tests.training.viewer.episodes import played

FIELDS = {field.name for field in fields(StepInfo)}
# Fields that the page omits, each with a reason.
NOT_SHOWN = {"calls": "the reply lists the calls themselves"}


def test_the_page_receives_every_field() -> None:
    data = json.loads(played().to_json())
    detail = {name: f"value of {name}" for name in FIELDS}
    data["steps"][0]["info"]["detail"] = detail
    view = build_view(json.dumps(data).encode())
    assert view["turns"][0]["info"]["detail"] == detail


def test_every_field_is_shown_or_has_a_reason() -> None:
    script = asset("episode.js")
    declaration = re.search(r"SHOWN_ELSEWHERE = (\[.*?\]);", script)
    assert declaration
    shown_elsewhere = set(json.loads(declaration[1]))
    assert shown_elsewhere <= FIELDS
    # `detailTags` shows all other fields, so only the exceptions appear in the script.
    assert "Object.entries(detail)" in script
    assert "tags.push(...detailTags(detail))" in script
    read = set(re.findall(r"\bdetail(?: \|\| \{\}\))?\.(\w+)", script))
    assert shown_elsewhere - read == NOT_SHOWN.keys()
    assert "reply.calls.map" in script
