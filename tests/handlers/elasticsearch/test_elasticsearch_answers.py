"""What a cluster's answers mean: by a service that answers as clusters in trouble do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from servers.hook_server import Answer, HookServer, Received
from servers.search_node import SearchNode

from handlers import HandlerContext, Rejected, TargetUnavailable
from handlers.elasticsearch import ElasticsearchHandler
from handlers.failures import UnfitPlace
from handlers.http.parts import RequestRefused
from handlers.testing import make_batch, opened
from handlers.versioned.versions import Unfit

SECRET = "never-in-an-error"
CONTEXT = HandlerContext(worker="w", handler="h", folder=Path())
ROWS = [{"id": number, "name": "a"} for number in range(3)]
BATCH = make_batch("shop.orders", ROWS, key="id", types={"id": "int", "name": "text"})
MEMORY = json.dumps(
    {"table": "shop.orders", "topics": [["test", None]], "partitions": ["test[0]"], "key": ["id"]}
)
MAPPED = {
    "shop.orders": {
        "mappings": {
            "properties": {
                "_binlane": {"properties": {"memory_1": {"null_value": MEMORY}}},
                "id": {"type": "long"},
                "name": {"type": "text"},
            },
        }
    }
}


def said(status: int, body: Any, **headers: str) -> Answer:
    return Answer(status, {"Content-Type": "application/json", **headers}, json.dumps(body).encode())


def items(*outcomes: tuple[int, str | None]) -> Answer:
    told = [
        {"index": {"status": status, **({"error": {"type": kind, "reason": "r"}} if kind else {})}}
        for status, kind in outcomes
    ]
    return said(200, {"errors": True, "items": told})


@contextmanager
def cluster(
    bulk: Callable[[Received], Answer], **options: Any
) -> Iterator[tuple[ElasticsearchHandler, HookServer]]:
    with HookServer() as server:
        server.answer = lambda request: bulk(request) if "_bulk" in request.path else said(200, MAPPED)
        with opened(ElasticsearchHandler(url=server.url, **options)) as handler:
            yield handler, server


@pytest.mark.parametrize(
    ("outcome", "error", "told"),
    [
        ((429, "es_rejected_execution_exception"), TargetUnavailable, "es_rejected_execution"),
        ((503, "unavailable_shards_exception"), TargetUnavailable, "unavailable_shards"),
        ((403, "cluster_block_exception"), UnfitPlace, "cluster_block"),
        ((403, "security_exception"), UnfitPlace, "security_exception"),
        ((400, "mapper_parsing_exception"), Rejected, "offset 1: shop.orders: its document is refused"),
        ((500, "fail_processor_exception"), Rejected, "offset 1: shop.orders: its document is refused"),
        ((500, "translog_exception"), TargetUnavailable, "translog"),
        ((400, "index_closed_exception"), UnfitPlace, "index_closed"),
        ((404, "index_not_found_exception"), RequestRefused, "index_not_found"),
    ],
)
def test_each_document_is_judged_for_itself(
    outcome: tuple[int, str], error: type[Exception], told: str
) -> None:
    with cluster(lambda _: items((201, None), outcome, (201, None))) as (handler, _):
        with pytest.raises(error, match=told) as found:
            handler.handle(BATCH)
        if isinstance(found.value, Rejected):
            assert found.value.at == 1


def test_a_cluster_without_room_is_waited_for_before_a_row_is_blamed() -> None:
    both = items((400, "mapper_parsing_exception"), (429, "es_rejected_execution_exception"), (201, None))
    with cluster(lambda _: both) as (handler, _), pytest.raises(TargetUnavailable):
        handler.handle(BATCH)


@pytest.mark.parametrize("page", [b"", b"<html>Request Entity Too Large</html>"], ids=["cluster", "proxy"])
def test_a_request_that_is_too_large_is_sent_by_halves(page: bytes) -> None:
    def bulk(request: Received) -> Answer:
        count = request.body.count(b'{"index"')
        if count > 1 or b'"id":2' in request.body:
            return Answer(413, body=page)
        return said(200, {"errors": False, "items": [{"index": {"status": 201}}]})

    with cluster(bulk) as (handler, server):
        with pytest.raises(Rejected, match="too large") as found:
            handler.handle(BATCH)
        sent = [one for one in server.received if "_bulk" in one.path]
    assert found.value.at == 2
    assert len(sent) == 2


@pytest.mark.parametrize("status", [302, 401, 403, 429, 500, 503])
def test_what_is_mended_elsewhere_is_waited_for_and_no_secret_is_told(status: int) -> None:
    def bulk(request: Received) -> Answer:
        return said(
            status,
            {"error": {"type": "t", "reason": request.headers["authorization"]}},
            **{"Retry-After": "7"},
        )

    for login in ({"api_key": SECRET}, {"username": "u", "password": SECRET}):
        with cluster(bulk, **login) as (handler, _), pytest.raises(TargetUnavailable) as found:
            handler.handle(BATCH)
        assert found.value.retry_after == 7
        assert SECRET not in str(found.value)
        assert "***" in str(found.value)


def test_no_secret_is_told_in_part_where_an_answer_is_cut() -> None:
    def bulk(_: Received) -> Answer:
        return said(503, {"error": {"type": "t", "reason": "x" * 394 + SECRET}})

    with cluster(bulk, api_key=SECRET) as (handler, _), pytest.raises(TargetUnavailable) as found:
        handler.handle(BATCH)
    assert SECRET[:3] not in str(found.value)


def test_a_document_that_cannot_be_read_now_is_not_taken_for_one_that_is_not_there() -> None:
    """A shard that is away is told of each document, with 200: what the row lacks would be lost."""
    away = {"error": {"type": "no_shard_available_action_exception", "reason": "r"}}

    def answer(request: Received) -> Answer:
        if "_mget" in request.path:
            return said(200, {"docs": [{"_id": "1", **away}]})
        return items((201, None)) if "_bulk" in request.path else said(200, MAPPED)

    part = {"before": {"id": 1}, "after": {"id": 1}}
    with HookServer() as server, opened(ElasticsearchHandler(url=server.url)) as handler:
        server.answer = answer
        with pytest.raises(TargetUnavailable, match="no_shard_available"):
            handler.handle(make_batch("shop.orders", [part], key="id", types={"id": "int", "name": "text"}))
        assert [one for one in server.received if "_bulk" in one.path] == []


@pytest.mark.parametrize("failing", ["_refresh", "_search"])
def test_a_truncate_waits_for_all_shards(failing: str) -> None:
    """What one that is away holds would stay for good."""
    truncate = make_batch("shop.orders", [{"op": "truncate", "sql": None, "before": None}], offset=9)

    def answer(request: Received) -> Answer:
        shards = {"_shards": {"total": 2, "successful": 1, "failed": int(failing in request.path)}}
        return said(200, MAPPED if "filter_path" in request.path else {"hits": {"hits": []}, **shards})

    with HookServer() as server, opened(ElasticsearchHandler(url=server.url)) as handler:
        server.answer = answer
        with pytest.raises(TargetUnavailable, match=f"{failing}: some shards"):
            handler.handle(truncate)


def test_a_404_that_is_not_the_clusters_is_waited_for() -> None:
    """What balances the load knows no service for a moment: a TRUNCATE would be taken for done."""
    truncate = make_batch("shop.orders", [{"op": "truncate", "sql": None, "before": None}])
    latin = '{"message": "nicht verfügbar"}'.encode("latin-1")
    for body in (b"<html>default backend - 404</html>", b'{"message": "no Route matched"}', b"", latin):
        with HookServer() as server, opened(ElasticsearchHandler(url=server.url)) as handler:
            server.answer = lambda _, body=body: Answer(404, body=body)
            with pytest.raises(TargetUnavailable, match="another server answers 404"):
                handler.handle(truncate)


def test_logins() -> None:
    answer = said(200, {"errors": False, "items": [{"index": {"status": 201}}] * 3})
    for login, header in (
        ({"api_key": "k"}, "ApiKey k"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
    ):
        with cluster(lambda _: answer, **login) as (handler, server):
            handler.handle(BATCH)
        assert {one.headers["authorization"] for one in server.received} == {header}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": f"http://u:{SECRET}@h:9200"}, "without user, password and query"),
        ({"url": "h:9200"}, "allowed: a URL"),
        ({"url": "http://h", "username": "u"}, "set both username and password"),
        ({"url": "http://h", "username": "u", "password": SECRET, "api_key": SECRET}, "either username"),
        ({"url": "http://h", "api_key": f"{SECRET}\n"}, "without line breaks"),
        ({"url": "http://h", "api_key": f"{SECRET}é"}, "ASCII"),
        ({"url": "http://h", "index": "{database}"}, "add {table}"),
        ({"url": "http://h", "index": "{table} x"}, "besides"),
        ({"url": "http://h", "indx": "a"}, "indx"),
    ],
)
def test_unusable_options_are_told_without_secrets(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as found:
        ElasticsearchHandler(**options)
    assert told in str(found.value)
    assert SECRET not in str(found.value)


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ({"number": "2.19.6", "distribution": "opensearch"}, None),
        ({"number": "9.1.0"}, None),
        ({"number": "6.8.0"}, "elasticsearch 6.8.0; needed"),
        (None, "reports no version"),
    ],
)
def test_which_cluster_it_is(version: Any, fault: str | None) -> None:
    with HookServer() as server:
        server.answer = lambda _: said(200, {"version": version})
        handler = ElasticsearchHandler(url=server.url)
        if fault is None:
            handler.check(CONTEXT)
        else:
            with pytest.raises(Unfit, match=fault):
                handler.check(CONTEXT)


def test_a_user_who_may_too_little_is_told_what_is_lacking() -> None:
    rights = {
        "has_all_requested": False,
        "index": {"*.*": {"read": True, "write": False, "create_index": True}},
    }
    with HookServer() as server:
        server.answer = lambda one: said(
            200, rights if "privileges" in one.path else {"version": {"number": "8.1.0"}}
        )
        with pytest.raises(Unfit, match="write, view_index_metadata, maintenance, manage"):
            ElasticsearchHandler(url=server.url).check(CONTEXT)


def test_an_index_made_by_hand_has_a_mapping_that_is_written_to() -> None:
    """So a user without `manage` would be stopped by the first batch: the check asks for it."""
    asked: list[Any] = []
    properties: dict[str, Any] = {**MAPPED["shop.orders"]["mappings"]["properties"], "_binlane": {}}

    def answer(request: Received) -> Answer:
        if request.method == "PUT":
            properties.update(request.json["properties"])
        if "privileges" in request.path:
            asked.extend(request.json["index"][0]["privileges"])
            return said(200, {"has_all_requested": True})
        if "_bulk" in request.path:
            return said(200, {"errors": False, "items": [{"index": {"status": 201}}] * 3})
        if "filter_path" in request.path:
            return said(200, {"shop.orders": {"mappings": {"properties": properties}}})
        if "_search" in request.path:
            return said(200, {"hits": {"hits": []}})
        return said(200, {"version": {"number": "8.1.0"}})

    with HookServer() as server, opened(ElasticsearchHandler(url=server.url, create=False)) as handler:
        server.answer = answer
        handler.check(CONTEXT)
        handler.handle(BATCH)
        assert [one.path for one in server.received if one.method == "PUT"] == ["/shop.orders/_mapping"]
    assert asked == ["read", "write", "view_index_metadata", "maintenance", "manage"]


def test_a_real_cluster_is_checked_and_left_as_it_is(search_node: SearchNode) -> None:
    before = search_node.call("GET", "/_cat/indices?format=json&h=index")
    ElasticsearchHandler(url=search_node.url).check(CONTEXT)
    assert search_node.call("GET", "/_cat/indices?format=json&h=index") == before


def test_an_index_that_never_gets_its_fields_is_asked_again_after_a_while() -> None:
    other = make_batch("shop.orders", [{"id": 1, "new": "a"}], key="id", types={"id": "int", "new": "text"})
    with cluster(lambda _: items((201, None))) as (handler, server):
        with pytest.raises(UnfitPlace, match="others keep changing the target of shop") as told:
            handler.handle(other)
        assert told.value.retry_after
        assert not any("_bulk" in request.path for request in server.received)
