"""The command line, which needs the extra `cli`."""

import sys

from agentgym.text.requirements import install_command

try:
    import rich  # noqa: F401
    import typer  # noqa: F401
except ImportError:
    sys.exit(f"error: the command line needs its extra: {install_command('cli')}")

from agentgym.cli.commands import app, main

__all__ = ["app", "main"]
