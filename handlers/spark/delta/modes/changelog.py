"""Changelogs: every row of the segments is appended."""

from __future__ import annotations

from pyspark.sql import SparkSession

from handlers.spark.delta.modes.bringing import NUMBER, Bringing
from handlers.spark.delta.saving import save
from handlers.spark.options import SparkOptions


class Changelog:
    """Appends segments as they are."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options

    def bring(self, session: SparkSession, what: Bringing) -> None:
        """The table is made if there is none. Raises what Spark raises."""
        save(what.rows(session, "changelog", self._options.prefix).drop(NUMBER), what.ref, self._options)
