"""The LOCA-bench tasks, one per file."""
