"""Compare the cost of the office servers with the limits below: `python benchmarks/office.py
[SERVER …]` (needs `agentgym-suite[office]`).

An empty office with all servers should take at most 20 ms and 20 MB. The median call should take at
most 1 ms, or 10 ms with SQL. No limit applies to sandbox runs. A server that cannot be imported is
reported and skipped.
"""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym.office.office import SERVERS, Office, server_class
from agentgym.text.tools import ToolError, tools_of

ROUNDS = 200
# Memory is averaged over this many offices.
LIVE = 64
OFFICE_MS, OFFICE_MB, CALL_MS, SQL_MS = 20.0, 20.0, 1.0, 10.0

Arguments = Callable[[int], Mapping[str, Any]]
"""Return the arguments of a call in the given round."""


def main(wanted: list[str]) -> None:
    names = available(wanted or list(SERVERS))
    Office(names).close()  # exclude one-time imports
    made = show_offices(names)
    show_copies(names, made)
    print("\n| server | tool | median ms | 95% ms | of the limit |\n|---|---|---|---|---|")
    for name in names:
        for row in rows_of(name):
            print(row, flush=True)


def available(wanted: list[str]) -> list[str]:
    found = []
    for name in wanted:
        try:
            server_class(name)
            found.append(name)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return found


def milliseconds(act: Callable[[int], object], rounds: int = ROUNDS) -> list[float]:
    times = []
    for k in range(rounds):
        start = time.perf_counter()
        act(k)
        times.append(1e3 * (time.perf_counter() - start))
    return times


def resident() -> float:
    """Return this process's resident memory in MB (Linux only)."""
    return (
        int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    )


def show_offices(names: list[str]) -> float:
    made = statistics.median(milliseconds(lambda _: Office(names).close()))
    gc.collect()
    before = resident()
    offices = [Office(names) for _ in range(LIVE)]
    each = (resident() - before) / LIVE
    close(offices)
    tracemalloc.start()
    offices = [Office(names) for _ in range(LIVE)]
    traced = tracemalloc.get_traced_memory()[0] / LIVE / 2**20
    tracemalloc.stop()
    close(offices)
    print(f"| an empty office with {len(names)} servers | | of the limit |\n|---|---|---|")
    print(f"| made and closed | {made:.2f} ms | {made / OFFICE_MS:.2f} |")
    print(f"| memory, each of {LIVE} that live at once | {each:.2f} MB | {each / OFFICE_MB:.2f} |")
    print(f"| of it what Python allocates | {traced:.2f} MB | {traced / OFFICE_MB:.2f} |")
    if "snowflake" in names:
        before = resident()
        offices = [Office(names) for _ in range(LIVE)]
        for office in offices:
            call(office.get(server_class("snowflake")), "read_query", {"query": "SELECT 1"})
        each = (resident() - before) / LIVE
        print(
            f"| memory, each of {LIVE} after a query in SQL | {each:.2f} MB | {each / OFFICE_MB:.2f} |"
        )
        close(offices)
    return made


def close(offices: list[Office]) -> None:
    for office in offices:
        office.close()
    offices.clear()
    gc.collect()


def show_copies(names: list[str], made: float) -> None:
    print(
        "\n| an office | copied, ms | pickled and back, ms | KB | copied : made |\n|---|---|---|---|---|"
    )
    for filled in (0, 1_000):
        office = Office(names)
        for k in range(filled):
            office.context.files.write(f"{k % 50}/{k}.txt", f"{k}" * 100)
        if filled and "google_cloud" in names:
            cloud: Any = office.get(server_class("google_cloud"))
            for k in range(filled):
                cloud.logging.log("app", {"number": k}, "INFO")
        copied = statistics.median(
            milliseconds(lambda _, office=office: copy.deepcopy(office).close(), 50)
        )
        pickled = statistics.median(
            milliseconds(lambda _, office=office: pickle.loads(pickle.dumps(office)).close(), 50)
        )
        size = len(pickle.dumps(office)) / 1024
        label = f"with {filled:,} files and log entries" if filled else "empty"
        print(f"| {label} | {copied:.2f} | {pickled:.2f} | {size:,.0f} | {copied / made:.2f} |")
        office.close()


