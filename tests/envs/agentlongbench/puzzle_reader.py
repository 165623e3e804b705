"""Independent reader that answers an AgentLongBench row using only the messages."""

from __future__ import annotations

import json
import re
from typing import Any


class Reader:
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
                    lists = (
                        [data["intersection"]]
                        if "intersection" in data
                        else [p["candidates"] for p in data["per_section"]]
                    )
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
        numbers = [int(n) for n in re.findall(r"(?:round|rounds|to|from) ([0-9]+)", question)]
        quoted = [json.loads(text) for text in re.findall(r'"(?:[^"\\]|\\.)*"', question)]
        if label.endswith("(Env)"):
            return self.from_feedback(label, question, numbers, quoted)
        if label == "Count Frequency(Tool)":
            return sum(names.count(quoted[0]) for names in self.results[numbers[0]])
        if label == "Find Duplicates(Tool)":
            return all(any(quoted[0] in names for names in self.results[n]) for n in numbers[:2])
        if label == "Find Target Offsets(Tool)":
            names = next(names for names in self.results[numbers[0]] if quoted[0] in names)
            return [names[names.index(quoted[0]) + k] for k in (1, 2)]
        assert label == "Intersection"
        if "hidden item" in question:
            (common,) = set.intersection(*(set(lists[0]) for lists in self.results.values()))
            return common
        return sorted(set.intersection(*map(set, self.results[numbers[0]])))

    def from_feedback(
        self, label: str, question: str, numbers: list[int], quoted: list[str]
    ) -> int:
        if label == "Count Correctness(Env)":
            return [mark for _, _, mark in self.feedback[numbers[0]]].count("correct")
        if label == "Count Frequency(Env)":
            assert numbers[:2] == [1, max(self.feedback)]
            marks = [mark[:2] for marks in self.feedback.values() for mark in marks]
            return marks.count((quoted[1], quoted[0]))
        if label == "Find Round with Largest Value(Env)":
            found = {
                n: int(next(v for s, v, _ in marks if s == quoted[0]))
                for n, marks in self.feedback.items()
            }
            return min(n for n in found if found[n] == max(found.values()))
        weights = json.loads(question[question.index("{") : question.index("}") + 1])
        totals = [
            sum(weights[s] for s, _, mark in self.feedback[n] if mark == "correct")
            for n in numbers[-2:]
        ]
        return abs(totals[0] - totals[1])
