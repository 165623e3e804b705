"""Servers for workspace files and programs: filesystem, PDF tools, terminal and Python."""
