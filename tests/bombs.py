"""Draw arguments that are expensive for tools, and measure the work of all processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentgym.sandboxes.namespaces import children

LONG = 200_000
WORDS = (
    "a" * LONG,
    "\u0130" * 60_000,
    "[" * 60_000,
    '{"a":' * 20_000,
    "(" * 30_000 + ")" * 30_000,
    "(a?){900}a{900}",
    "(a*)*" * 100 + "b",
    "((a{90}){90}){90}",
    "(?:" * 300 + "a" + ")*" * 300,
    "*" * 500 + "b",
    "**/" * 2_000 + "*",
    "a OR " * 20_000 + "a",
    "NOT " * 20_000 + "a",
    "=" + "1+" * 20_000 + "1",
    '=REPT("a",30000)&' * 500 + '"a"',
    "=" + "SUM(" * 2_000 + "A1:ZZ100000" + ")" * 2_000,
    "A1:XFD1048576",
    "SELECT " + "1+" * 20_000 + "1",
    "SELECT SUM(SEQ4()) FROM TABLE(GENERATOR(ROWCOUNT=>20000000000))",
    "SELECT REGEXP_EXTRACT(REPEAT('a',900000),'(a?){900}a{900}') AS x",
    "SELECT COUNT(*) AS c FROM UNNEST(GENERATE_ARRAY(1,1000000)) a, UNNEST(GENERATE_ARRAY(1,1000000)) b",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) AS c FROM r",
    "from:" * 10_000,
    "RRULE:FREQ=SECONDLY;COUNT=100000000",
    "9" * 5_000,
    "1e999999999",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "x@" * 30_000,
    "<div>" * 30_000,
    "a," * 60_000,
    "bomb.zip",
    "bomb.xlsx",
    "bomb.pdf",
    "deep.json",
    "big.txt",
    "/workspace",
)  # fmt: skip
NUMBERS = (10**18, -(10**18), 2**31, 10**6, 0, 1)
"""Values of schemas, by type."""


def files() -> dict[str, bytes]:
    """Return small files that become large when read."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("xl/workbook.xml", "[Content_Types].xml", "zeros"):
            packed.writestr(name, bytes(60_000_000))
    stream = zlib.compress(bytes(100_000_000), 9)
    pdf = b"%%PDF-1.4\n1 0 obj<</Length %d/Filter/FlateDecode>>stream\n" % len(stream) + stream
    pdf += b"\nendstream endobj\ntrailer<</Root 1 0 R>>"
    return {
        "bomb.zip": archive.getvalue(),
        "bomb.xlsx": archive.getvalue(),
        "bomb.pdf": pdf,
        "deep.json": b"[" * 100_000,
        "big.txt": b"a line\n" * 200_000,
    }


def calls(
    parameters: Mapping[str, Any], known: Mapping[str, str] = MappingProxyType({})
) -> Iterator[dict[str, Any]]:
    """Yield expensive arguments for a tool: each word in `WORDS` is passed as every string
    argument, except for arguments with values in `known`.
    """
    properties = parameters.get("properties", {})
    required = {name: properties[name] for name in parameters.get("required", ())}
    for number, word in enumerate(WORDS):
        draw = _Draw(
            number, word[: LONG // max(1, len(properties))], parameters.get("$defs", {}), known
        )
        yield draw.values(properties)
        if len(required) < len(properties):  # an invalid option may hide other errors
            yield draw.values(required)


@dataclass(frozen=True)
class _Draw:
    number: int
    word: str
    definitions: Mapping[str, Any]
    known: Mapping[str, str]

    def values(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments for the properties of a JSON schema."""
        return {name: self.known.get(name) or self.value(properties[name]) for name in properties}

    def value(self, schema: Mapping[str, Any]) -> Any:
        """Return a value that a JSON schema allows."""
        if "$ref" in schema:
            return self.value(self.definitions[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return self.value(schema["anyOf"][self.number % len(schema["anyOf"])])
        if "enum" in schema:
            return schema["enum"][self.number % len(schema["enum"])]
        kind = schema.get("type")
        if kind == "array":
            item = self.value(schema.get("items", {}))
            return [item] * max(1, min(2_000, LONG // len(json.dumps(item))))
        if schema.get("properties"):
            share = replace(self, word=self.word[: len(self.word) // len(schema["properties"])])
            return share.values(schema["properties"])
        if kind == "object":
            return {f"k{k}": self.word[:200] for k in range(200)}
        if kind in ("integer", "number"):
            return NUMBERS[self.number % len(NUMBERS)]
        return self.number % 2 == 0 if kind == "boolean" else self.word


def seconds() -> float:
    """Return the CPU time of this process and its descendants, including exited processes."""
    ticks, processes = 0, [os.getpid()]
    for process in processes:  # the loop body extends the list
        with contextlib.suppress(OSError):  # the process has ended
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
            fields = text.rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            processes += children(process)
    return ticks / os.sysconf("SC_CLK_TCK")


def megabytes() -> float:
    """Return this process's peak memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
