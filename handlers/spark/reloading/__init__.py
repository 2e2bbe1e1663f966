"""Rebuilds a Spark table beside the existing one, then puts all its rows into the log with one entry."""
