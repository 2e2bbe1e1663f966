"""Segments of changes into Delta tables: one commit each, exactly once."""
