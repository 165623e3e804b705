"""A small program that uses each extra, run by `test_extras.py`."""
