"""The captured Debezium streams: readers that know their tables, and their records in the log's order."""

from __future__ import annotations

from captured import CapturedRecord, records

from worker.formats.debezium.format import Debezium

__all__ = ["in_source_order", "knowing"]


def knowing(stream: str) -> Debezium:
    """A reader that has read the stream's DDL topic to its end."""
    format_ = Debezium()
    for record in records(stream):
        format_.learn(record)
    return format_


def in_source_order(format_: Debezium, stream: str) -> list[CapturedRecord]:
    """The records of all topics and partitions that are of the log, by their places in it."""
    placed = [(format_.log_position(record), record) for record in records(stream)]
    of_log = [(place, record) for place, record in placed if place is not None]
    return [record for _, record in sorted(of_log, key=lambda one: one[0].order)]
