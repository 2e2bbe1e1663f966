"""The place of Spark for tables that are written without it."""

from __future__ import annotations

from typing import cast

from pyspark.sql import SparkSession

from handlers.spark.runtime.session import SharedSpark
from handlers.spark.runtime.slots import Slots
from handlers.spark.section import SparkSection


class _Nowhere:
    master = "none"
    version: str | None = None
    ui_url: str | None = None
    up: bool | None = None

    @property
    def session(self) -> SparkSession:
        raise RuntimeError("these tables are written without Spark")

    def fresh(self) -> SparkSession:
        """No session. Whoever takes one for a while uses none."""
        return cast(SparkSession, None)

    def renewed(self, session: SparkSession) -> SparkSession:
        return session

    def drop(self, session: SparkSession) -> None: ...
    def raise_if_gone(self, error: BaseException) -> None: ...
    def stop(self) -> None: ...

    def alive(self) -> bool:
        return True


class NoSpark(SharedSpark):
    """No Spark at all: its session raises RuntimeError. Paths are this machine's, or URIs of
    object stores, which are reached without Java."""

    def __init__(self, section: SparkSection) -> None:
        self.section = section
        self.slots = Slots(section.concurrency)
        self.is_classic = False
        self._start = None
        self._watch = None
        self._place = _Nowhere()
