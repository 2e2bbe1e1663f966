"""Whoever's Spark session."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

__all__ = ["AnySpark"]


@dataclass(frozen=True, slots=True)
class AnySpark:
    """Whoever's session, as `files_for` asks for it."""

    session: SparkSession

    @property
    def is_classic(self) -> bool:
        return not type(self.session).__module__.startswith("pyspark.sql.connect")
