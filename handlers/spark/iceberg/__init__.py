"""Iceberg tables, written by PyIceberg without Spark: the same logs, segments and rows as for Delta."""
