"""Rows into tables, in each database's own statements (`writer` is what they share)."""
