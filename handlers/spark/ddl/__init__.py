"""The source's DDL, followed in Delta tables: columns, types, whole tables. docs/handlers/spark-ddl.md
tells what each statement does."""
