"""Readers of a row's columns, from its schema, its MySQL type, or the configuration."""
