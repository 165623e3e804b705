"""The tasks of LOCA-bench, one in each file."""
