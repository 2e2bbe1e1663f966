"""Debezium's change events of MySQL and PostgreSQL: whole or flattened, with schemas or without, and its
schema changes."""
