"""Workbench programs that not every distribution has, in Python: `unzip` and `zip`.

Their source code is sent into the sandbox. They support the most common options and refuse the
others.
"""
