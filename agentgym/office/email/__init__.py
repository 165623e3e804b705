"""A mail server with accounts, folders, drafts and attachments."""
