"""User-provided problems: reading, decomposition, and checks."""
