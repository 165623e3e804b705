"""Texts of the office tasks, written from phrases and read back."""
