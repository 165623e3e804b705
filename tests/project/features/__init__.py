"""A small program for the purpose of each extra, run by `test_extras.py`."""
