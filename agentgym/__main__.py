"""Run the command `agentgym` with `python -m agentgym`."""

from agentgym.cli import main

if __name__ == "__main__":
    main()
