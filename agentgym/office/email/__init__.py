"""Mail server: mailboxes, folders, search, drafts and attachments."""

from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email

__all__ = ["Email", "Mail"]
