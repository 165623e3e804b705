"""Python versions of workbench programs that some distributions lack: `unzip` and `zip`.

The source code of these programs is copied into the sandbox. The programs support the most common
options and reject the others.
"""
