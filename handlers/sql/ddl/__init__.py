"""Follow the source's DDL in the target's tables."""
