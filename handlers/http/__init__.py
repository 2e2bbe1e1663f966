"""One HTTP client for targets and the schema registry."""
