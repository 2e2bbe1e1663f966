"""Change-record formats: bytes to route (cheap), bytes to changes (full)."""
