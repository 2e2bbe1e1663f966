"""Debezium makes two records of a changed primary key: in row order each is a barrier of its table."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import pytest
from building import chunk, work
from captured import STREAMS, records
from confluent_kafka import Message
from row_building import row_unit
from row_stepping import never

from handlers import Change
from offsets.restore import Start
from offsets.types import TopicPartition
from worker.formats.interface import Record, UndecodableRecord
from worker.formats.registry import get
from worker.units.assigned_partition import Assignment
from worker.units.sharding import spread

HEADERS = {"__debezium.newkey", "__debezium.oldkey"}


def rows_of(stream: str) -> dict[TopicPartition, list[tuple[Record, Change]]]:
    """The records with a row, as the consumer gives them, and their rows."""
    decode = get("debezium").decode
    found: dict[TopicPartition, list[tuple[Record, Change]]] = defaultdict(list)
    for each in records(stream):
        changes: list[Change] = []
        try:
            decode(each, changes)
        except UndecodableRecord:
            continue
        if changes and changes[0].op not in ("ddl", "truncate"):
            place = TopicPartition(each.topic(), each.partition())
            fields: dict[str, Any] = {
                "offset": each.offset(),
                "key": each.key(),
                "headers": each.headers(),
            }
            message = Message(topic=place.topic, partition=place.partition, value=each.value(), **fields)
            found[place].append((cast(Record, message), changes[0]))
    return found


@pytest.mark.parametrize("stream", [name for name in STREAMS if name.startswith("debezium")])
def test_both_records_of_a_changed_key_stand_alone_and_other_rows_only_where_the_key_is_another(
    stream: str,
) -> None:
    met = 0
    for place, pairs in rows_of(stream).items():
        of = Assignment(place, 1, Start(0, (), "initial", "a test"), get("debezium"))
        made = work(row_unit(), chunk(of, [message for message, _ in pairs]))
        assert made.decode(never) is None
        result = spread(made)
        spread_out = [message.offset() for _, piece in result.parts for message in piece.messages]
        rest = [message.offset() for piece in result.rest for message in piece.messages]
        assert sorted(spread_out) + rest == [message.offset() for message, _ in pairs]
        alone = {piece.messages[0].offset() for piece in result.rest if piece.alone}
        before: Change | None = None
        for message, change in pairs:
            if HEADERS & {name for name, _ in message.headers() or ()}:
                assert message.offset() in alone
                met += 1
            elif before is not None and change.key_columns == before.key_columns:
                assert message.offset() not in alone
            before = change
    assert met > 10
