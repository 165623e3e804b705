"""Functions and operators of spreadsheet formulas."""
