"""Files of the workspace and the programs that work on them: filesystem, terminal, Python and PDF
tools.
"""
