"""What a browser, a probe, Prometheus and a script get from a worker, over a real connection."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import httpx
import msgspec
import plain_http
import pytest
from example_worker import ERROR, status_at
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.observing.metrics import Metrics
from worker.observing.status import Look, WorkerStatus


class Worker:
    """What the application is told, to be changed by a test."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.unhealthy: str | None = None
        self.unready: str | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.name: str | None = None

    def status(self) -> WorkerStatus:
        self.answers.wait(30)
        status = status_at(self.seconds, waiting=3)
        return status if self.name is None else msgspec.structs.replace(status, name=self.name)

    def look(self) -> Look:
        now = self.status()
        return Look(now, [(each.table, each.finished_records) for each in now.tables], standing=1)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def client(worker: Worker) -> Iterator[httpx.Client]:
    metrics = Metrics()
    metrics.attach(worker.look)
    app = build_app(worker.status, lambda: worker.unhealthy, lambda: worker.unready, metrics)
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=10) as client:
        yield client
    worker.answers.set()
    server.stop()


def test_the_status_is_the_workers_own_as_json(client: httpx.Client, worker: Worker) -> None:
    answer = client.get("/api/status")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert msgspec.json.decode(answer.content, type=WorkerStatus) == worker.status()


def test_a_text_that_is_no_unicode_does_not_hide_the_status(client: httpx.Client, worker: Worker) -> None:
    worker.name = "caf\udce9"
    answer = client.get("/api/status")
    assert answer.status_code == 200
    assert answer.json()["name"] == "caf?"


def test_the_status_has_every_promised_key(client: httpx.Client) -> None:
    found = client.get("/api/status").json()
    assert {"name", "state", "version", "uptime_seconds", "partitions", "lanes", "tables"} < set(found)
    assert {"topic", "partition", "position", "committed"} < set(found["partitions"][0])
    assert {"unfinished", "finished_ahead", "lag", "paused"} < set(found["partitions"][0])
    assert {"lane", "queued_records", "queued_bytes"} < set(found["lanes"][0])
    assert {"running_table", "running_seconds"} < set(found["lanes"][0])
    assert {"table", "lane", "finished_records", "failed_batches"} < set(found["tables"][0])
    assert {"state", "error", "delay_seconds"} < set(found["tables"][0])
    assert set(found["checkpoint"]) >= {"last_success", "last_error"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_probe_answers_200_while_there_is_no_reason_against_it(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.text) == (200, "ok\n")


def test_each_probe_answers_503_with_its_own_reason(client: httpx.Client, worker: Worker) -> None:
    worker.unready = "draining"
    assert client.get("/healthz").status_code == 200
    assert (client.get("/readyz").status_code, client.get("/readyz").text) == (503, "draining\n")
    worker.unready, worker.unhealthy = None, "lane-3 has made no progress for 61 s"
    answer = client.get("/healthz")
    assert (answer.status_code, answer.text) == (503, "lane-3 has made no progress for 61 s\n")
    assert client.get("/readyz").status_code == 200


def test_a_probe_does_not_wait_for_a_status_that_takes_long(client: httpx.Client, worker: Worker) -> None:
    worker.answers.clear()
    with pytest.raises(httpx.TimeoutException):
        client.get("/api/status", timeout=0.2)
    with pytest.raises(httpx.TimeoutException):
        client.get("/metrics", timeout=0.2)
    assert client.get("/healthz", timeout=30).status_code == 200


def test_prometheus_gets_its_text_format(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parse_text(answer.text)}
    finished = {each.labels["table"]: each.value for each in families["binlane_records_finished"].samples}
    assert finished["shop_00.orders"] == 90_000


def test_a_scraper_that_asks_for_openmetrics_gets_it(client: httpx.Client) -> None:
    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_openmetrics(answer.text)}  # type: ignore[no-untyped-call]  # the library's parser has no types
    assert families["binlane"].type == "info"
    assert families["binlane_handler_seconds"].type == "histogram"
    assert families["binlane_records_finished"].type == "counter"


def test_the_page_loads_nothing_from_elsewhere_and_runs_only_its_own_script(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.findall(r"""(?:src|href)=["'](?!api/|metrics|healthz|readyz|data:,|#)""", answer.text)
    assert "//" not in re.sub(r"(?m)//  ?.*$", "", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


def test_the_page_asks_for_keys_that_it_is_told(client: httpx.Client) -> None:
    script = client.get("/").text
    live, tables = client.get("/api/live").json(), client.get("/api/tables").json()
    used = set(re.findall(r"\b(?:now|before)\??\.(\w+)", script))
    used |= set(re.findall(r"\b(?:status|table|lane|item|trouble|answer)\.([a-z_]+)\b(?!\()", script))
    known = {*live, *live["status"], *live["lanes"][0], *live["partitions"][0], *live["troubles"][0]}
    known |= {*tables, *tables["tables"][0], *live["waiting"][0]}
    assert used - known <= _OF_THE_BROWSER
    assert {"tables", "lanes", "partitions", "checkpoint", "queued_records", "committed"} <= used


_OF_THE_BROWSER = {"children", "found", "ok", "status", "stuck"}
"""Of answers, or of objects that may be missing."""


def test_the_page_writes_foreign_text_as_text_only(client: httpx.Client) -> None:
    script = client.get("/").text
    assert "<b>" in ERROR  # what the example worker says would be markup if it were written as such
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_no_answer_leads_elsewhere(client: httpx.Client) -> None:
    """Behind a proxy a redirect would leave its prefix and its TLS."""
    answer = client.get("/api/status/")
    assert (answer.status_code, answer.headers.get("location")) == (404, None)


def test_the_head_of_the_events_is_no_stream(client: httpx.Client) -> None:
    assert client.head("/api/events").status_code == 200
    assert client.head("/api/events").headers["content-length"] == "0"


def test_an_unknown_address_is_a_404_and_a_post_a_405(client: httpx.Client) -> None:
    assert client.get("/nothing").status_code == 404
    assert client.post("/api/status").status_code == 405


def test_the_startup_probe_fails_until_the_worker_has_started() -> None:
    reasons: list[str | None] = ["starting: handler spark is being opened", None]
    app = build_app(Worker().status, lambda: None, lambda: None, Metrics(), lambda: reasons.pop(0))
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}/startupz"
    found = [plain_http.get(url) for _ in range(2)]
    server.stop()
    assert [(each.status_code, each.text) for each in found] == [
        (503, "starting: handler spark is being opened\n"),
        (200, "ok\n"),
    ]
