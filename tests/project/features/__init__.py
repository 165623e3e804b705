"""What each extra is for, as a program that needs no other: `test_extras.py` runs them."""
