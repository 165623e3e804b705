"""Text: messages, tools, schemas, parsing, prompts and tokens.

The lowest layer, which imports nothing else from agentgym.
"""
