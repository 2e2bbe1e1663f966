"""Canal's flat messages."""
