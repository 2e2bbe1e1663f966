"""Redis, PostgreSQL and an HTTP service fail in one run: each is waited for, and nothing else waits."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
import redis
from integration.conftest import MakeStage
from integration.delays import Outage, Report, read_report, too_late
from integration.process import WorkerProcess, eventually
from integration.steady import Steady
from servers.hook_server import Answer, HookServer
from servers.postgres_server import PostgresServer
from servers.redis_node import RedisNode
from servers.server_process import PASSWORD

WITHIN = 2.0
"""Seconds from the source to the target. A table that waits for no more than a batch takes 0.02 s, 0.2 s at
worst: 25 records a second make batches of a few records. One that waited for another's target would take up
to SHORTEST and more; in between there is room for a machine that is busy."""
SHORTEST = 6.0
"""Seconds of the shortest outage."""
RECOVERY = 1.0
"""Nobody waits longer before a target is asked again: `max_delay`, or a second while another one asks."""

KEYED = ("sql_orders", "redis_carts", "redis_stock", "web_mails", "web_visits", "files_clicks", "files_views")
APPENDED = ("sql_log",)


# Each target alone: test_target_down.py, test_webhook_outage.py.
@pytest.mark.soak
def test_each_target_is_waited_for_and_no_other_table_waits(
    make_stage: MakeStage,
    own_postgres: Callable[[], PostgresServer],
    own_redis: Callable[[], RedisNode],
) -> None:
    stage = make_stage(3)
    postgres, node, is_down = own_postgres(), own_redis(), Event()
    source = Steady(stage.source(), keyed=KEYED, appended=APPENDED, rate=200)
    with HookServer() as hook:
        hook.answer = lambda _: Answer(503 if is_down.is_set() else 200)
        # Two lanes for eight tables: a thread that waited for a target would hold up tables of all groups.
        worker = stage.worker(
            tables=tables(postgres.url, node.url, hook.url), lanes={"count": 2}, batch={"max_records": 100}
        ).start()
        with source:
            outages = disturb(worker, postgres, node, is_down)
            until(time.time() + 4)
        stage.wait_committed_to_the_end()
        assert worker.status()["state"] == "running"
        assert worker.sigterm() == 0
    assert {line["handler"] for line in worker.logged("target_down")} == {"sql", "redis", "webhook"}
    assert PASSWORD not in worker.log_text()

    report = read_report(worker.folder / "handled.jsonl")
    judge_times(report, outages, source.stood_still)
    assert report.attempts == {1}
    assert report.counts() == source.sent
    judge_postgres(postgres, source)
    judge_redis(node, source)
    judge_webhook(hook, source)
    judge_files(worker.folder / "files", source)


def tables(postgres: str, node: str, hook: str) -> list[dict[str, Any]]:
    """One attempt, then halt: only outages that use no attempts are survived."""
    retry = {"max_attempts": 1, "initial_delay": "100ms", "max_delay": "500ms"}
    handlers: dict[str, dict[str, Any]] = {
        "sql": {"type": "timed:TimedSql", "url": postgres, "without_key": "append"},
        "redis": {"type": "timed:TimedRedis", "url": node},
        "web": {"type": "timed:TimedWebhook", "name": "webhook", "url": hook},
        "files": {"type": "timed:TimedFiles", "directory": "files"},
    }
    return [
        {"match": f"shop.{group}_*", "handlers": [{"name": group, **handler}], "retry": retry}
        for group, handler in handlers.items()
    ]


def disturb(
    worker: WorkerProcess, postgres: PostgresServer, node: RedisNode, webhook_is_down: Event
) -> list[Outage]:
    """20 s of a webhook that answers 503, and in these Redis and PostgreSQL killed, one after the other."""
    begin = time.time()
    until(begin + 3)
    webhook_begin = time.time()
    webhook_is_down.set()
    until(begin + 5)
    redis_begin = time.time()
    node.kill()
    meet(worker, {"redis", "webhook"}, ["redis_carts", "redis_stock", "web_mails", "web_visits"])
    until(redis_begin + SHORTEST)
    node.start()
    redis_end = time.time()
    meet(worker, {"webhook"}, ["web_mails", "web_visits"])
    postgres_begin = time.time()
    postgres.kill()
    meet(worker, {"sql", "webhook"}, ["sql_orders", "sql_log", "web_mails", "web_visits"])
    until(postgres_begin + SHORTEST)
    postgres.start()
    postgres_end = time.time()
    meet(worker, {"webhook"}, ["web_mails", "web_visits"])
    until(webhook_begin + 20)
    webhook_is_down.clear()
    webhook_end = time.time()
    meet(worker, set(), [])
    return [
        Outage("webhook", webhook_begin, webhook_end),
        Outage("redis", redis_begin, redis_end),
        Outage("sql", postgres_begin, postgres_end),
    ]


def until(moment: float) -> None:
    """Seconds since 1970."""
    time.sleep(max(0.0, moment - time.time()))


def meet(worker: WorkerProcess, handlers: set[str], blocked: list[str]) -> None:
    """Wait until these targets are known to be down and these tables to wait for them, and no others."""

    def met() -> bool:
        status = worker.status()
        down = {target["handler"] for target in status["targets"] if not target["up"]}
        waiting = {table["table"] for table in status["tables"] if table["state"] == "blocked"}
        return down == handlers and waiting == {f"shop.{table}" for table in blocked}

    eventually(met, within=SHORTEST, what=f"{sorted(handlers)} down, {blocked} blocked")
    assert worker.healthy()


def judge_times(report: Report, outages: list[Outage], stood_still: float) -> None:
    """`stood_still`: how long the machine was seen to do nothing at all, which no worker can help."""
    for outage in outages:
        longest = max(one.delay for one in report.handled if one.handler == outage.handler)
        assert longest > outage.end - outage.begin - 1, f"{outage} was no outage: {longest:.3f} s"
    shown = [one.delay for one in report.handled if one.handler == "files"]
    print(f"the bystander's delays: {sorted(shown)[len(shown) // 2]:.3f} s, at most {max(shown):.3f} s")
    late = too_late(report.handled, outages, within=WITHIN + stood_still, recovery=RECOVERY)
    assert not late, "\n".join(
        [f"{len(late)} changes; the machine stood still for {stood_still:.3f} s", *late[:9]]
    )


def judge_postgres(postgres: PostgresServer, source: Steady) -> None:
    with psycopg.connect(postgres.url.replace("+psycopg", "")) as connection:
        orders = connection.execute("SELECT id, seq FROM shop.sql_orders ORDER BY id").fetchall()
        log = connection.execute("SELECT id, seq FROM shop.sql_log ORDER BY id").fetchall()
    assert orders == sorted(source.rows["shop.sql_orders"].items())
    # Without a key: what was applied twice would be there twice.
    assert log == [(number, number) for number in range(source.sent["shop.sql_log"])]


def judge_redis(node: RedisNode, source: Steady) -> None:
    with redis.Redis.from_url(node.url, decode_responses=True) as client:
        found = {key: client.hgetall(key) for key in client.scan_iter()}
    expected = {
        f"shop:{table}:{row}": {"id": str(row), "seq": str(seq), "name": f"row {row} of {table}"}
        for table in ("redis_carts", "redis_stock")
        for row, seq in source.rows[f"shop.{table}"].items()
    }
    assert found == expected


def judge_webhook(hook: HookServer, source: Steady) -> None:
    assert hook.refused, "it answered 503 to nobody"
    changes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for request in hook.received:
        changes[request.json["table"]] += request.json["changes"]
    assert changes.keys() == {"shop.web_mails", "shop.web_visits"}
    for table, came in changes.items():
        offsets = [change["offset"] for change in came]
        every = sorted(set(offsets))
        assert len(every) == source.sent[table]
        place = {offset: number for number, offset in enumerate(every)}
        # A suffix may come again, in order: nothing jumps ahead.
        last = -1
        for offset in offsets:
            assert place[offset] <= last + 1, f"{table}: offset {offset} came after {every[last]}"
            last = place[offset]
        assert replayed(came) == source.rows[table]


def judge_files(folder: Path, source: Steady) -> None:
    for table in ("files_clicks", "files_views"):
        files = sorted((folder / "shop" / table).glob("*.jsonl"))
        came = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        offsets = [change["offset"] for change in came]
        assert offsets == sorted(set(offsets)), f"{table}: twice, or out of order"
        assert len(offsets) == source.sent[f"shop.{table}"]
        assert replayed(came) == source.rows[f"shop.{table}"]


def replayed(changes: list[dict[str, Any]]) -> dict[int, int]:
    """The rows that the changes leave: id -> seq."""
    rows: dict[int, int] = {}
    for change in changes:
        if change["after"] is None:
            rows.pop(change["before"]["id"], None)
        else:
            rows[change["after"]["id"]] = change["after"]["seq"]
    return rows
