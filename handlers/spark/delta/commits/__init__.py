"""Commits that merge each segment into a table once, and what the table's log says about them."""
