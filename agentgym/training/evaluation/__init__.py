"""Scoring trajectories: ablations over worlds, arms and contexts, confidence intervals, tables, figures and the report."""
