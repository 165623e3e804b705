"""Text: messages, tools, schemas, parsing, prompts and tokens.

The lowest floor. It imports nothing else of this package.
"""
