"""A row that moves to another key, which the target refuses there: it stays under the former one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_reader import read
from servers.clickhouse_server import ClickHouseServer
from servers.hook_server import Answer, HookServer
from servers.search_node import SearchNode

from handlers import Batch, Handler, PartialFailure, Rejected
from handlers.clickhouse import ClickHouseHandler
from handlers.elasticsearch import ElasticsearchHandler
from handlers.kafka.handler import KafkaHandler
from handlers.testing import make_batch, opened
from handlers.webhook import WebhookHandler
from worker.local.broker import Broker

TYPES = {"id": "int", "day": "date", "note": "text"}


def moved(old: int, new: dict[str, Any], offset: int, *, stays: bool = False) -> list[dict[str, Any]]:
    """The two changes of one update. `stays`: the old row is marked instead of deleted."""
    gone: dict[str, Any] = {"op": "delete"}
    if stays:
        gone = {"op": "update", "after": {"id": old, "day": None, "note": "moved"}}
    place = {"offset": offset, "moves_key": True}
    return [
        {"before": {"id": old}, **gone, **place},
        {"op": "insert", "before": None, "after": new, "index": 1, **place},
    ]


def batch(table: str, *changes: dict[str, Any], offset: int = 0) -> Batch:
    return make_batch(table, changes, key="id", types=TYPES, offset=offset)


def refused(it: Handler, changes: Batch, match: str) -> Rejected:
    with pytest.raises((Rejected, PartialFailure), match=match) as caught:
        it.handle(changes)
    error = caught.value.cause if isinstance(caught.value, PartialFailure) else caught.value
    assert isinstance(error, Rejected)
    return error


@pytest.mark.parametrize("stays", [False, True])
def test_clickhouse_leaves_the_row_under_its_former_key(clickhouse: ClickHouseServer, stays: bool) -> None:
    table = f"{clickhouse.new_name()}.t"
    with opened(ClickHouseHandler(**clickhouse.options)) as it:
        it.handle(batch(table, {"id": 1, "day": None, "note": "a"}))
        clickhouse.query(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK id < 10")
        over = {"id": 20, "day": None, "note": "a"}
        error = refused(it, batch(table, *moved(1, over, 5, stays=stays), offset=5), "small")
        assert error.at == 1
        assert clickhouse.rows(table) == [{"id": 1, "day": None, "note": "a"}]
        it.handle(batch(table, *moved(1, {**over, "id": 2}, 6, stays=stays), offset=6))
    ids = [row["id"] for row in clickhouse.rows(table)]
    assert ids == ([1, 2] if stays else [2])


def test_elasticsearch_leaves_the_row_under_its_former_key(search_node: SearchNode) -> None:
    table = f"{search_node.new_name()}.t"
    search_node.call("PUT", f"/{table}", {"mappings": {"properties": {"note": {"type": "long"}}}})
    with opened(ElasticsearchHandler(url=search_node.url)) as it:
        it.handle(batch(table, {"id": 1, "day": None, "note": 1}))
        over = {"id": 2, "day": None, "note": "no number"}
        assert refused(it, batch(table, *moved(1, over, 5), offset=5), "failed to parse").at == 1
        assert search_node.documents(table) == {"1": {"id": 1, "day": None, "note": 1}}
        it.handle(batch(table, *moved(1, {**over, "note": 2}, 6), offset=6))
    assert search_node.documents(table) == {"2": {"id": 2, "day": None, "note": 2}}


@pytest.mark.parametrize("max_changes", [1, 2, 500])
def test_a_webhook_gets_both_changes_in_one_request(max_changes: int) -> None:
    changes = [{"id": 7}, *moved(1, {"id": 2}, 5), {"id": 8}, {"id": 9}]
    with (
        HookServer() as hook,
        opened(WebhookHandler(url=f"{hook.url}/x", max_changes=max_changes)) as it,
    ):
        hook.answer = lambda request: Answer(422 if 2 in request.ids else 200)
        # As the worker goes on behind what is refused.
        error = refused(it, batch("s.t", *changes), "422")
        assert error.at == 1
        assert all(request.ids != [1] for request in hook.refused)
        assert [number for request in hook.received for number in request.ids] == [7]


@pytest.mark.parametrize("size", [2_000_000, 20_000])
def test_a_compacted_topic_has_no_tombstone_before_its_row_is_there(
    broker: Broker, make_topic: Callable[..., str], size: int
) -> None:
    """Refused by the client, or by the brokers."""
    topic = make_topic(cleanup_policy="compact", max_message_bytes="10000")
    servers = broker.bootstrap_servers
    with opened(KafkaHandler(bootstrap_servers=servers, topic=topic, value="after")) as it:
        it.handle(batch("s.t", {"id": 1}))
        if size > 1_000_000:
            refused(it, batch("s.t", *moved(1, {"id": 2, "note": "x" * size}, 5), offset=5), "too large")
        it.handle(batch("s.t", *moved(1, {"id": 2}, 6), {"id": 1}, offset=6))
    seen = [(each.key["id"], each.value is None) for each in read(servers, topic)]
    assert seen == [(1, False), (2, False), (1, True), (1, False)]


def test_a_former_key_of_which_nothing_is_told_has_no_message(
    broker: Broker, make_topic: Callable[..., str]
) -> None:
    topic, servers = make_topic(cleanup_policy="compact"), broker.bootstrap_servers
    gone, made = moved(1, {"id": 2}, 5)
    marked = {**gone, "op": "update", "after": {"id": 1}, "lacks": None, "before_is_whole": False}
    with opened(KafkaHandler(bootstrap_servers=servers, topic=topic, value="after")) as it:
        it.handle(batch("s.t", marked, made, offset=5))
        it.handle(batch("s.t", {"id": 3}, marked, made, offset=6))
    assert [each.key["id"] for each in read(servers, topic)] == [2, 3, 2]
