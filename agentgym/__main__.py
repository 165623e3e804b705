"""Entry point of `python -m agentgym`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():  # noqa: PTH109 - as Python wrote it
    del sys.path[0]  # the working folder may contain untrusted modules

try:
    from agentgym.cli import main
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    main()
