"""`python -m agentgym`, which is the command `agentgym`."""

from agentgym.cli import main

if __name__ == "__main__":
    main()
