"""Canvas: tables and the values of some columns."""

from __future__ import annotations

from pathlib import Path

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

# Enrollment types in Canvas's spelling.
STUDENT, TEACHER, TA, DESIGNER = (
    f"{who}Enrollment" for who in ("Student", "Teacher", "Ta", "Designer")
)

# Roles per course right, after Canvas's default permissions.
RIGHTS = {
    "edit": (TEACHER, TA, DESIGNER),
    "grade": (TEACHER, TA),
    "teach": (TEACHER,),
    "learn": (STUDENT,),
}

MAX_ID = 2**63 - 1  # SQLite's largest integer
