"""A Redis that restarts in mid-run: everything is applied, and other tables do not wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from integration.checkers import NothingLost
from integration.load import Load
from integration.process import eventually
from integration.stage import Stage
from servers.redis_node import RedisNode
from servers.server_process import PASSWORD


def test_a_restart_in_mid_run_loses_nothing_and_holds_up_no_other_table(
    stage: Stage, own_redis: Callable[[], RedisNode]
) -> None:
    server = own_redis()
    tables: list[dict[str, Any]] = [
        {
            "match": "shop.t0",
            "handlers": [{"type": "redis", "url": server.url, "timeout": "2s"}],
            "retry": {"max_attempts": 1, "initial_delay": "50ms", "max_delay": "200ms"},
        },
        {"match": "shop.t1", "handlers": [stage.recording()]},
    ]
    source = stage.source()
    worker = stage.worker(tables=tables, batch={"max_records": 50}).start()
    with redis.Redis.from_url(server.url) as client:
        with Load(source, tables=2):
            eventually(lambda: client.dbsize() > 20)
            server.kill()
            eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
            before = worker.table("shop.t1")["finished_records"]
            eventually(lambda: worker.table("shop.t1")["finished_records"] > before + 20)
            assert worker.healthy()
            server.start()
            eventually(lambda: worker.table("shop.t0").get("state") != "blocked")
        stage.wait_committed_to_the_end()
        assert worker.sigterm() == 0
        expected = {f"shop:t0:{seq}".encode() for seq in source.rows["shop.t0"]}
        assert set(client.keys()) == expected
    assert PASSWORD not in worker.log_text()
    stage.check(NothingLost({"shop.t1": source.rows["shop.t1"]}))