def rows_of(name: str) -> Iterator[str]:
    server: Any = server_class(name)()
    for tool, (limit, arguments) in CALLS[name](server).items():
        call(server, tool, arguments(0))  # the first call imports modules and is not timed
        times = milliseconds(
            lambda k, tool=tool, arguments=arguments: call(server, tool, arguments(k + 1)),
            ROUNDS if limit else 20,
        )
        median, late = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        yield f"| {name} | {tool} | {median:.2f} | {late:.2f} | {f'{median / limit:.2f}' if limit else ''} |"
    server.close()


def call(server: Any, tool: str, arguments: Mapping[str, Any]) -> Any:
    """Call a tool in the same way as an env. Raises RuntimeError if the tool refuses the call,
    because the time would be meaningless.
    """
    try:
        return tools_of(server)[tool](arguments)
    except ToolError as error:
        raise RuntimeError(f"{tool} refused {arguments}: {error}") from error


Calls = dict[str, tuple[float, Arguments]]
"""Tools with their limit in milliseconds (0 for none) and their arguments."""


def filesystem(server: Any) -> Calls:
    server.context.files.write("a.txt", "line\n" * 200)
    return {
        "read_text_file": (CALL_MS, lambda k: {"path": "a.txt"}),
        "write_file": (CALL_MS, lambda k: {"path": f"{k}.txt", "content": "line\n" * 200}),
        "search_files": (CALL_MS, lambda k: {"path": ".", "pattern": "**/1*.txt"}),
    }


def terminal(server: Any) -> Calls:
    return {"run_command": (0, lambda k: {"command": "ls"})}


def python_execute(server: Any) -> Calls:
    return {"python_execute": (0, lambda k: {"code": "print(1)"})}


def pdf_tools(server: Any) -> Calls:
    from pypdf import PdfWriter  # noqa: PLC0415

    writer, held = PdfWriter(), io.BytesIO()
    writer.add_blank_page(200, 200)
    writer.write(held)
    server.context.files.write("a.pdf", held.getvalue())
    return {"get_pdf_info": (CALL_MS, lambda k: {"pdf_file_path": "a.pdf"})}


def excel(server: Any) -> Calls:
    call(server, "create_workbook", {"filepath": "a.xlsx"})
    rows = [[k, f"name {k}", 1.5 * k] for k in range(20)]
    return {
        "write_data_to_excel": (
            CALL_MS,
            lambda k: {"filepath": "a.xlsx", "sheet_name": "Sheet1", "data": rows},
        ),
        "read_data_from_excel": (CALL_MS, lambda k: {"filepath": "a.xlsx", "sheet_name": "Sheet1"}),
    }


def memory(server: Any) -> Calls:
    return {
        "create_entities": (
            CALL_MS,
            lambda k: {
                "entities": [{"name": f"cat {k}", "entityType": "cat", "observations": ["sleeps"]}]
            },
        ),
        "search_nodes": (CALL_MS, lambda k: {"query": f"cat {k}"}),
    }


def email(server: Any) -> Calls:
    server.add_user("ann@mcp.com", "secret", "Ann")
    server.login("ann@mcp.com", "secret")
    return {
        "send_email": (
            CALL_MS,
            lambda k: {"to": "ann@mcp.com", "subject": f"Report {k}", "body": "Dear Ann,\n" * 20},
        ),
        "get_emails": (CALL_MS, lambda k: {}),
        "search_emails": (CALL_MS, lambda k: {"query": f"Report {k}"}),
    }


def calendar(server: Any) -> Calls:
    def event(k: int) -> Mapping[str, Any]:
        day = f"2025-02-{1 + k % 28:02}"
        return {
            "summary": f"Talk {k}",
            "start": {"dateTime": f"{day}T10:00:00Z"},
            "end": {"dateTime": f"{day}T11:00:00Z"},
        }

    span = {"timeMin": "2025-02-01T00:00:00Z", "timeMax": "2025-02-02T00:00:00Z"}
    return {"create_event": (CALL_MS, event), "list_events": (CALL_MS, lambda k: span)}


