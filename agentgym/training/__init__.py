"""Rollouts, trajectories, evaluation, ablations and figures, and the command line."""
