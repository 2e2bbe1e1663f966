"""A dead letter carries its record whole, and says in its headers where it comes from and why it is there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from worker.dead_letters.topic import Header, headers_of, read_letter
from worker.formats.interface import Record

WHEN = datetime(2026, 11, 21, 10, 0, 0, 123_456, tzinfo=UTC)


def message(headers: list[Header] | None = None, **fields: Any) -> Record:
    given = {"topic": "cdc.shop", "partition": 3, "offset": 41, "key": b"\xff\x00", "value": b"\x00v\xfe"}
    # What the consumer hands out; the declared types of the constructor are narrower than what it takes.
    made: Any = Message
    return cast(
        Record,
        made(**(given | fields), headers=headers, timestamp=(TIMESTAMP_CREATE_TIME, 1_763_000_000_000)),
    )


def headers(record: Record, **more: Any) -> list[Header]:
    fields: dict[str, Any] = {"table": "shop.orders", "handler": "mirror", "index": 2, "error": "E: why"}
    fields |= {"attempts": 10, "time": WHEN, "worker": "shop-replica"}
    return headers_of(record, **(fields | more))


def sent(record: Record, **more: Any) -> Record:
    """The record as it stands in the dead-letter topic."""
    return message(
        headers(record, **more),
        topic="cdc.dead",
        partition=0,
        offset=7,
        key=record.key(),
        value=record.value(),
    )


def test_the_headers_of_a_letter() -> None:
    found = dict(headers(message()))
    assert found == {
        "binlane.topic": b"cdc.shop",
        "binlane.partition": b"3",
        "binlane.offset": b"41",
        "binlane.index": b"2",
        "binlane.table": b"shop.orders",
        "binlane.handler": b"mirror",
        "binlane.error": b"E: why",
        "binlane.attempts": b"10",
        "binlane.time": b"2026-11-21T10:00:00.123Z",
        "binlane.worker": b"shop-replica",
        "binlane.timestamp": b"1 1763000000000",
    }


def test_what_is_not_known_has_no_header() -> None:
    names = {name for name, _ in headers(message(), handler=None, index=None)}
    assert names.isdisjoint({"binlane.handler", "binlane.index"})


names = st.text(min_size=1, max_size=8).filter(lambda name: name != "binlane.topic")
own_headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=8)), max_size=4)


@given(own=own_headers, key=st.none() | st.binary(), value=st.none() | st.binary())
def test_the_original_record_comes_back_byte_for_byte(
    own: list[Header], key: bytes | None, value: bytes | None
) -> None:
    record = message(own, key=key, value=value)
    original = read_letter(sent(record)).original()
    assert (original.key(), original.value()) == (key, value)
    assert original.headers() == (own or None)
    assert (original.topic(), original.partition(), original.offset()) == ("cdc.shop", 3, 41)
    assert original.timestamp() == (1, 1_763_000_000_000)
    assert len(original) == len(value or b"")


def test_a_letter_that_was_sent_in_again_keeps_the_headers_of_its_first_time_as_its_own() -> None:
    first = headers(message([("mine", b"1")]))
    again = message(first, topic="cdc.retry", partition=0, offset=5)
    letter = read_letter(sent(again, error="E: once more"))
    assert (letter.topic, letter.source_offset, letter.error) == ("cdc.retry", 5, "E: once more")
    assert list(letter.headers) == first


def test_a_record_that_is_no_dead_letter_says_nothing() -> None:
    letter = read_letter(message([("mine", b"1")], topic="cdc.dead", offset=9))
    assert (letter.topic, letter.partition, letter.source_offset, letter.table) == (None, None, None, None)
    assert letter.source == "unknown"
    assert letter.name == "3:9"
    assert letter.headers == (("mine", b"1"),)


def test_headers_that_say_nonsense_are_unknown() -> None:
    nonsense: list[Header] = [("binlane.topic", b"t"), ("binlane.offset", b"many"), ("binlane.index", None)]
    letter = read_letter(message([*nonsense, ("binlane.timestamp", b"noon"), ("binlane.error", b"\xff")]))
    assert (letter.source_offset, letter.index, letter.error) == (None, None, "�")
    assert letter.timestamp == (1, 1_763_000_000_000)


@pytest.mark.parametrize(
    "number", [b"9" * 5000, b"99999999999999999999", b"9999999999999999999", b"-1", b"x"]
)
def test_numbers_that_kafka_does_not_have_are_not_known(number: bytes) -> None:
    """Anybody may write into the topic: such a letter must not end a replay of the others."""
    forged = [(name, number if name != "binlane.topic" else b"t") for name, _ in headers(message())]
    forged[-1] = ("binlane.timestamp", number + b" " + number)
    letter = read_letter(message(cast(list[Header], forged)))
    assert (letter.partition, letter.source_offset, letter.index, letter.stood_at) == (None,) * 4
    assert letter.original().offset() == 0
