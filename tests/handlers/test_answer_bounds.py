"""Answers of targets that are larger, or come more slowly, than any that they should give."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from threading import Event, Thread
from typing import Any

import pytest
from servers.hook_server import Answer, HookServer

from handlers import TargetUnavailable
from handlers.elasticsearch.client import ElasticsearchOptions, Item, SearchClient, write
from handlers.http import client
from handlers.http.client import AnswerTooLarge, HttpClient
from handlers.testing import make_batch
from handlers.versioned.row_states import State, last_states, with_held_rows
from worker.local.broker_settings import HOST


@contextmanager
def dripping() -> Iterator[str]:
    """The URL of a server whose answers take 4 s, and come by the byte."""
    stopped = Event()

    class Drips(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            for _ in range(200):
                self.wfile.write(b" ")
                if stopped.wait(0.02):
                    break

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer((HOST, 0), Drips) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, name="dripping", daemon=True)
        thread.start()
        yield f"http://{HOST}:{server.server_address[1]}"
        stopped.set()
        server.shutdown()
        thread.join()


def test_an_answer_that_comes_by_the_byte_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MOST_SECONDS", 0.3)
    with dripping() as url:
        asked = HttpClient(url, False, timeout=0.2)
        with pytest.raises(TargetUnavailable, match="took more than 0 s"):
            asked.request("GET", url)
        asked.close()


def test_an_answer_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MOST_BYTES", 1 << 20)
    with HookServer() as hook:
        hook.answer = lambda _: Answer(200, body=bytes((1 << 20) + 1))
        asked = HttpClient(hook.url, False, timeout=10)
        with pytest.raises(AnswerTooLarge, match="more than 1 MiB"):
            asked.request("POST", hook.url)
        asked.close()


def test_the_answer_to_a_bulk_request_takes_little_more_memory_than_its_text(tmp_path: Any) -> None:
    told = {
        **{"_index": "shop.orders", "_id": "1234567", "_version": 1 << 50, "result": "created"},
        **{"_shards": {"total": 2, "successful": 1, "failed": 0}, "_seq_no": 7_000_000, "status": 201},
    }
    items = [Item(id=str(number), version=1, at=number, document=None) for number in range(20_000)]
    body = json.dumps({"took": 7, "errors": False, "items": [{"index": told}] * len(items)}).encode()
    with HookServer() as hook:
        hook.answer = lambda _: Answer(200, body=body)
        search = SearchClient(ElasticsearchOptions(url=hook.url), tmp_path, 1)
        tracemalloc.start()
        try:
            assert write(search, "/shop.orders", items, 8 << 20) == []
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            search.close()
    assert peak < 5 * len(body)


def test_a_row_alone_that_is_larger_than_any_answer_ends_the_look_at_it() -> None:
    def read(some: Sequence[State], is_bounded: bool) -> Mapping[str, None]:
        if some:
            raise AnswerTooLarge("too large")
        return {}

    updates = [{"before": {"id": number}, "after": {"id": number}} for number in range(3)]
    batch = make_batch("shop.orders", updates, key="id", types={"id": "int", "name": "text"})
    states = last_states(batch, lambda _: 1, lambda row, _: str(row["id"]), range(3))
    with pytest.raises(AnswerTooLarge):
        list(islice(with_held_rows(states, read), 5))
