"""Small states of LOCA-bench's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.envs.loca.published_invoices import Received, write_invoices
from tests.envs.loca.published_states import (
    Coursework,
    FinalExam,
    write_ab_testing,
    write_academic_warning,
    write_conferences,
    write_course,
    write_coursework,
    write_exams,
    write_inventory,
    write_machines,
    write_market,
    write_nhl,
    write_slow_products,
)

COUNTS = {
    "Toys": [[100, 70, 90, 66], [50, 40, 10, 9]],
    "Toys_2": [[7, 3, 0, 0]],
    "Tea": [[9, 6, 8, 6]],
}
# A wins by its totals, and loses by the mean of its rates.
LOST = {"Toys": [[900, 700, 100, 70]], "Tea": [[10, 1, 900, 650]]}
STUDENTS = {
    "S001": ("Ada Moore", [80.0, 70.0], 56.0),  # 25.3 %
    "S002": ("Bo Reyes", [90.0, 81.2], 40.0),  # 53 %
    "S003": ("Cy Hall", [60.5, 62.5], 61.0),
    "S004": ("Di Ward", [80.0, 80.0], 60.0),  # exactly 25 %
}
GAMES = [
    ("2024-10-01", "Boston Bruins", "Anaheim Ducks"),
    ("2024-10-02", "Utah Hockey Club", "Boston Bruins"),
    ("2024-10-02", "Calgary Flames", "Anaheim Ducks"),
    ("2024-10-03", "Boston Bruins", "Utah Hockey Club"),
    ("2024-10-05", "Boston Bruins", "Calgary Flames"),
]
RANGES = {("M001", "temperature"): (15.0, 85.5), ("M001", "rpm"): (1200, 1800)}
READINGS = [
    ("2025-08-19 11:25:00", "M001", "rpm", 1900.0),  # before the hour
    ("2025-08-19 11:30:00", "M001", "rpm", 1900.0),
    ("2025-08-19 11:30:00", "M001", "temperature", 85.5),  # on the limit
    ("2025-08-19 11:30:00", "M002", "rpm", 1.0),  # no range
    ("2025-08-19 12:30:00", "M001", "rpm", 1500.25),
    ("2025-08-19 12:30:00", "M001", "temperature", 14.99),
    ("2025-08-20 12:00:00", "M001", "temperature", 14.0),
]
WEIGHTS = {
    "Gaming": {"TVs": 0.625, "Drones": 0.375, "Mice": 0.0},
    "Storage": {"TVs": 0.0, "Drones": 0.0, "Mice": 1.0},
}
SIZES = {
    "TVs": ("mn", [5000.0, 5500.25, 5200.5, 6000.0]),
    "Drones": ("bn", [12.5, 13.75, 13.02, 14.1]),
    "Mice": ("mn", [90.0, 80.0, 70.0, 60.0]),
}
STOCK = {"OAK": 100.5, "SCREW": 40.0, "GLUE": 3.25}
RECIPES = {"CHAIR_001": {"OAK": 1.5, "SCREW": 4}, "DESK_002": {"OAK": 2.25, "GLUE": 0.5}}
ORDERS = [{"CHAIR_001": 2}, {"CHAIR_001": 1, "DESK_002": 3}]
ROSTER = [
    ("John Lee", "200012345", "johnlee7@mcp.com", "enrolled"),
    ("Mary Hall", "200054321", "maryhall12@mcp.com", "enrolled"),
    ("Ava King", "200011111", "avaking3@mcp.com", "dropped"),
    ("Emma Scott", "200022222", "emmascott9@mcp.com", "enrolled"),
]
PAPERS = {("COML", "main-track"): "2025-10-03", ("ML1", "demo"): "2025-10-02"}
OLD, NEW = "2025-09-30T23:59:00-12:00", "2025-10-03T23:59:00-12:00"
LETTERS = [
    ("2025-09-12 00:00:00", "[COML main-track] Camera-Ready Submission Instructions", f"By:\nDeadline: {OLD}\n"),
    ("2025-09-13 00:00:00", "[ML1] Conference Update", "Registration is now open."),
    ("2025-09-14 00:00:00", "[ML1 demo] Camera-Ready Submission Instructions", "By:\nDeadline: 2025-10-02T23:59:00-12:00\n"),
    ("2025-09-14 00:00:00", "[COML main-track] REMINDER: Camera-Ready Deadline Approaching", f"Deadline: {OLD}\n"),
    ("2025-09-15 00:00:00", "[COML main-track] Camera-Ready Deadline EXTENDED", f"Original deadline: {OLD}\nNEW deadline: {NEW}\n"),
    ("2025-09-15 00:00:00", "[COML workshop] Camera-Ready Submission Instructions", "By:\nDeadline: 2025-10-20T23:59:00-12:00\n"),
]  # fmt: skip


COURSES = {
    "CS101-1": Coursework("2026-03-10T23:59:00Z", "2026-03-12T23:59:00Z"),
    "AI201-2": Coursework("2026-03-10T23:59:00Z", "2026-03-11T23:59:00Z", 90, 89),
    "ENG101-3": Coursework("2026-03-09T23:59:00Z", "2026-03-12T23:59:00Z", 85, 85),
    "DB101-4": Coursework("", "2026-03-13T23:59:00Z"),
    "NET101-5": Coursework("2026-03-15T23:59:00Z", "2026-03-16T23:59:00Z"),
}
EXAMS = {
    "CS301": FinalExam("Real-time Systems", "2025-02-03", "Email"),
    "MATH101": FinalExam("Linear Algebra", "2025-01-20", books="Closed-book"),
    "BIO204": FinalExam("Ecology", "TBD"),
    "BUS102": FinalExam("Auditing", "TBD", "Email", books="Closed-book"),
    "EE101": FinalExam("Electronics", "none"),
    "PHYS101": FinalExam("Optics", "2024-12-20"),
    "AI101": FinalExam("Deep Learning", "2025-03-01"),
}
# Days in stock, sales, price and sale price.
PRODUCTS = {
    "Sony Mouse v3": (91, 9, "59.99", "37.45"),
    "HP Fan v1": (200, 0, "20.5", "10.33"),
    "LG Hub v2": (200, 3, "99.0", "80.0"),
    "Dell Dock 2021": (89, 0, "49.9", ""),
    "Acer TV 2022": (120, 10, "250.0", "240.1"),
}
SUBSCRIBERS = {"annali3@mcpt.com": "Anna Li", "tomwu9@mcpt.com": "Tom Wu"}
DENNIS, CAROL, ASHLEY = "dcooper@mcp.com", "cturner@mcp.com", "ashley_anderson@mcp.com"
INVOICES = {
    "INV-2024-001": Received(
        "government", DENNIS, 1234.5, 1234.5, "PAYMENT STATUS: ✓ PAID ($1234.50)"
    ),
    "2024-1000": Received(
        "modern", DENNIS, 800.01, 99.9, "PAYMENT STATUS: ⚠ PARTIAL ($99.90 of $800.01)"
    ),
    "MCP-100000": Received("traditional", CAROL, 75000.0, 0.0, "PAYMENT STATUS: ✗ UNPAID"),
    "PO10000-24": Received(
        "corporate", ASHLEY, 10.1 + 0.2, 10.1 + 0.2, "Fully settled - Thank you for your payment"
    ),
    "BL-2024-100": Received(
        "minimalist", DENNIS, 29.07, 3.3, "Partial settlement: $3.30 of $29.07"
    ),
    "MCP-999999": Received("tabular", DENNIS, 65.35, 20.0, "Payment in progress: $20.00 paid"),
    "2024-9999": Received("tabular", CAROL, 65.35, 65.35, "Payment received and confirmed"),
    "INV-2024-008": Received("modern", CAROL, 65.35, 0.0, "Payment under review"),
    "INV-2024-009": Received("government", CAROL, 65.35, 1.0, "Partial payment received: $1.00"),
}
# The published generator may draw a number twice.
OLD_INVOICES = [("NOISE-10001", 12.345), ("DIST-2022-101", 8.0), ("DIST-2022-101", 9.99)]


def write_examples(tmp_path: Path) -> Mapping[str, Path]:
    """Write a state, or a folder of them, for each task, and return them by task."""
    write_ab_testing(tmp_path / "ab" / "state0", COUNTS)
    write_ab_testing(tmp_path / "ab" / "state1", LOST)
    write_academic_warning(tmp_path / "academic", STUDENTS)
    write_nhl(tmp_path / "nhl", GAMES)
    write_machines(tmp_path / "machines", RANGES, READINGS)
    write_market(tmp_path / "market", WEIGHTS, SIZES)
    write_inventory(tmp_path / "inventory", STOCK, RECIPES, ORDERS)
    write_course(tmp_path / "course", ROSTER, ["200054321"])
    write_conferences(tmp_path / "conferences" / "state0", PAPERS, LETTERS)
    [first, _] = PAPERS.items()
    write_conferences(tmp_path / "conferences" / "state1", dict([first]), LETTERS)
    write_coursework(tmp_path / "coursework", COURSES, "NET101-5")
    write_exams(tmp_path / "exams", EXAMS)
    write_slow_products(tmp_path / "slow", PRODUCTS, SUBSCRIBERS)
    write_invoices(tmp_path / "invoices", INVOICES, OLD_INVOICES)
    return {
        "ABTesting": tmp_path / "ab",
        "AcademicWarning": tmp_path / "academic",
        "CanvasArrangeExam": tmp_path / "exams",
        "CanvasListTest": tmp_path / "coursework",
        "CourseAssistant": tmp_path / "course",
        "ExcelMarketResearch": tmp_path / "market",
        "FilterLowSellingProducts": tmp_path / "slow",
        "MachineOperating": tmp_path / "machines",
        "NhlB2bAnalysis": tmp_path / "nhl",
        "PayableInvoiceChecker": tmp_path / "invoices",
        "SetConfCrDdl": tmp_path / "conferences",
        "UpdateMaterialInventory": tmp_path / "inventory",
    }
