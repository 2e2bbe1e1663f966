"""The `kafka` handler on a real Kafka: which message goes where, and what is done about those refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka_reader import read

from handlers import Batch, HandlerContext, PartialFailure, Rejected, TargetUnavailable
from handlers.failures import UnfitPlace
from handlers.kafka import delivery
from handlers.kafka.handler import KafkaHandler, Undelivered
from handlers.testing import make_batch, opened
from worker.local.broker import Broker
from worker.local.broker_settings import free_port

MakeTopic = Callable[..., str]
CONTEXT = HandlerContext(worker="w", handler="kafka", folder=Path())


def handler_of(broker: Broker, topic: str, **options: Any) -> KafkaHandler:
    return KafkaHandler(bootstrap_servers=broker.bootstrap_servers, topic=topic, **options)


def orders(*changes: dict[str, Any], key: Any = "id", **fields: Any) -> Batch:
    return make_batch("shop.orders", changes, key=key, **fields)


# ---- messages


def test_a_change_is_a_message_keyed_by_its_primary_key(broker: Broker, topic: str) -> None:
    row = {"total": Decimal("1.50"), "b": "x", "a": 2}
    with opened(handler_of(broker, topic)) as handler:
        handler.handle(orders(row, key=("a", "b"), topic="cdc", partition=3, offset=40))
    (seen,) = read(broker.bootstrap_servers, topic)
    assert list(seen.key.items()) == [("a", 2), ("b", "x")]
    assert seen.value == {
        "op": "insert",
        "database": "shop",
        "table": "orders",
        "key": {"a": 2, "b": "x"},
        "before": None,
        "after": {"total": "1.50", "b": "x", "a": 2},
        "sql": None,
        "source_time_ms": 0,
        "transaction": None,
        "topic": "cdc",
        "partition": 3,
        "offset": 40,
        "index": 0,
    }
    assert seen.headers == {
        "source.topic": "cdc",
        "source.partition": "3",
        "source.offset": "40",
        "source.index": "0",
        "source.table": "shop.orders",
        "op": "insert",
    }


def test_each_table_has_its_topic(broker: Broker, make_topic: MakeTopic) -> None:
    prefix = make_topic()
    for name in ("a.one", "a.two", "b.one"):
        broker.create_topic(f"{prefix}.{name}")
    with opened(handler_of(broker, f"{prefix}.{{database}}.{{table}}")) as handler:
        for number, table in enumerate(("a.one", "a.two", "b.one")):
            handler.handle(make_batch(table, [{"id": number}], key="id"))
    keys = {name: read(broker.bootstrap_servers, f"{prefix}.{name}") for name in ("a.one", "a.two", "b.one")}
    assert [seen[0].key for seen in keys.values()] == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_changes_of_a_row_keep_their_order_and_their_partition(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    with opened(handler_of(broker, topic)) as handler:
        for turn in range(5):
            handler.handle(orders(*({"id": number % 50, "turn": turn} for number in range(500))))
    seen = read(broker.bootstrap_servers, topic)
    assert len(seen) == 2500
    partitions = {each.key["id"]: set() for each in seen}  # type: dict[int, set[int]]
    for each in seen:
        partitions[each.key["id"]].add(each.partition)
    assert all(len(found) == 1 for found in partitions.values())
    assert len(set.union(*partitions.values())) == 4
    for number in partitions:
        turns = [each.value["after"]["turn"] for each in seen if each.key["id"] == number]
        assert turns == sorted(turns)


def test_tables_share_one_producer_from_many_threads(broker: Broker, topic: str) -> None:
    def send(handler: KafkaHandler, table: int) -> None:
        for turn in range(5):
            rows = [{"id": number, "turn": turn} for number in range(20)]
            handler.handle(make_batch(f"shop.t{table}", rows, key="id"))

    with opened(handler_of(broker, topic)) as handler, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda table: send(handler, table), range(8)))
    seen = read(broker.bootstrap_servers, topic)
    for table in range(8):
        rows = [each.value["after"] for each in seen if each.value["table"] == f"t{table}"]
        assert rows == [{"id": number, "turn": turn} for turn in range(5) for number in range(20)]


def test_a_key_goes_to_the_partition_that_javas_producers_choose(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(16)
    with opened(handler_of(broker, topic)) as handler:
        handler.handle(orders({"id": 21}))
    (seen,) = read(broker.bootstrap_servers, topic)
    assert seen.partition == _murmur2(b'{"id":21}') % 16


def _murmur2(data: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, made positive as its partitioner does."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_a_table_without_a_key_and_ddl_have_no_message_key(broker: Broker, topic: str) -> None:
    with opened(handler_of(broker, topic)) as handler:
        handler.handle(orders({"name": "x"}, key=None))
        handler.handle(orders({"sql": "ALTER TABLE orders ADD x int"}))
    row, ddl = read(broker.bootstrap_servers, topic)
    assert (row.key, row.value["after"]) == (None, {"name": "x"})
    assert (ddl.key, ddl.value["sql"], ddl.headers["op"]) == (None, "ALTER TABLE orders ADD x int", "ddl")


def test_rows_as_they_are_now_with_tombstones_suit_a_compacted_topic(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(cleanup_policy="compact")
    before = {"id": 1, "name": "a", "note": "long"}
    with opened(handler_of(broker, topic, value="after")) as handler:
        handler.handle(
            orders(
                before,
                {"before": before, "after": {"id": 1, "name": "b"}},
                {"before": {"id": 1}, "after": None},
                {"sql": "TRUNCATE orders", "op": "truncate"},
            )
        )
    seen = read(broker.bootstrap_servers, topic)
    assert [(each.key, each.value) for each in seen] == [
        ({"id": 1}, before),
        ({"id": 1}, {"id": 1, "name": "b", "note": "long"}),
        ({"id": 1}, None),
    ]


# ---- refused messages


def test_a_deleted_row_without_a_key_has_no_tombstone(broker: Broker, topic: str) -> None:
    batch = orders({"name": "x"}, {"before": {"name": "x"}, "after": None}, key=None)
    with (
        opened(handler_of(broker, topic, value="after")) as handler,
        pytest.raises(Rejected, match=r"shop\.orders, test\[0\] offset 1: .*no primary key") as caught,
    ):
        handler.handle(batch)
    assert caught.value.at == 1
    assert read(broker.bootstrap_servers, topic) == []


def test_a_row_that_lacks_a_value_is_no_whole_row(broker: Broker, topic: str) -> None:
    update = {"before": None, "after": {"id": 1, "n": 2}, "op": "update", "lacks": frozenset({"doc"})}
    with (
        opened(handler_of(broker, topic, value="after")) as handler,
        pytest.raises(Rejected, match="does not send the row's value of doc") as caught,
    ):
        handler.handle(orders({"id": 1, "n": 1, "doc": "large"}, update))
    assert caught.value.at == 1


def test_a_mark_of_a_row_that_is_not_told_is_no_whole_row(broker: Broker, topic: str) -> None:
    key = {"before": {"id": 1}, "op": "update", "lacks": None, "before_is_whole": False}
    with opened(handler_of(broker, topic, value="after")) as handler:
        handler.handle(orders({"id": 1, "n": 1}))
        with pytest.raises(Rejected, match="does not send the row's value of all columns"):
            handler.handle(orders({**key, "after": {"id": 1, "deleted_at": 7}}))
        handler.handle(orders({**key, "after": {"id": 1}}))  # of a row that got another key and stays
    assert [seen.value for seen in read(broker.bootstrap_servers, topic)] == [{"id": 1, "n": 1}]


def test_a_row_that_lacks_its_key_is_rejected(broker: Broker, topic: str) -> None:
    with opened(handler_of(broker, topic)) as handler, pytest.raises(Rejected, match="lacks id") as caught:
        handler.handle(orders({"id": 1}, {"name": "x"}))
    assert caught.value.at == 1


@pytest.mark.parametrize(("name", "size"), [("the client", 1_100_000), ("the brokers", 20_000)])
def test_a_message_that_is_too_large_for_anyone_is_rejected_alone(
    broker: Broker, make_topic: MakeTopic, name: str, size: int
) -> None:
    topic = make_topic(max_message_bytes="10000")
    rows = [{"id": number, "text": "x" * (size if number == 7 else 1000)} for number in range(10)]
    batch = orders(*rows)
    with opened(handler_of(broker, topic)) as handler:
        with pytest.raises(PartialFailure) as caught:
            handler.handle(batch)
        assert caught.value.done == 7
        assert isinstance(caught.value.cause, Rejected)
        assert "shop.orders, test[0] offset 7" in str(caught.value.cause)
        handler.handle(orders(*rows[8:]))
    ids = [each.key["id"] for each in read(broker.bootstrap_servers, topic)]
    assert sorted(set(ids)) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert ids[-2:] == [8, 9]


def test_a_first_message_that_is_too_large_is_rejected(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="10000")
    with opened(handler_of(broker, topic)) as handler, pytest.raises(Rejected, match="too large") as caught:
        handler.handle(orders({"id": 1, "text": "x" * 20_000}, {"id": 2}))
    assert caught.value.at == 0


def test_sets_that_are_too_large_for_the_topic_are_delivered_one_by_one(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes="5000")
    with opened(handler_of(broker, topic)) as handler:
        handler.handle(orders(*({"id": number, "text": "x" * 1000} for number in range(30))))
    ids = [each.key["id"] for each in read(broker.bootstrap_servers, topic)]
    assert list(dict.fromkeys(ids)) == list(range(30))


def test_a_message_without_a_key_is_refused_by_a_compacted_topic(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(cleanup_policy="compact")
    with opened(handler_of(broker, topic)) as handler, pytest.raises(Rejected, match=topic):
        handler.handle(orders({"name": "x"}, key=None))


def test_a_topic_that_is_not_there_is_named_until_somebody_makes_it(broker: Broker, topic: str) -> None:
    missing = f"{topic}-missing"
    with opened(handler_of(broker, missing, timeout="2s")) as handler:
        with pytest.raises(UnfitPlace, match=f"topic {missing} does not exist"):
            handler.handle(orders({"id": 1}))
        broker.create_topic(missing)
        handler.handle(orders({"id": 1}))
    assert [each.key for each in read(broker.bootstrap_servers, missing)] == [{"id": 1}]


@pytest.mark.parametrize("table", ["shop.täg", "shop.a b", f"shop.{'x' * 260}"])
def test_a_table_whose_name_is_no_topic_is_rejected_with_it(broker: Broker, table: str) -> None:
    with (
        opened(handler_of(broker, "replica.{table}")) as handler,
        pytest.raises(Rejected, match=f"replica.{table.partition('.')[2]}' is not a topic name"),
    ):
        handler.handle(make_batch(table, [{"id": 1}], key="id"))


# ---- outages


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError.REQUEST_TIMED_OUT, TargetUnavailable),
        (KafkaError.NOT_LEADER_FOR_PARTITION, TargetUnavailable),
        (KafkaError.KAFKA_STORAGE_ERROR, TargetUnavailable),
        (KafkaError.NETWORK_EXCEPTION, TargetUnavailable),
        (KafkaError.INVALID_TIMESTAMP, TargetUnavailable),  # the worker's clock is wrong
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, UnfitPlace),
        (KafkaError.POLICY_VIOLATION, Undelivered),
    ],
)
def test_what_passes_is_waited_for_though_the_client_does_not_try_again(
    code: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `properties: {retries: 2}`."""
    monkeypatch.setattr(delivery.Outbox, "send", lambda *_: {0: KafkaError(code)})
    with opened(KafkaHandler(bootstrap_servers="127.0.0.1:1")) as handler, pytest.raises(error) as caught:
        handler.handle(orders({"id": 1}))
    assert type(caught.value) is error


