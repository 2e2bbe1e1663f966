"""A real server's stream as packets of Canal's own classes: the same changes as of its flat messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

import msgspec
from captured import records

from handlers import Change
from worker.formats.canal.format import Canal
from worker.formats.interface import Apart, Skip

Tables = dict[tuple[str, str, bool], list[Change]]


def parts(stream: str, format_: Canal) -> Iterator[tuple[tuple[str, str, bool], list[Change]]]:
    """(database, table and whether it stands alone; changes) of each record, or each part of one."""
    for record in records(stream):
        found = format_.explain(record)
        if isinstance(found, Skip):
            continue
        own = found.parts if isinstance(found, Apart) else [(found, record.value())]
        for route, value in own:
            changes: list[Change] = []
            format_.decode(replace(record, value_=value), changes)
            yield (route.database, route.table, route.alone), changes


def tables(stream: str) -> dict[tuple[str, str], list[tuple[bool, Change]]]:
    """Table -> its changes in order, without their places in Kafka, and whether each stands alone."""
    found: dict[tuple[str, str], list[tuple[bool, Change]]] = defaultdict(list)
    for (database, table, alone), changes in parts(stream, Canal()):
        found[database, table] += [
            (alone, msgspec.structs.replace(change, topic="", offset=0, index=0)) for change in changes
        ]
    return found


def test_packets_hold_the_same_changes_as_flat_messages() -> None:
    flat, packed = tables("canal"), tables("canal-packets")
    assert packed.keys() == flat.keys()
    for table, changes in flat.items():
        assert repr(packed[table]) == repr(changes), table
    assert sum(map(len, packed.values())) == 1121 + 530 + 84 + 12 + 57


def test_most_packets_of_the_stream_are_taken_apart() -> None:
    format_ = Canal()
    kinds = Counter(type(format_.explain(record)).__name__ for record in records("canal-packets"))
    assert kinds["Apart"] > 50


def test_no_two_changes_of_a_record_have_one_index() -> None:
    for record in records("canal-packets"):
        found = Canal().explain(record)
        if isinstance(found, Apart):
            changes: list[Change] = []
            for _, value in found.parts:
                Canal().decode(replace(record, value_=value), changes)
            indices = [change.index for change in changes]
            assert len(set(indices)) == len(indices)
            assert all(0 <= index < len(record) for index in indices)