def canvas(server: Any) -> Calls:
    teacher = server.people.add_user("Ann Bell", "ann@mcp.com", "secret")
    course = server.courses.add_course("Networks", "NET101", teacher)
    server.people.login_as("ann@mcp.com")
    return {
        "canvas_list_courses": (CALL_MS, lambda k: {}),
        "canvas_get_course": (CALL_MS, lambda k: {"course_id": course}),
    }


def google_cloud(server: Any) -> Calls:
    server.storage.add_bucket("box")
    server.context.files.write("a.csv", "x,y\n" * 1000)
    up = {"bucket_name": "box", "source_file_path": "a.csv"}
    calls: Calls = {
        "storage_upload_file": (CALL_MS, lambda k: {**up, "destination_blob_name": f"{k}.csv"}),
        "storage_list_objects": (CALL_MS, lambda k: {"bucket_name": "box", "max_results": 20}),
        "logging_write_log": (
            CALL_MS,
            lambda k: {"log_name": "app", "message": f"entry {k}", "severity": "ERROR"},
        ),
        "logging_read_logs": (
            CALL_MS,
            lambda k: {"log_filter": 'LOG_ID("app") severity>=ERROR', "max_entries": 5},
        ),
    }
    if "bigquery_run_query" in tools_of(server):
        server.bigquery.load(
            "d", "t", {"name": "STRING", "number": "INT64"}, [(f"n{k}", k % 7) for k in range(1000)]
        )
        query = "SELECT number, COUNT(*) AS n FROM `d.t` WHERE number > {} GROUP BY number ORDER BY n DESC"
        calls["bigquery_run_query"] = (SQL_MS, lambda k: {"query": query.format(k % 7)})
    return calls


def google_sheet(server: Any) -> Calls:
    sheet = call(server, "create_spreadsheet", {"title": "Stock"})["spreadsheetId"]
    place = {"spreadsheet_id": sheet, "sheet": "Sheet1", "range": "A1:C10"}
    return {
        "update_cells": (CALL_MS, lambda k: {**place, "data": [[f"row {k}", k, 1.5]] * 10}),
        "get_sheet_data": (CALL_MS, lambda k: place),
    }


def snowflake(server: Any) -> Calls:
    server.load(
        "SHOP.PUBLIC.ORDERS",
        {"ID": "INTEGER", "AMOUNT": "FLOAT"},
        [(k, 1.5 * k) for k in range(1000)],
    )
    query = "SELECT COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM SHOP.PUBLIC.ORDERS WHERE ID > {}"
    return {
        "read_query": (SQL_MS, lambda k: {"query": query.format(k)}),
        "write_query": (
            SQL_MS,
            lambda k: {"query": f"INSERT INTO SHOP.PUBLIC.ORDERS VALUES ({10_000 + k}, 2.5)"},
        ),
    }


def woocommerce(server: Any) -> Calls:
    first = call(
        server, "woo_products_create", {"productData": {"name": "Table", "regular_price": "80.00"}}
    )["id"]
    return {
        "woo_products_create": (
            CALL_MS,
            lambda k: {
                "productData": {"name": f"Chair {k}", "regular_price": "12.50", "sku": f"CH-{k}"}
            },
        ),
        "woo_products_list": (CALL_MS, lambda k: {"perPage": 10}),
        "woo_products_get": (CALL_MS, lambda k: {"productId": first}),
    }


def claim_done(server: Any) -> Calls:
    return {"claim_done": (CALL_MS, lambda k: {})}


CALLS: dict[str, Callable[[Any], Calls]] = {
    play.__name__: play
    for play in (
        filesystem, terminal, python_execute, pdf_tools, excel, memory, email, calendar, canvas, google_cloud, google_sheet,
        snowflake, woocommerce, claim_done,
    )
}  # fmt: skip

if __name__ == "__main__":
    main(sys.argv[1:])
