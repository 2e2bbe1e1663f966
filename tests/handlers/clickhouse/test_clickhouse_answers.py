"""What a server answers, and what is done about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import ValidationError
from servers.clickhouse_server import ClickHouseServer
from servers.hook_server import Answer, HookServer
from servers.server_process import PASSWORD

from handlers import Batch, HandlerContext, TargetUnavailable
from handlers.clickhouse import ClickHouseHandler
from handlers.clickhouse.client import ClickHouseClient, ClickHouseOptions
from handlers.failures import UnfitPlace
from handlers.http.parts import Refused, RequestRefused
from handlers.options.faults import check_options
from handlers.testing import make_batch, opened
from handlers.versioned.versions import Unfit

CONTEXT = HandlerContext(worker="w", handler="h", folder=Path())


def batch(table: str = "t.t") -> Batch:
    return make_batch(table, [{"id": 1}], key="id", types={"id": "int"}, topic="cdc")


def answered(status: int, code: int | None, told: str = "") -> BaseException:
    """What the handler raises for an answer that repeats the password."""
    with HookServer() as server:
        headers = {} if code is None else {"X-ClickHouse-Exception-Code": str(code)}
        server.answer = lambda _: Answer(status, headers, f"Code: {code}. {told} {PASSWORD} (WHY)".encode())
        options = {"url": server.url, "username": "u", "password": PASSWORD}
        with opened(ClickHouseHandler(**options)) as it, pytest.raises(Exception, match="WHY") as found:
            it.handle(batch())
        assert all(PASSWORD not in request.path for request in [*server.received, *server.refused])
    assert PASSWORD not in str(found.value)
    return found.value


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *(
            (500, code)
            for code in (75, 86, 159, 173, 202, 209, 210, 241, 242, 243, 244, 252, 285, 319, 500, 999)
        ),
        (403, 516),
        *((status, None) for status in (302, 401, 404, 429, 502, 503)),
    ],
)
def test_what_passes_is_waited_for(status: int, code: int | None) -> None:
    error = answered(status, code)
    assert isinstance(error, TargetUnavailable)
    assert not error.others_go_on


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (1000, "File access error: no space left on device"),
        (1001, "filesystem error: in create_directories: No space left on device"),
        (1001, "filesystem error: in rename: Read-only file system"),
    ],
)
def test_a_disk_that_takes_nothing_is_waited_for(code: int, told: str) -> None:
    """Of a disk without room for more files, or that is read-only since it found an error."""
    error = answered(500, code, told)
    assert isinstance(error, TargetUnavailable)
    assert not error.others_go_on
    assert isinstance(answered(500, code, "bad function call"), RequestRefused)


@pytest.mark.parametrize(
    ("status", "code"), [(403, 497), (404, 60), *((500, code) for code in (47, 115, 158, 164, 452, 695, 724))]
)
def test_a_right_that_lacks_stops_only_the_table_that_needs_it(status: int, code: int) -> None:
    assert isinstance(answered(status, code), UnfitPlace)


@pytest.mark.parametrize("status", [400, 405, 414, 431])
def test_what_something_else_refuses_is_no_row_s_fault(status: int) -> None:
    """The columns of a wide table make a long URL: nginx takes 8 kB of it."""
    assert isinstance(answered(status, None), UnfitPlace)


def test_what_does_not_pass_is_a_fault() -> None:
    assert isinstance(answered(400, 62), RequestRefused)


@pytest.mark.parametrize("status", [200, 404])
def test_a_page_of_what_stands_before_the_server_is_no_answer(status: int) -> None:
    """An insert would be taken for done."""
    with HookServer() as server, opened(ClickHouseHandler(url=server.url)) as it:
        server.answer = lambda _: Answer(status, {"Content-Type": "text/html; charset=utf-8"}, b"<p>Soon</p>")
        with pytest.raises(TargetUnavailable, match="Soon"):
            it.handle(batch())


def test_a_wrong_password_is_waited_for(clickhouse: ClickHouseServer) -> None:
    wrong = ClickHouseHandler(**{**clickhouse.options, "password": "wrong-one"})
    with opened(wrong) as it, pytest.raises(TargetUnavailable, match="516") as found:
        it.handle(batch())
    assert "wrong-one" not in str(found.value)


def test_an_insert_is_there_when_it_is_told_so_and_is_never_taken_for_another() -> None:
    with HookServer() as server:
        server.answer = lambda _: Answer(200, {}, b"")
        with (
            opened(ClickHouseHandler(url=server.url)) as it,
            pytest.raises(Exception, match="disappears right after it is created"),
        ):
            it.handle(batch())
        asked = [parse_qs(urlsplit(request.path).query) for request in [*server.received, *server.refused]]
    wanted = {"async_insert": ["0"], "insert_deduplicate": ["0"], "wait_end_of_query": ["1"]}
    assert asked
    assert all(wanted.items() <= one.items() for one in asked)


def test_no_insert_is_taken_for_one_before() -> None:
    """From 26.2 on servers ask `deduplicate_insert`: who removed rows, and sent them again in an hour, had
    none."""
    with HookServer() as server:
        client = ClickHouseClient(ClickHouseOptions(url=server.url), Path(), 1)
        for _ in range(2):
            client.insert("INSERT INTO t (id) FORMAT RowBinary", b"", [b"1"])
        client.close()
        asked = [parse_qs(urlsplit(request.path).query) for request in server.received]
    first, second = (one["insert_deduplication_token"] for one in asked)
    assert first != second


def test_a_check_asks_for_the_version(clickhouse: ClickHouseServer) -> None:
    ClickHouseHandler(**clickhouse.options).check(CONTEXT)


@pytest.mark.parametrize(("told", "why"), [("23.3.1.1", "23.8 or later"), ("hello", "not ClickHouse")])
def test_a_server_that_is_none_or_too_old_is_told_so(told: str, why: str) -> None:
    with HookServer() as server:
        server.answer = lambda _: Answer(200, {}, told.encode())
        with pytest.raises(Unfit, match=why):
            ClickHouseHandler(url=server.url).check(CONTEXT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://u:p@h:1"},
        {"url": "tcp://h:9000"},
        {"username": "u"},
        {"password": "p\nq", "username": "u"},
        {"table": "rows"},
        {"database": "{id}"},
        {"passwort": "x"},
    ],
)
def test_options_that_cannot_be_meant_are_faults(wrong: dict[str, Any]) -> None:
    assert len(check_options(ClickHouseHandler, {"url": "http://h:8123", **wrong})) == 1


def test_settings_go_with_each_request_and_never_replace_our_own() -> None:
    with pytest.raises(ValidationError, match="async_insert cannot be set"):
        ClickHouseOptions(url="http://127.0.0.1:1", settings={"async_insert": 1})
    asked = {"insert_quorum": "auto", "select_sequential_consistency": 1}
    with HookServer() as server:
        client = ClickHouseClient(ClickHouseOptions(url=server.url, settings=asked), Path(), 1)
        client.query("SELECT 1")
        client.close()
        (request,) = server.received
    assert "insert_quorum=auto&select_sequential_consistency=1" in request.path


@pytest.mark.parametrize("kind", ["text/html", "text/plain"])
def test_a_proxy_that_takes_no_request_of_this_size_has_the_rows_sent_by_halves(kind: str) -> None:
    page = Answer(413, {"Content-Type": kind}, b"<html>Request Entity Too Large</html>")
    with HookServer() as server:
        server.answer = lambda _: page
        client = ClickHouseClient(ClickHouseOptions(url=server.url), Path(), 1)
        with pytest.raises(Refused, match="413"):
            client.insert("INSERT INTO t (id) FORMAT RowBinary", b"", [b"1"])
        client.close()


def test_a_secret_is_not_told_in_part_where_an_answer_is_cut() -> None:
    with HookServer() as server:
        server.answer = lambda _: Answer(400, {}, b"x" * 395 + PASSWORD.encode() + b"y" * 100)
        options = ClickHouseOptions(url=server.url, username="u", password=PASSWORD)
        client = ClickHouseClient(options, Path(), 1)
        with pytest.raises(UnfitPlace) as found:
            client.query("SELECT 1")
        client.close()
    assert PASSWORD[:4] not in str(found.value)


def test_the_time_that_a_balancer_asks_to_wait_is_passed_on() -> None:
    with HookServer() as server:
        server.answer = lambda _: Answer(503, {"Retry-After": "7"})
        with opened(ClickHouseHandler(url=server.url)) as it, pytest.raises(TargetUnavailable) as found:
            it.handle(batch())
    assert found.value.retry_after == 7
