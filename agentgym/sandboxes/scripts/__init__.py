"""Programs of a workbench that not every distribution has, in Python: `tree`, `unzip` and `zip`.

Their sources are sent inside; they use the standard library only. They take the options that are used
most and refuse the others.
"""
