"""Six checks for problems that cannot be parsed.

Months need no check, because `loaders` assigns different months to tasks that share a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from agentgym.envs.gsm_agent.documents import Document, Task
from agentgym.envs.gsm_agent.user_data.stories import RawProblem, find_numbers
from agentgym.text.search import Lexical

_REACH = 100  # 20 pages of five documents, as in SearchWorld
Violations = Iterator[tuple[str, str]]
"""A task id, and a reason."""


@dataclass(frozen=True)
class Published:
    """Problems, and the tasks and documents generated from them."""

    problems: Sequence[RawProblem]
    documents: Sequence[Document]
    tasks: Sequence[Task]

    def cases(self) -> Iterator[tuple[RawProblem, Task, list[Document]]]:
        """Return the tasks that searching can solve."""
        for problem, task in zip(self.problems, self.tasks, strict=True):
            if not task.static_only:
                yield problem, task, [self.documents[place] for place in task.documents]

    @cached_property
    def index(self) -> Lexical:
        return Lexical.of([document.content for document in self.documents] or ["none"])


def solvable(published: Published) -> Violations:
    """Check 1: the question and the documents contain all the numbers in the problem."""
    for problem, task, documents in published.cases():
        told = find_numbers(" ".join([task.question, *(each.content for each in documents)]))
        if lost := find_numbers(problem.text) - told:
            yield task.id, f"the number {min(lost)} of the problem is in none of its documents"


def necessary(published: Published) -> Violations:
    """Check 2: each document contains a number found nowhere else in the task."""
    for problem, task, documents in published.cases():
        # If `exact` is set, all documents are known to be necessary, even if numbers repeat.
        if problem.exact:
            continue
        numbers = list(map(_own_numbers, documents))
        counts = Counter(chain.from_iterable(numbers))
        counts.update(find_numbers(problem.question))
        for some, text in zip(numbers, problem.documents or problem.premises, strict=True):
            if not any(counts[number] == 1 for number in some):
                yield task.id, f"it can be solved without {text[:60]!r}"


def unambiguous(published: Published) -> Violations:
    """Check 3: no other task has the same question."""
    counts = Counter(task.question for _, task, _ in published.cases())
    for _, task, _ in published.cases():
        if counts[task.question] > 1:
            yield task.id, "another task has the same question"


def without_leaks(published: Published) -> Violations:
    """Check 4: each document contains only numbers that its premise contains."""
    for problem, task, documents in published.cases():
        for document, premise in zip(documents, problem.premises, strict=True):
            if other := _own_numbers(document) - find_numbers(premise):
                yield task.id, f"the document of {premise[:60]!r} also contains {min(other)}"


def unique(published: Published) -> Violations:
    """Check 5: the contents of all documents are unique."""
    counts = Counter(document.content for document in published.documents)
    for _, task, documents in published.cases():
        if any(counts[document.content] > 1 for document in documents):
            yield task.id, "two of the documents are equal"


def discoverable(published: Published) -> Violations:
    """Check 6: 20-page searches for the question and found documents find all task documents."""
    for _, task, _ in published.cases():
        missing = set(task.documents)
        queries = [task.question]
        while missing and queries:
            found = missing.intersection(published.index.best(queries.pop(), _REACH))
            missing -= found
            queries += [published.documents[place].content for place in sorted(found)]
        if missing:
            text = published.documents[min(missing)].content.partition("\n")[2]
            yield task.id, f"searching from its question on does not find {text[:60]!r}"


CHECKS: Mapping[str, Callable[[Published], Violations]] = {
    check.__name__: check
    for check in (solvable, necessary, unambiguous, without_leaks, unique, discoverable)
}


def vet(
    problems: Sequence[RawProblem], documents: Sequence[Document], tasks: Sequence[Task]
) -> dict[str, str]:
    """Run all checks; return the first failure of each failing task."""
    reasons: dict[str, str] = {}
    published = Published(problems, documents, tasks)
    for name, check in CHECKS.items():
        for task, reason in check(published):
            reasons.setdefault(task, f"{reason} (check {name})")
    return reasons


def _own_numbers(document: Document) -> set[str]:
    # Skip the heading, because its date contains a year.
    return find_numbers(document.content.partition("\n")[2])
