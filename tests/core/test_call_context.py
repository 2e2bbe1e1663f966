"""What a log line of a handler's call tells of the call, whoever writes it."""

from __future__ import annotations

import contextvars
import io
import json
import logging
import threading
from typing import Any

from building import Scripted, unit
from processing import NOW, Stage

from handlers import Batch
from handlers.logs import get_logger
from worker.observing import logs


def test_lines_of_a_call_say_whose_they_are() -> None:
    def chatty(name: str) -> Scripted:
        def script(batch: Batch) -> None:
            get_logger(name).info("by_structlog", own=1, attempt="mine")
            logging.getLogger(name).warning("by a library")
            thread = threading.Thread(
                target=contextvars.copy_context().run, args=(get_logger(name).info, "by_its_thread")
            )
            thread.start()
            thread.join()
            if batch.attempt == 1:
                raise ValueError("once more")

        return Scripted(script)

    stream = io.StringIO()
    logs.configure("info", "json", stream)
    stage = Stage()
    stage.calls._worker = "shop"
    table = unit("orders", chatty("one"), chatty("two"), retry={"max_attempts": 3, **NOW})
    other = unit("items", Scripted(lambda _: get_logger("three").info("alone")))
    stage.offer((table, [0, 1]), (other, [2]))
    stage.run(table, other)
    get_logger("main").info("outside")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]

    def of(event: str) -> list[dict[str, Any]]:
        return [line for line in lines if line["event"] == event]

    for event in ("by a library", "by_its_thread"):
        found = {(line["logger"], line["table"], line["handler"], line["attempt"]) for line in of(event)}
        assert {(logger, attempt) for logger, _, _, attempt in found} == {
            (logger, attempt) for logger in ("one", "two") for attempt in (1, 2)
        }
        assert {table for _, table, _, _ in found} == {"shop.orders"}
        assert len({(logger, handler) for logger, _, handler, _ in found}) == 2, "each line has its handler"
        assert {(line["worker"], line["lane"]) for line in of(event)} == {("shop", 0)}
    assert {line["attempt"] for line in of("by_structlog")} == {"mine"}, "its own fields come first"
    [alone] = of("alone")
    assert (alone["table"], alone["attempt"]) == ("shop.items", 1)
    [outside] = of("outside")
    assert not {"table", "handler", "attempt", "worker"} & outside.keys()
    assert all("attempt" in line for line in of("batch_failed"))
