"""Maxwell's JSON, and its DDL from a topic of its own."""
