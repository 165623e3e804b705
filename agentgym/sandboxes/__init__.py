"""Sandboxes in which code written by a model runs: interpreters (monty, bubblewrap) and a workbench for programs."""
