"""A service that answers 503 for a while: everything is sent, and other tables do not wait."""

from __future__ import annotations

import itertools
import time
from typing import Any

from integration.checkers import NothingLost
from integration.load import Load
from integration.process import eventually
from integration.stage import Stage
from servers.hook_server import Answer, HookServer, Received


def test_an_outage_loses_nothing_keeps_the_order_and_holds_up_no_other_table(stage: Stage) -> None:
    down = False
    asked: list[float] = []

    def answer(_: Received) -> Answer:
        if not down:
            return Answer()
        asked.append(time.monotonic())
        return Answer(503, {"Retry-After": "1"})

    with HookServer() as hook:
        hook.answer = answer
        # One attempt, then halt: only an outage that uses no attempts passes.
        tables: list[dict[str, Any]] = [
            {
                "match": "shop.t0",
                "handlers": [
                    {"type": "webhook", "url": hook.url, "signature": {"secret": "hunter22-hunter22"}}
                ],
                "retry": {"max_attempts": 1, "initial_delay": "20ms", "max_delay": "50ms"},
            },
            {"match": "shop.t1", "handlers": [stage.recording()]},
        ]
        source = stage.source()
        worker = stage.worker(tables=tables, batch={"max_records": 20}).start()
        with Load(source, tables=2):
            eventually(lambda: len(hook.received) > 3)
            down = True
            eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
            before = worker.table("shop.t1")["finished_records"]
            eventually(lambda: len(asked) >= 4)
            assert worker.table("shop.t1")["finished_records"] > before
            assert worker.healthy()
            down = False
        stage.wait_committed_to_the_end()
        assert worker.sigterm() == 0
    # The service asked for a second; less would be 20 to 50 ms.
    assert min(later - sooner for sooner, later in itertools.pairwise(asked)) > 0.9
    assert [seq for request in hook.received for seq in request.ids] == source.rows["shop.t0"]
    assert "hunter22" not in worker.log_text()
    stage.check(NothingLost({"shop.t1": source.rows["shop.t1"]}))
