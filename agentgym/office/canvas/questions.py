"""Canvas: quiz questions and their answers."""

from __future__ import annotations

from agentgym.office.canvas.records import fields_of, whole
from agentgym.office.store import Row

QUESTION_TYPES = (
    "calculated_question", "essay_question", "file_upload_question",
    "fill_in_multiple_blanks_question", "matching_question", "multiple_answers_question",
    "multiple_choice_question", "multiple_dropdowns_question", "numerical_question",
    "short_answer_question", "text_only_question", "true_false_question",
)  # fmt: skip

# Only these types show their answers to students; elsewhere answers are the key.
_CHOICES = (
    "multiple_answers_question", "multiple_choice_question", "multiple_dropdowns_question",
    "true_false_question",
)  # fmt: skip


def _field_of(key: str) -> str:
    return key.removeprefix("answer_").removeprefix("match_")


def show_question(row: Row) -> Row:
    """Return a question with its answers."""
    return {**fields_of(row, "position"), "points_possible": whole(row["points_possible"])}


def without_key(question: Row) -> Row:
    """Return a question as students see it."""
    shown = []
    if question["question_type"] in _CHOICES:
        for answer in question["answers"]:
            visible = [key for key in answer if _field_of(key) in ("text", "blank_id")]
            shown.append({key: answer[key] for key in visible})
    return {**question, "answers": shown}
