"""The HTTP client of targets and of the schema registry."""
