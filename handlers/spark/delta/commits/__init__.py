"""Commits that bring each segment into a table once, and what the table's log tells of them."""
