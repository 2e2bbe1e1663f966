"""Which mode is applied how."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from handlers.spark.delta.commits.exactly_once import fenced
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.modes.changelog import Changelog
from handlers.spark.delta.modes.history import History
from handlers.spark.delta.modes.keyless import KeylessReplica
from handlers.spark.delta.modes.replica import Replica
from handlers.spark.options import SparkOptions


class _Mode(Protocol):
    def bring(self, session: SparkSession, what: Bringing) -> None:
        """In one commit."""


class Applier:
    """Brings consecutive segments of one shape into their table."""

    def __init__(self, keyed: _Mode, keyless: _Mode) -> None:
        """For tables with, and without, a primary key."""
        self._keyed = keyed
        self._keyless = keyless

    def apply(self, session: SparkSession, what: Bringing) -> None:
        """In one commit that says so. Raises what `fenced` and Spark raise; KeyNeeded."""
        with fenced(session, what.ref, what.note, after=what.after):
            (self._keyed if what.shape.key else self._keyless).bring(session, what)


def applier_for(options: SparkOptions) -> Applier | None:
    """None: the segments are the table themselves."""
    if options.format == "parquet":
        return None
    if options.mode == "replica":
        return Applier(Replica(options), KeylessReplica(options))
    mode = Changelog(options) if options.mode == "changelog" else History(options)
    return Applier(mode, mode)
