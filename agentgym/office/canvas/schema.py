"""Canvas: tables and the values of some columns."""

from __future__ import annotations

from pathlib import Path

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

# Enrollment types in Canvas's spelling. The last two may teach: they edit and grade.
STUDENT, TEACHER, TA = "StudentEnrollment", "TeacherEnrollment", "TaEnrollment"

MAX_ID = 2**63 - 1  # SQLite's largest integer
