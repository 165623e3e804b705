"""Python versions of workbench programs that some distributions lack: `unzip` and `zip`.

Their source code is copied into the sandbox. They support the most common options and reject the
others.
"""
