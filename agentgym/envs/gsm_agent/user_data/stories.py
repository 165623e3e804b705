"""Split problems into sentences; find names, numbers and unclear questions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from agentgym.envs.gsm_agent.vocabulary import capital
from agentgym.envs.reading import load_texts

_TEXTS = load_texts(__file__, "stories")
_NUMBERS: Mapping[str, str] = _TEXTS["numbers"]
_GENERIC = frozenset(_TEXTS["generic"])
_PRONOUNS = frozenset((*_TEXTS["he"], *_TEXTS["they"]))
_CALENDAR = frozenset(_TEXTS["calendar"])
# A title such as `Mr.` does not end a sentence.
_END = re.compile(r"(?<=[.!?])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)\s+")
_IF_FIRST = re.compile(r"If (.+),? ((?:how|what|calculate|find)\b.+)", re.IGNORECASE)
_IF_LAST = re.compile(r"((?:How|What) .+?),? if (.+)\?")
_NUMBER = re.compile(r"[0-9][0-9,]*(?:/[0-9]+|\.[0-9]+)?|[A-Za-z]+")
_NAME = re.compile(r"(?<![.!?] )(?<!^)(?<!\")\b[A-Z][\w.]*[a-z]\b")
_HE = re.compile(rf"\b({'|'.join(_TEXTS['he'])})\b", re.IGNORECASE)
_THEY = re.compile(rf"\b({'|'.join(_TEXTS['they'])})\b(?! takes?\b)", re.IGNORECASE)
_NOUN = re.compile(r"\b(?:the|a|an|each|every|all|of)\s+[a-z]+", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class RawProblem:
    """A problem, split into a question and premises.

    Attributes:
        id: The file name and line, such as `test-17`, or the template and draw, such as `shop#3`.
        unclear: The reason why searching cannot solve the problem, or an empty string.
        names: The people in the problem, starting with the main person.
        documents: The document texts; if empty, the premises serve as documents.
        exact: Whether all documents are known to be necessary, and together sufficient.
    """

    id: str
    text: str
    question: str
    premises: tuple[str, ...]
    answer: str
    unclear: str = ""
    names: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    exact: bool = False


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences."""
    return [sentence.strip() for sentence in _END.split(text) if sentence.strip()]


def split_if(sentence: str) -> tuple[str, str]:
    """Split `If A, how B?` or `How B if A?` into `A.` and the question; `A.` may be empty."""
    if match := _IF_FIRST.fullmatch(sentence):
        premise, question = match[1], match[2]
    elif match := _IF_LAST.fullmatch(sentence):
        question, premise = f"{match[1]}?", match[2]
    else:
        return "", sentence
    return f"{capital(premise.rstrip(','))}.", capital(question)


def take_apart(name: str, text: str, answer: str) -> RawProblem:
    """Split a problem into its last question and its premises (all other sentences)."""
    text = " ".join(text.split())
    sentences = split_sentences(text)
    asking = [place for place, sentence in enumerate(sentences) if sentence.endswith("?")]
    question, unclear = "", "no sentence ends in a question mark"
    if asking:
        question = sentences.pop(asking[-1])
        condition, rest = split_if(question)
        if find_numbers(condition):
            sentences.append(condition)
            question = rest
        unclear = why_unclear(question) or _why_incomplete(question, sentences)
    counts = Counter(chain.from_iterable(map(find_numbers, (*sentences, question))))

    def tells(group: Sequence[str]) -> bool:
        return any(counts[number] == 1 for number in find_numbers(" ".join(group)))

    premises = tuple(map(" ".join, group_sentences(sentences, tells)))
    if not premises and not unclear:
        unclear = "no sentence contains a number of its own"
    return RawProblem(name, text, question or text, premises, answer, unclear, find_names(text))


def group_sentences(
    sentences: Sequence[str], tells: Callable[[Sequence[str]], bool]
) -> list[list[str]]:
    """Form the shortest groups of consecutive sentences for which `tells` returns True.

    Remaining sentences join the last group.
    """
    groups: list[list[str]] = []
    group: list[str] = []
    for sentence in sentences:
        group.append(sentence)
        if tells(group):
            groups.append(group)
            group = []
    if groups:
        groups[-1] += group
    return groups


def why_unclear(question: str, named: Sequence[str] = ()) -> str:
    """Return why a question is unclear without its story, or an empty string if it is clear.

    `named` lists the people in a heading above the question.
    """
    if named or find_names(question):
        return ""
    if pronoun := _HE.search(question):
        return f"only the story says who {pronoun[0]!r} is in the question {question!r}"
    pronoun = _THEY.search(question)
    if pronoun and not _NOUN.search(question, 0, pronoun.start()):
        return f"only the story says what {pronoun[0]!r} is in the question {question!r}"
    if not _GENERIC.issuperset(map(str.lower, _WORD.findall(question))):
        return ""
    return f"the question {question!r} names nothing to search for"


def find_names(text: str) -> tuple[str, ...]:
    """Return the capitalised words within sentences, except days, months and titles."""
    # Pronouns and words that also occur in lower case are not names, even if capitalised.
    small = _GENERIC | _PRONOUNS | set(_WORD.findall(text))
    found = dict.fromkeys(_NAME.findall(text))
    return tuple(name for name in found if name not in _CALENDAR and name.lower() not in small)


def find_numbers(text: str) -> set[str]:
    """Return the numbers in a text as digits, including number words such as `twice`."""
    numbers = set()
    for token in _NUMBER.findall(text):
        number = _NUMBERS.get(token.lower(), token.replace(",", ""))
        if number[0].isdigit():
            numbers.add(number)
    return numbers


def _why_incomplete(question: str, premises: Sequence[str]) -> str:
    if not premises:
        return "its question is the whole problem"
    if told := find_numbers(question):
        return f"its question contains {min(told)}, which belongs in a document"
    return ""
