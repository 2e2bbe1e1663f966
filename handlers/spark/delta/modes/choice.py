"""Chooses how a mode's segments are merged."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from handlers.spark.delta.commits.exactly_once import fenced
from handlers.spark.delta.modes.bringing import NUMBER, Bringing, save
from handlers.spark.delta.modes.history import History
from handlers.spark.delta.modes.keyless import KeylessReplica
from handlers.spark.delta.modes.replica import Replica
from handlers.spark.options import SparkOptions


@dataclass(frozen=True, slots=True)
class Applier:
    """Merges consecutive segments of one shape into their table."""

    options: SparkOptions

    def apply(self, session: SparkSession, what: Bringing) -> None:
        """Merge the segments in one commit that records them. Creates the table if it does not exist. Raises
        what `fenced` and Spark raise."""
        options = self.options
        with fenced(session, what.ref, what.note, after=what.after):
            if options.mode == "changelog":
                save(what.rows(session, "changelog", options.prefix).drop(NUMBER), what.ref, options)
            elif options.mode == "history":
                History(options).bring(session, what)
            elif what.shape.key:
                Replica(options).bring(session, what)
            else:
                KeylessReplica(options).bring(session, what)


def applier_for(options: SparkOptions) -> Applier | None:
    """None if the segments themselves are the table."""
    return None if options.format == "parquet" else Applier(options)
