"""Canvas, a learning management system."""
