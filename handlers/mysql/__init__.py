"""Parsing of MySQL's types, values and DDL, shared by formats and handlers."""
