"""The source's DDL, followed in Delta tables: columns, types, whole tables. docs/handlers/spark-ddl.md
tells what each statement does."""

from __future__ import annotations

from handlers.spark.ddl.follow import DDLResult, follow
from handlers.spark.ddl.target import Surroundings

__all__ = ["DDLResult", "Surroundings", "follow"]
