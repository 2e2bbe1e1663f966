"""Maxwell's JSON, and its DDL from a separate topic."""
