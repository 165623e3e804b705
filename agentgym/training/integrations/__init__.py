"""Bridges to other trainers and tools: TRL, verifiers, verl, SkyRL, MCP, and data sets of training rows."""
