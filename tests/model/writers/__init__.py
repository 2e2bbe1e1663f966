"""What tools write of a table's events, a module each: bytes, and beside them what they tell."""
