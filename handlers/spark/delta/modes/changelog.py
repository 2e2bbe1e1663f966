"""Changelogs: every row of the segments is appended."""

from __future__ import annotations

from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.saving import save
from handlers.spark.delta.segments_frame import NUMBER, read
from handlers.spark.options import SparkOptions
from handlers.spark.rows.added import log_schema

__all__ = ["Changelog"]


class Changelog:
    """Appends segments as they are."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options

    def bring(self, what: Bringing) -> None:
        """The table is made if there is none. Raises what Spark raises."""
        schema = log_schema(what.shape, mode="changelog", prefix=self._options.prefix)
        save(read(what.session, what.segments, schema).drop(NUMBER), what.ref, self._options)
