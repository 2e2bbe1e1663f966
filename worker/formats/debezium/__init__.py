"""Debezium's change events."""
