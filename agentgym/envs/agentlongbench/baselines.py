"""What a reader of the last page alone scores on a question about a log."""

from __future__ import annotations

from agentgym.envs.agentlongbench.questions import QuestionSpec
from agentgym.envs.agentlongbench.rollout import Log, Round, within
from agentgym.envs.agentlongbench.tasks import LogQuestion, within_any


def last_page_score(question: LogQuestion, log: Log, page: int) -> float:
    """Return the expected score of an answer from the last page of a log.

    It is the right answer where all evidence stands there. Else a count is scaled up to the whole
    log, the largest value and the common items are those of the page, an item that is missing from
    one of two lists is in not both, and what the page says nothing of is a guess.

    Args:
        question: The question.
        log: The log.
        page: The rounds on a page.
    """
    spec = question.spec
    first = (len(log.rounds) - 1) // page * page + 1
    needed = [*spec.results, *spec.feedback]
    shown = [log.rounds[number - 1] for number in needed if number >= first]
    if len(shown) == len(needed):
        return 1.0
    if not shown:
        return question.chance
    if spec.task == "find_duplicates_tool":
        listed = within_any(shown[0].lists, len(log.table))[log.table.find(spec.name)]
        return float(bool(question.answer)) if listed else 1.0
    if spec.task == "intersection" and spec.style == "concise":
        return 1 / _candidates(shown, log)
    if spec.last:
        return float(_whole_log_guess(spec, shown, log) == question.answer)
    return question.chance


def _candidates(shown: list[Round], log: Log) -> int:
    """Count the items that are in all lists shown and were not guessed there."""
    left = within([places for each in shown for places in each.lists], len(log.table))
    left[[each.guess for each in shown]] = False
    return max(1, int(left.sum()))


def _whole_log_guess(spec: QuestionSpec, shown: list[Round], log: Log) -> int:
    """Return the count scaled up, or the round with the largest value."""
    names = [section.name for section in log.table.sections]
    column = log.table.columns[names.index(spec.section)]
    if spec.task == "find_round_largest_value_env":
        numbers = [int(column[each.guess][0]) for each in shown]
        return shown[numbers.index(max(numbers))].number
    count = sum(spec.name in map(str, column[each.guess]) for each in shown)
    return round(count * len(log.rounds) / len(shown))
