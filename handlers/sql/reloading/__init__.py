"""Reload one table of the target: build it beside the present one, then swap the rows in one transaction."""