@pytest.mark.soak
def test_brokers_that_are_away_are_unavailable_until_they_are_back(tmp_path: Path) -> None:
    with Broker() as own:
        topic = own.create_topic("replica")
        with opened(handler_of(own, topic, timeout="2s")) as handler:
            handler.handle(orders({"id": 1}))
            own.kill()
            for _ in range(2):
                with pytest.raises(TargetUnavailable, match=f"127.0.0.1:{own.port}, topic replica"):
                    handler.handle(orders({"id": 2}, {"id": 3}))
            own.start()
            handler.handle(orders({"id": 2}, {"id": 3}, {"id": 4}))
        ids = [each.key["id"] for each in read(own.bootstrap_servers, topic)]
    assert ids[0] == 1
    assert ids[-3:] == [2, 3, 4]


@pytest.mark.soak
def test_messages_that_ran_out_of_time_twice_are_sent_again_by_another_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One producer may have lost sight of a partition for ever, though its brokers are there.
    made = []

    def counted(*arguments: Any, **settings: Any) -> Producer:
        made.append(Producer(*arguments, **settings))
        return made[-1]

    monkeypatch.setattr(delivery, "Producer", counted)
    with Broker() as own:
        topic = own.create_topic("replica")
        with opened(handler_of(own, topic, timeout="2s")) as handler:
            handler.handle(orders({"id": 1}))
            own.kill()
            for producers in (1, 1, 2, 2, 3):
                with pytest.raises(TargetUnavailable):
                    handler.handle(orders({"id": 2}))
                assert len(made) == producers


def test_check_reaches_the_brokers(broker: Broker) -> None:
    handler_of(broker, "replica.{table}").check(CONTEXT)


def test_check_tells_brokers_that_do_not_answer() -> None:
    servers = f"127.0.0.1:{free_port()}"
    handler = KafkaHandler(bootstrap_servers=servers, timeout="500ms")
    with pytest.raises(TargetUnavailable, match=f"{servers}.*Connection refused"):
        handler.check(CONTEXT)
