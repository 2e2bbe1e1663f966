"""Applies the source's DDL to Delta tables: columns, types, whole tables. docs/handlers/spark-ddl.md
describes the effect of each statement."""
