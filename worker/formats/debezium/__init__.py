"""Debezium's change events from MySQL and PostgreSQL: in envelopes or flattened, with or without schemas, and
its schema changes."""
