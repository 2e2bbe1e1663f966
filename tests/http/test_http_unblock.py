"""Who may have a record set aside over HTTP: nobody through a page, from elsewhere only with the token."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from example_worker import status_at
from structlog.testing import capture_logs

from worker.http.access import Access
from worker.http.app import build_app
from worker.observing.metrics import Metrics
from worker.observing.unblock_messages import (
    Result,
    UnblockAnswer,
    UnblockRequest,
    order_token_file,
    write_order_token,
)

TOKEN = "a-token-of-the-tests"
JSON = {"Content-Type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ASKED = {"table": "shop.orders", "offset": 17, "action": "skip", "by": "ann@laptop"}


class Worker:
    """Notes what it is asked for, and says that it is done."""

    def __init__(self, result: Result = "set_aside", **access: Any) -> None:
        self.asked: list[tuple[UnblockRequest, str]] = []
        self.result = result
        self.app = build_app(
            lambda: status_at(1),
            lambda: None,
            lambda: None,
            Metrics(),
            unblock=self._unblock,
            access=Access(**access),
        )

    def post(
        self,
        headers: dict[str, str],
        *,
        client: str = "127.0.0.1",
        body: bytes | None = None,
        method: str = "POST",
        host: str = "localhost",
    ) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=(client, 4711))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}:8080") as http:
                content = msgspec.json.encode(ASKED) if body is None else body
                return await http.request(method, "/api/unblock", headers=headers, content=content)

        return asyncio.run(send())

    def _unblock(self, asked: UnblockRequest, client: str) -> UnblockAnswer:
        self.asked.append((asked, client))
        return UnblockAnswer(result=self.result, message="told", position="cdc.shop[0] offset 17")


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "10.0.0.9"])
def test_who_can_read_the_workers_files_needs_no_token_of_the_configuration(client: str) -> None:
    worker = Worker(order_token=TOKEN)
    answer = worker.post(JSON | BEARER, client=client)
    assert answer.status_code == 200
    assert answer.json()["result"] == "set_aside"
    assert answer.headers["cache-control"] == "no-store"
    [(asked, told)] = worker.asked
    assert (asked.table, asked.offset, asked.action, asked.by) == ("shop.orders", 17, "skip", "ann@laptop")
    assert told == client


@pytest.mark.parametrize("client", ["10.0.0.9", "::2", "::ffff:10.0.0.9", "192.168.1.1"])
def test_from_elsewhere_it_needs_the_token(client: str) -> None:
    worker = Worker()
    answer = worker.post(JSON, client=client)
    assert answer.status_code == 403
    assert "set http.token" in answer.text
    assert worker.asked == []
    worker = Worker(token=TOKEN)
    assert worker.post(JSON, client=client).status_code == 401
    assert worker.asked == []
    assert worker.post(JSON | BEARER, client=client).status_code == 200


MESHES = [
    {},  # nginx's bare proxy_pass adds nothing
    {"X-Forwarded-For": "10.1.2.3"},
    {"X-Forwarded-Proto": "http", "X-Request-Id": "1", "X-Envoy-Attempt-Count": "1"},  # Istio
    {"l5d-client-id": "a.b.serviceaccount.identity.linkerd.cluster.local"},
    {"X-Forwarded-User": "bob"},  # oauth2-proxy
]


@pytest.mark.parametrize("headers", MESHES)
@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.6", "::1"])
def test_an_address_of_the_workers_machine_proves_nothing(headers: dict[str, str], client: str) -> None:
    """A sidecar and a proxy pass on what others send."""
    worker = Worker(order_token=TOKEN)
    answer = worker.post(JSON | headers, client=client)
    assert answer.status_code == 403
    assert "kubectl exec" in answer.text
    wrong = {"Authorization": "Bearer another"}
    assert worker.post(JSON | headers | wrong, client=client).status_code == 403
    assert Worker().post(JSON | BEARER, client=client).status_code == 403, "its token could not be written"
    assert worker.asked == []


def test_the_token_of_orders_is_only_for_the_workers_user(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for token in ("first", "second"):
        write_order_token(folder, 8080, token)
        file = order_token_file(folder, 8080)
        assert file.read_text() == token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    write_order_token(folder, 8081, "of a worker beside it")
    assert {each.name for each in folder.iterdir()} == {"order-token-8080", "order-token-8081"}


def test_a_token_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    with capture_logs() as logs:
        write_order_token(tmp_path / "state", 8080, "token")
    assert [line["event"] for line in logs] == ["order_token_not_written"]


FORGED = [
    # What pages may send without being asked first: forms, and fetch with mode no-cors.
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ({}, 415),
    # What browsers add, whatever else was forged.
    (JSON | {"Origin": "https://evil.example"}, 403),
    (JSON | {"Origin": "null"}, 403),
    (JSON | {"Origin": "http://localhost:8080"}, 403),
    (JSON | {"Sec-Fetch-Site": "cross-site"}, 403),
    (JSON | {"Sec-Fetch-Site": "same-origin"}, 403),
]


@pytest.mark.parametrize(("headers", "code"), FORGED)
@pytest.mark.parametrize("access", [{"order_token": TOKEN}, {"token": TOKEN}])
def test_no_page_of_a_browser_can_ask_for_it(
    headers: dict[str, str], code: int, access: dict[str, str]
) -> None:
    worker = Worker(**access)
    assert worker.post(headers | BEARER).status_code == code
    assert worker.asked == []


def test_the_password_that_a_browser_knows_is_not_enough() -> None:
    worker = Worker(token=TOKEN)
    with_password = httpx.BasicAuth("anybody", TOKEN)._auth_header
    answer = worker.post(JSON | {"Authorization": with_password})
    assert answer.status_code == 403
    assert "bearer" in answer.text
    assert worker.asked == []


def test_a_page_whose_name_is_made_to_lead_here_cannot_ask_for_it() -> None:
    worker = Worker()
    assert worker.post(JSON, host="evil.example").status_code == 421
    assert worker.asked == []


def test_a_browser_that_asks_first_is_given_no_leave() -> None:
    worker = Worker()
    asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = worker.post(asks, method="OPTIONS")
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_a_link_does_nothing(method: str) -> None:
    worker = Worker()
    assert worker.post(JSON, method=method).status_code == 405
    assert worker.asked == []


def test_without_tls_nothing_is_taken_where_that_is_asked_for() -> None:
    worker = Worker(token=TOKEN, tls=True)
    assert worker.post(JSON | BEARER).status_code == 403
    assert worker.asked == []


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"table": "\xff"}',
    b'{"table": "\xed\xa0\x80"}',
    b'{"\xff": 1}',
    b"[" * 16_000,
    b'{"table": "shop.orders", "offset": 17, "action": "skip"}',
    msgspec.json.encode(ASKED | {"offset": -1}),
    msgspec.json.encode(ASKED | {"offset": 1 << 63}),
    msgspec.json.encode(ASKED | {"action": "halt"}),
    msgspec.json.encode(ASKED | {"table": "x" * 501}),
    msgspec.json.encode(ASKED | {"partition": "0"}),
    msgspec.json.encode(ASKED | {"all": True}),
    msgspec.json.encode(ASKED | {"by": "x" * 501}),
    b" " * 20_000 + msgspec.json.encode(ASKED),
]


@pytest.mark.parametrize("body", BROKEN)
def test_what_is_not_such_a_request_is_refused(body: bytes) -> None:
    worker = Worker(order_token=TOKEN)
    assert worker.post(JSON | BEARER, body=body).status_code == 400
    assert worker.asked == []


@pytest.mark.parametrize(
    ("result", "code"), [("set_aside", 200), ("handled", 200), ("ordered", 202), ("refused", 409)]
)
def test_the_code_says_what_became_of_it(result: Result, code: int) -> None:
    assert Worker(result, order_token=TOKEN).post(JSON | BEARER).status_code == code
