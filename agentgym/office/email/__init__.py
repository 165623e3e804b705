"""The mail server: mailboxes, folders, search, drafts and attachments, on RFC 5322 messages."""

from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email

__all__ = ["Email", "Mail"]
