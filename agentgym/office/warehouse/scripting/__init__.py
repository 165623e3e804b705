"""GoogleSQL scripts: variables, control flow and several statements in one query."""
