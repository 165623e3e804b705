"""What a policy sees of the chat: context strategies and adapters, as wrappers."""
