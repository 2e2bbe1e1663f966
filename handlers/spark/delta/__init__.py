"""Merges segments into Delta tables: each mode's way (`modes`), exactly once (`commits`), with columns that
follow the source."""
