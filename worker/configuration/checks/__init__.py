"""Checks of the whole configuration: conflicting keys, shared table locations, and probable mistakes."""
