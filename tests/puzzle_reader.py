"""An independent reader of AgentLongBench rows: it answers a question from the text of the messages and the question alone.

It shares no code with the package, and reads the question by its own patterns.
"""

from __future__ import annotations

import json
import re
from typing import Any


class Reader:
    """What the messages of a row say."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.results: dict[int, list[list[str]]] = {}
        self.calls: dict[int, list[dict[str, Any]]] = {}
        self.raw: dict[int, str] = {}
        self.feedback: dict[int, list[tuple[str, str, str]]] = {}
        self.guesses: dict[int, str] = {}
        self.order: list[str] = []
        pending: tuple[list[dict[str, Any]], str] | None = None
        guess = ""
        for message in messages:
            self.order.append(message["role"])
            content = message["content"]
            if message["role"] == "tool":
                pending = (pending[0] if pending else []), content
            elif message["role"] == "assistant" and message.get("tool_calls"):
                (call,) = message["tool_calls"]
                pending = json.loads(call["function"]["arguments"])["conditions"], ""
            elif message["role"] == "assistant":
                guess = content[len("<answer>") : -len("</answer>")]
            elif message["role"] == "user":
                number = self._hear(content)
                self.guesses[number] = guess
                if pending:
                    self.calls[number], self.raw[number] = pending
                    data = json.loads(pending[1])
                    lists = [data["intersection"]] if "intersection" in data else [p["candidates"] for p in data["per_section"]]
                    self.results[number] = lists
                pending = None

    def _hear(self, text: str) -> int:
        head, *lines = text.split("\n")
        number = int(head.split(":")[0].removeprefix("Round "))
        marks = self.feedback[number] = []
        for line in lines:
            if line.startswith("  - "):
                section, values = line[4:].split(": ", 1)
                for value in values.split("; "):
                    name, verdict = value[:-1].rsplit(" (", 1)
                    marks.append((section, name, verdict))
        return number

    def answer(self, label: str, question: str) -> Any:
        """The answer to a question."""
        numbers = [int(n) for n in re.findall(r"(?:round|rounds|to|from) ([0-9]+)", question)]
        quoted = [json.loads(text) for text in re.findall(r'"(?:[^"\\]|\\.)*"', question)]
        last = max(self.feedback)
        if label == "Count Frequency(Tool)":
            return sum(names.count(quoted[0]) for names in self.results[numbers[0]])
        if label == "Find Duplicates(Tool)":
            i, j = (sum(self.results[n], []) for n in numbers[:2])
            return quoted[0] in i and quoted[0] in j
        if label == "Find Target Offsets(Tool)":
            for names in self.results[numbers[0]]:
                for k, name in enumerate(names):
                    if name == quoted[0]:
                        return [names[k + 1], names[k + 2]]
        if label == "Count Correctness(Env)":
            return [mark for _, _, mark in self.feedback[numbers[0]]].count("correct")
        if label == "Count Frequency(Env)":
            assert numbers[0] == last or last in numbers
            return sum(marks.count((quoted[1], quoted[0], v)) for marks in self.feedback.values() for v in {"correct", "wrong"})
        if label == "Find Round with Largest Value(Env)":
            found = {n: int(next(v for s, v, _ in marks if s == quoted[0])) for n, marks in self.feedback.items()}
            return min(n for n in found if found[n] == max(found.values()))
        if label == "Weighted Summation(Env)":
            weights = json.loads(question[question.index("{") : question.index("}") + 1])
            totals = [sum(weights[s] for s, _, mark in self.feedback[n] if mark == "correct") for n in numbers[-2:]]
            return abs(totals[0] - totals[1])
        assert label == "Intersection"
        if "hidden item" in question:
            common = set.intersection(*(set(lists[0]) for lists in self.results.values()))
            assert len(common) == 1
            return common.pop()
        return sorted(set.intersection(*map(set, self.results[numbers[0]])))
