"""Small programs, one for each extra, run by `test_extras.py`."""
