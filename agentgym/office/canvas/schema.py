"""Canvas: tables and the values of some columns."""

from __future__ import annotations

from pathlib import Path

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

STUDENT, TEACHER, TA, DESIGNER, OBSERVER = (
    f"{who}Enrollment" for who in ("Student", "Teacher", "Ta", "Designer", "Observer")
)
ROLES = (STUDENT, TEACHER, TA, DESIGNER, OBSERVER)  # enrollment types in Canvas's spelling

# `active` grants rights, `completed` only read access.
STATES = ("active", "invited", "inactive", "completed")

# Roles per course right, after Canvas's default permissions.
RIGHTS = {
    "edit": (TEACHER, TA, DESIGNER),
    "grade": (TEACHER, TA),
    "teach": (TEACHER,),
    "learn": (STUDENT,),
}

MAX_ID = 2**63 - 1  # SQLite's largest integer
