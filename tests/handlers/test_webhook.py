"""The `webhook` handler against a real HTTP server: what is sent, and what each answer means."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from servers.hook_server import Answer, HookServer, Received

from handlers import Batch, PartialFailure, Rejected, TargetUnavailable
from handlers.testing import make_batch, opened
from handlers.webhook.handler import WebhookHandler
from worker.local.broker_settings import free_port

NOON = 1795262400.0  # 2026-11-21T12:00:00Z


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with HookServer() as server:
        yield server


def orders(count: int, first: int = 0) -> Batch:
    rows = [{"id": number} for number in range(first, first + count)]
    return make_batch("shop.orders", rows, key="id", topic="cdc", partition=3, offset=40 + first)


def send(hook: HookServer, *batches: Batch, path: str = "/changes", **options: Any) -> None:
    with opened(WebhookHandler(url=hook.url + path, **options)) as handler:
        handler.clock = lambda: NOON
        for batch in batches:
            handler.handle(batch)


def refuse(*ids: int, status: int = 422) -> Callable[[Received], Answer]:
    return lambda request: Answer(status if set(ids) & set(request.ids) else 200, body=b"no such id")


# ---- requests


def test_a_batch_is_one_json_object(hook: HookServer) -> None:
    send(hook, make_batch("shop.orders", [{"id": 1, "total": Decimal("1.50")}], key="id"))
    (request,) = hook.received
    assert (request.method, request.path) == ("POST", "/changes")
    assert request.headers["content-type"] == "application/json"
    assert request.json == {
        "table": "shop.orders",
        "database": "shop",
        "name": "orders",
        "changes": [
            {
                "op": "insert",
                "database": "shop",
                "table": "orders",
                "key": {"id": 1},
                "before": None,
                "after": {"id": 1, "total": "1.50"},
                "sql": None,
                "source_time_ms": 0,
                "transaction": None,
                "topic": "test",
                "partition": 0,
                "offset": 0,
                "index": 0,
            }
        ],
    }


def test_changes_may_be_lines(hook: HookServer) -> None:
    send(hook, orders(3), format="ndjson", method="PUT", headers={"Authorization": "Bearer abc"})
    (request,) = hook.received
    assert request.method == "PUT"
    assert request.headers["content-type"] == "application/x-ndjson"
    assert request.headers["authorization"] == "Bearer abc"
    assert request.body.count(b"\n") == 3
    assert request.body.endswith(b"}\n")


def test_the_table_stands_percent_encoded_in_the_address(hook: HookServer) -> None:
    batches = [make_batch(table, [{"id": 1}], key="id") for table in ("shop.a b/ü", "shop...")]
    send(hook, *batches, path="/{database}/t/{table}?x=1")
    assert [request.path for request in hook.received] == ["/shop/t/a%20b%2F%C3%BC?x=1", "/shop/t/%2E%2E?x=1"]


def test_a_large_batch_is_several_requests_in_order(hook: HookServer) -> None:
    send(hook, orders(25), max_changes=10)
    assert [request.ids for request in hook.received] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 25)),
    ]


def test_a_signature_covers_the_time_and_the_body(hook: HookServer) -> None:
    send(hook, orders(2), signature={"secret": "s3cret-s3cret"})
    (request,) = hook.received
    signed = request.headers["x-binlane-timestamp"].encode() + b"." + request.body
    expected = hmac.new(b"s3cret-s3cret", signed, hashlib.sha256).hexdigest()
    assert request.headers["x-binlane-timestamp"] == "1795262400"
    assert request.headers["x-binlane-signature"] == f"sha256={expected}"


def test_the_headers_of_a_signature_may_have_other_names(hook: HookServer) -> None:
    names = {"header": "X-Hub-Signature-256", "timestamp_header": "X-Time"}
    send(hook, orders(1), signature={"secret": "x", **names})
    (request,) = hook.received
    assert request.headers["x-hub-signature-256"].startswith("sha256=")
    assert "x-time" in request.headers


def test_the_idempotency_key_is_that_of_the_same_changes_alone(hook: HookServer) -> None:
    send(hook, orders(3), orders(3), orders(4), orders(3, first=1))
    send(hook, orders(3))
    keys = [request.headers["idempotency-key"] for request in hook.received]
    assert keys[0] == keys[1] == keys[4]
    assert len(set(keys)) == 3


def test_the_idempotency_key_is_another_one_for_a_topic_made_anew(hook: HookServer) -> None:
    one, again, anew = (make_batch("shop.orders", [{"id": 1}], key="id", topic_id=each) for each in "AAB")
    send(hook, one, again, anew)
    keys = [request.headers["idempotency-key"] for request in hook.received]
    assert keys[0] == keys[1] != keys[2]


def test_a_value_without_a_form_is_rejected_before_anything_is_sent(hook: HookServer) -> None:
    batch = make_batch("shop.orders", [{"id": 1}, {"id": object()}], key="id")
    with pytest.raises(Rejected, match=r"shop\.orders, test\[0\] offset 1: .*type object") as caught:
        send(hook, batch)
    assert caught.value.at == 1
    assert hook.received == []


# ---- answers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_a_2xx_answer_means_done(hook: HookServer, status: int) -> None:
    hook.answer = lambda request: Answer(status)
    send(hook, orders(1))
    assert len(hook.received) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_a_service_that_cannot_take_it_now_is_unavailable(hook: HookServer, status: int) -> None:
    hook.answer = lambda request: Answer(status)
    with pytest.raises(TargetUnavailable, match=f"{hook.url} answers {status}") as caught:
        send(hook, orders(3))
    assert caught.value.retry_after is None
    assert len(hook.refused) == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("7", 7.0),
        ("Sat, 21 Nov 2026 12:00:20 GMT", 20.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("-5", 0.0),
        ("soon", None),
        ("nan", None),
    ],
)
def test_the_time_that_a_service_asks_to_wait_is_passed_on(
    hook: HookServer, status: int, asked: str, seconds: float | None
) -> None:
    hook.answer = lambda request: Answer(status, {"Retry-After": asked})
    with pytest.raises(TargetUnavailable) as caught:
        send(hook, orders(1))
    assert caught.value.retry_after == seconds


# 406: of a firewall that takes a text for an attack (ModSecurity); 417: Frappe's and ERPNext's word for
# values that do not fit. No header asks for either here.
@pytest.mark.parametrize("status", [400, 406, 409, 413, 417, 422, 424])
def test_a_refused_change_is_found_and_rejected_alone(hook: HookServer, status: int) -> None:
    hook.answer = refuse(13, status=status)
    with pytest.raises(PartialFailure) as caught:
        send(hook, orders(20))
    assert caught.value.done == 13
    cause = caught.value.cause
    assert isinstance(cause, Rejected)
    assert f"shop.orders, cdc[3] offset 53: {hook.url} answers {status}" in str(cause)
    assert str(cause).endswith("no such id")
    assert [number for request in hook.received for number in request.ids] == list(range(13))
    assert len(hook.refused) <= 6


def test_a_refused_first_change_leaves_nothing_done(hook: HookServer) -> None:
    hook.answer = refuse(0)
    with pytest.raises(Rejected) as caught:
        send(hook, orders(3))
    assert caught.value.at == 0
    assert hook.received == []


@pytest.mark.parametrize(
    ("status", "others_go_on"),
    [
        *((401, False), (403, False), (407, False), (304, False)),
        *((402, True), (404, True), (405, True), (410, True), (415, True), (428, True)),
    ],
)
def test_an_answer_that_is_not_about_the_changes_is_waited_for(
    hook: HookServer, status: int, others_go_on: bool
) -> None:
    hook.answer = lambda request: Answer(status)
    with pytest.raises(TargetUnavailable, match=f"answers {status}") as caught:
        send(hook, orders(20))
    assert caught.value.others_go_on is others_go_on
    assert len(hook.refused) == 1


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://other.example/token/x?y=z", "it has moved to https://other.example"),
        ("/elsewhere", "another path"),
    ],
)
def test_a_redirect_is_not_followed_but_told(hook: HookServer, location: str, told: str) -> None:
    hook.answer = lambda request: Answer(307, {"Location": location})
    with pytest.raises(TargetUnavailable, match=told) as caught:
        send(hook, orders(1))
    assert "token" not in str(caught.value)
    assert len(hook.refused) == 1


@pytest.mark.parametrize(
    ("answer", "cause"),
    [(Answer(503), TargetUnavailable), (Answer(422), Rejected), (Answer(cut=True), TargetUnavailable)],
)
def test_requests_before_the_failed_one_count_as_done(
    hook: HookServer, answer: Answer, cause: type[Exception]
) -> None:
    hook.answer = lambda request: answer if 10 in request.ids else Answer()
    with pytest.raises(PartialFailure) as caught:
        send(hook, orders(25), max_changes=10)
    assert caught.value.done == 10
    assert isinstance(caught.value.cause, cause)
    assert [request.ids for request in hook.received] == [list(range(10))]


def test_an_answer_without_an_end_is_judged_by_its_status(hook: HookServer) -> None:
    hook.answer = lambda request: Answer(200, body=b"x" * 10_000_000)
    send(hook, orders(2), orders(2))
    assert len(hook.received) == 2


# ---- outages


def test_a_service_that_is_away_is_unavailable() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with (
        opened(WebhookHandler(url=f"{url}/token-in-the-path")) as handler,
        pytest.raises(TargetUnavailable, match=f"{url}: ConnectError: .*refused") as caught,
    ):
        handler.handle(orders(1))
    assert "token" not in str(caught.value)


def test_a_service_that_does_not_answer_in_time_is_unavailable(hook: HookServer) -> None:
    def wait(_: Received) -> Answer:
        time.sleep(0.5)
        return Answer()

    hook.answer = wait
    with pytest.raises(TargetUnavailable, match="ReadTimeout"):
        send(hook, orders(1), timeout="50ms")


def test_a_connection_that_breaks_is_unavailable(hook: HookServer) -> None:
    hook.answer = lambda request: Answer(cut=True)
    with pytest.raises(TargetUnavailable, match="disconnected"):
        send(hook, orders(1))


def test_a_service_that_repeats_our_secrets_does_not_bring_them_into_an_error(hook: HookServer) -> None:
    hook.answer = lambda request: Answer(
        400, body=repr(request.headers).encode() + b" signed by s3cret-s3cret"
    )
    with pytest.raises(Rejected) as caught:
        send(
            hook,
            orders(1),
            headers={"A": "Bearer hunter22-hunter22", "B": "hunter33"},
            signature={"secret": "s3cret-s3cret"},
        )
    assert "s3cret" not in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert "***" in str(caught.value)
