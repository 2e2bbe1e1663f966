"""How each mode merges segments: replica, history, changelog, and replicas of tables without a key."""

from __future__ import annotations

from pyspark.sql import SparkSession

from handlers.spark.delta.commits.exactly_once import fenced
from handlers.spark.delta.modes.bringing import NUMBER, Bringing, save
from handlers.spark.delta.modes.history import History
from handlers.spark.delta.modes.replica import KeylessReplica, Replica
from handlers.spark.options import SparkOptions


def merge_by_spark(session: SparkSession, what: Bringing, options: SparkOptions) -> None:
    """Merge consecutive segments of one shape into their table, in one commit that records them. Creates the
    table if it does not exist. Raises what `fenced` and Spark raise."""
    with fenced(session, what.ref, what.note, after=what.after):
        if options.mode == "changelog":
            save(what.rows(session, "changelog", options.prefix).drop(NUMBER), what.ref, options)
        elif options.mode == "history":
            History(options).bring(session, what)
        elif what.shape.key:
            Replica(options).bring(session, what)
        else:
            KeylessReplica(options).bring(session, what)
