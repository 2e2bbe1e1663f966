"""`checkpoint.force` counts until the group commits a position of the partition."""

from __future__ import annotations

from offsets.types import Checkpoint, Committed, Mark, TopicPartition
from worker.partitions.starts import ForcedStart

ORDERS, CARTS = TopicPartition("cdc.shop", 0), TopicPartition("cdc.shop", 1)


def committed(offset: int, stamp: int = 1) -> Committed:
    return Committed(Checkpoint(offset), Mark(offset, stamp))


def begun() -> ForcedStart:
    return ForcedStart({ORDERS: committed(500), CARTS: None}, {"cdc.shop": "one"})


def test_a_partition_begins_anew_until_something_of_it_is_committed() -> None:
    forced = begun()
    assert forced.applies(ORDERS, committed(500)), "it left before anything was committed, and came back"
    assert forced.applies(ORDERS, committed(500))
    assert forced.applies(CARTS, None)


def test_what_was_committed_since_is_gone_on_from_whoever_did_it() -> None:
    forced = begun()
    assert not forced.applies(ORDERS, committed(20))
    assert not forced.applies(ORDERS, committed(500, stamp=2))
    assert not forced.applies(CARTS, committed(7))


def test_without_a_look_at_the_start_nothing_is_forced() -> None:
    assert not ForcedStart().applies(ORDERS, None)


def test_what_was_not_there_when_the_worker_began_is_not_forced() -> None:
    forced = begun()
    assert not forced.applies(TopicPartition("cdc.shop", 2), None, "one"), "a partition added since"
    assert forced.applies(CARTS, None, "one")
    assert not forced.applies(CARTS, None, "two"), "Kafka drops what is committed with the topic"
    assert forced.applies(CARTS, None), "nobody can tell its id"


def test_a_partition_that_was_forced_and_committed_is_not_forced_again() -> None:
    forced = begun()
    forced.over(CARTS)
    assert not forced.applies(CARTS, None), "as after Kafka dropped what was committed"
    assert forced.applies(ORDERS, committed(500))
