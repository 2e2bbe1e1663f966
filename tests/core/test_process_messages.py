"""What the worker and its child processes send each other arrives whole."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from building import TOPIC, assignment, chunk, ddl, record
from confluent_kafka import Message

from worker.attempts.steps import ProcessAway
from worker.formats.interface import Record
from worker.processes.messages import Frames, packed_error, unpacked_error
from worker.processes.records import made, packed, packed_chunks


@pytest.fixture
def ends() -> Iterator[tuple[Frames, Frames]]:
    here, there = socket.socketpair()
    found = Frames(here), Frames(there)
    yield found
    for each in found:
        each.close()


def fields(one: Record) -> tuple[Any, ...]:
    place = one.topic(), one.partition(), one.offset(), one.timestamp()
    return *place, one.key(), one.value(), cast(Message, one).headers()


def test_records_arrive_as_they_are() -> None:
    plain, headed = record(3), record(4, headers=[("a", b"1"), ("a", b"")])
    timed = cast(Record, Message(TOPIC, 0, 5, b"key", None, None, None, (2, 1_763_000_000_000)))
    for some in ([plain], [plain, headed, timed], [timed, plain]):
        assert [fields(one) for one in made(TOPIC, 0, packed(some))] == [fields(one) for one in some]


def test_what_several_polls_brought_of_one_partition_arrives_together() -> None:
    one, other = assignment(0), assignment(1)
    chunks = [
        chunk(one, [record(0), record(1)]),
        chunk(one, [record(2)]),
        chunk(other, [record(0, partition=1)]),
        chunk(one, [record(3)]),
        chunk(one, [ddl(4)], alone=True),
    ]
    packs = packed_chunks(chunks)
    found = [(partition, alone, offsets) for _, partition, _, alone, offsets, *_ in packs]
    assert found == [(0, False, [0, 1, 2]), (1, False, [0]), (0, False, [3]), (0, True, [4])]


def test_messages_that_arrive_together_are_taken_one_by_one(ends: tuple[Frames, Frames]) -> None:
    here, there = ends
    messages = ["one", 2**70, {"bytes": b"x" * 50_000}, "\ud800", b"", "last"]
    for message in messages:
        here.send(message)
    assert [there.receive() for _ in messages] == messages


def test_a_message_that_breaks_off_is_an_end(ends: tuple[Frames, Frames]) -> None:
    here, there = ends
    here.send("whole")
    here._socket.sendall((100).to_bytes(8) + b"part")
    here.shut()
    assert there.receive() == "whole"
    with pytest.raises(EOFError):
        there.receive()


def test_a_call_that_was_not_begun_is_no_answer_of_its_target() -> None:
    error = unpacked_error(packed_error(ProcessAway("too late", 0.5)))
    assert isinstance(error, ProcessAway)
    assert (str(error), error.wait) == ("too late", 0.5)
