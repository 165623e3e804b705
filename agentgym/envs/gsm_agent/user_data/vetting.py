"""Six checks for problems that cannot be parsed.

Months need no check, because `loaders` assigns different months to tasks that share a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain

from agentgym.envs.gsm_agent.documents import Document, Task
from agentgym.envs.gsm_agent.user_data.stories import RawProblem, find_numbers
from agentgym.text.search import Lexical

_REACH = 100  # 20 pages of five documents, as in SearchWorld


def vet(
    problems: Sequence[RawProblem], documents: Sequence[Document], tasks: Sequence[Task]
) -> dict[str, str]:
    """Run all checks; return the first failure of each failing task."""
    reasons: dict[str, str] = {}
    checks = _Checks(documents, tasks)
    for problem, task in zip(problems, tasks, strict=True):
        if not task.static_only and (reason := checks.first_failure(problem, task)):
            reasons[task.id] = reason
    return reasons


class _Checks:
    def __init__(self, documents: Sequence[Document], tasks: Sequence[Task]) -> None:
        self._documents = documents
        self._contents = Counter(document.content for document in documents)
        self._questions = Counter(task.question for task in tasks if not task.static_only)

    @cached_property
    def _index(self) -> Lexical:
        return Lexical.of([document.content for document in self._documents])

    def first_failure(self, problem: RawProblem, task: Task) -> str:
        documents = [self._documents[place] for place in task.documents]
        texts = [task.question, *(document.content for document in documents)]
        if lost := find_numbers(problem.text) - find_numbers(" ".join(texts)):
            lacking = f"the number {min(lost)} of the problem is in none of its documents"
            return f"{lacking} (check solvable)"
        numbers = list(map(_own_numbers, documents))
        counts = Counter(chain.from_iterable(numbers))
        counts.update(find_numbers(problem.question))
        for some, text in zip(numbers, problem.documents or problem.premises, strict=True):
            # If `exact` is set, all documents are known to be necessary, even if numbers repeat.
            if not problem.exact and not any(counts[number] == 1 for number in some):
                return f"it can be solved without {text[:60]!r} (check necessary)"
        if self._questions[task.question] > 1:
            return "another task has the same question (check unambiguous)"
        for some, premise in zip(numbers, problem.premises, strict=True):
            if other := some - find_numbers(premise):
                leak = f"the document of {premise[:60]!r} also contains {min(other)}"
                return f"{leak} (check without_leaks)"
        if any(self._contents[document.content] > 1 for document in documents):
            return "two of the documents are equal (check unique)"
        if missing := self._out_of_reach(task):
            text = self._documents[min(missing)].content.partition("\n")[2]
            lost_text = f"searching from its question on does not find {text[:60]!r}"
            return f"{lost_text} (check discoverable)"
        return ""

    def _out_of_reach(self, task: Task) -> set[int]:
        """Return the documents that 20-page searches for the question and found documents miss."""
        missing, queries = set(task.documents), [task.question]
        while missing and queries:
            found = missing.intersection(self._index.best(queries.pop(), _REACH))
            missing -= found
            queries += [self._documents[place].content for place in sorted(found)]
        return missing


def _own_numbers(document: Document) -> set[str]:
    # Skip the heading, because its date contains a year.
    return find_numbers(document.content.partition("\n")[2])
