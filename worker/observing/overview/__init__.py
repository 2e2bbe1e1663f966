"""An overview of a worker: its problems, their remedies, and the last hour."""
