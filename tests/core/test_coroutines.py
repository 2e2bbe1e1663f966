"""Handlers with coroutines: in order, retried, split and stopped as others are, and all on one event loop."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from functools import cache
from typing import Any

import pytest
from building import Scripted, unit
from processing import NOW, Stage
from structlog.testing import capture_logs
from test_stuck_heads import Watch

from handlers import (
    Batch,
    Handler,
    HandlerContext,
    PartialFailure,
    Rejected,
    StopWorker,
    TargetUnavailable,
    coroutines,
)
from handlers.coroutines import BLOCKED_SECONDS, EventLoop, awaited
from handlers.logs import get_logger
from handlers.testing import make_batch, opened
from offsets.types import Checkpoint
from worker.observing import logs


class Scripting(Handler):
    """Notes each call's table, attempt and offsets, and awaits what `script` does with it."""

    def __init__(self, script: Callable[[Batch], Awaitable[object]] | None = None) -> None:
        self.script = script
        self.calls: list[tuple[str, int, list[int]]] = []
        self.inside: Counter[str] = Counter()
        self.most = 0

    async def handle(self, batch: Batch) -> None:
        self.calls.append((batch.name, batch.attempt, [change.offset for change in batch.changes]))
        self.inside[batch.name] += 1
        assert self.inside[batch.name] == 1, "one batch of a table at once"
        self.most = max(self.most, self.inside.total())
        try:
            if self.script is not None:
                await self.script(batch)
        finally:
            self.inside[batch.name] -= 1

    def offsets(self, table: str) -> list[int]:
        return [offset for name, _, offsets in self.calls if name == table for offset in offsets]


def once(errors: dict[int, BaseException]) -> Callable[[Batch], Awaitable[object]]:
    """Raise the error of this attempt."""

    async def script(batch: Batch) -> None:
        await asyncio.sleep(0)
        if (error := errors.get(batch.attempt)) is not None:
            raise error

    return script


def test_the_batches_of_many_tables_wait_at_once_and_each_tables_in_order() -> None:
    handler = Scripting(lambda _: asyncio.sleep(0.2))
    stage = Stage(100)
    tables = [unit(f"t{n}", awaited(handler), lane=n, batch={"max_records": 2}) for n in range(100)]
    stage.offer(*((table, range(n * 4, n * 4 + 4)) for n, table in enumerate(tables)))
    began = time.monotonic()
    stage.run(*tables)
    assert time.monotonic() - began < 4.0, "two batches of 0.2 s after another, not 200"
    assert handler.most > 50
    for n in range(100):
        assert handler.offsets(f"t{n}") == list(range(n * 4, n * 4 + 4))
    assert stage.checkpoint() == Checkpoint(400)


@pytest.mark.parametrize("handlers", [1, 2])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError("off")])
def test_whatever_a_coroutine_raises_fails_its_batch_and_no_other(handlers: int, error: Any) -> None:
    failing, calm = Scripting(once({1: error})), Scripting()
    stage = Stage(2)
    orders = unit("orders", *(awaited(each) for each in (failing, Scripting())[:handlers]), retry=NOW)
    items = unit("items", awaited(calm), lane=1)
    stage.offer((orders, [0, 1]), (items, [2, 3]))
    stage.run(orders, items)
    assert failing.calls == [("orders", 1, [0, 1]), ("orders", 2, [0, 1])]
    assert calm.calls == [("items", 1, [2, 3])]
    assert not stage.errors
    assert stage.checkpoint() == Checkpoint(4)


def test_a_task_that_ends_the_process_ends_no_other_call() -> None:
    async def leaves(batch: Batch) -> None:
        async def leave() -> None:
            raise SystemExit(1)

        await asyncio.gather(leave(), asyncio.sleep(0.05))

    failing, slow = Scripting(leaves), Scripting(lambda _: asyncio.sleep(0.3))
    stage = Stage(2)
    orders = unit("orders", awaited(failing), retry={"max_attempts": 2, **NOW}, on_failure="skip")
    items = unit("items", awaited(slow), lane=1)
    stage.offer((orders, [0]), (items, [1]))
    stage.run(orders, items)
    assert slow.calls == [("items", 1, [1])]
    assert stage.checkpoint() == Checkpoint(2)


def test_answers_of_coroutines_mean_what_they_mean_for_threads() -> None:
    partial = Scripting(once({1: PartialFailure(2, ValueError("the rest"))}))
    table = unit("orders", awaited(partial), retry=NOW)
    stage = Stage()
    stage.offer((table, range(4)))
    stage.run(table)
    assert partial.calls[0] == ("orders", 1, [0, 1, 2, 3])
    assert partial.calls[1][2] == [2, 3]

    async def refuses(batch: Batch) -> None:
        for place, change in enumerate(batch.changes):
            if change.offset == 2:
                raise Rejected("never", at=place)

    rejecting = Scripting(refuses)
    table = unit("orders", awaited(rejecting), on_failure="skip")
    stage = Stage()
    stage.offer((table, range(4)))
    stage.run(table)
    assert stage.checkpoint() == Checkpoint(4)
    assert rejecting.calls[-1][2] == [3]

    away = Scripting(once({1: TargetUnavailable("down", retry_after=0.01)}))
    calls: list[int] = []

    async def back(batch: Batch) -> None:
        calls.append(batch.attempt)
        if len(calls) == 1:
            raise TargetUnavailable("down", retry_after=0.01)

    away.script = back
    table = unit("orders", awaited(away), retry=NOW)
    stage = Stage()
    stage.offer((table, range(2)))
    stage.run(table)
    assert calls == [1, 1], "no attempt is used up"

    stopping = Scripting(once({1: StopWorker("gone")}))
    table = unit("orders", awaited(stopping))
    stage = Stage()
    stage.offer((table, range(2)))
    stage.run(table)
    assert [str(each) for each in stage.errors] == ["gone"]
    assert stage.checkpoint() == Checkpoint(0)


def test_a_change_that_fails_is_split_from_the_others() -> None:
    async def fails(batch: Batch) -> None:
        await asyncio.sleep(0)
        if any(change.offset == 5 for change in batch.changes):
            raise ValueError("five")

    handler = Scripting(fails)
    table = unit("orders", awaited(handler), retry={"max_attempts": 2, **NOW}, on_failure="skip")
    stage = Stage()
    stage.offer((table, range(8)))
    stage.run(table)
    assert stage.checkpoint() == Checkpoint(8)
    done = [offsets for _, _, offsets in handler.calls if 5 not in offsets]
    assert sorted(offset for offsets in done for offset in offsets) == [0, 1, 2, 3, 4, 6, 7]


def test_lines_of_a_coroutine_and_of_its_tasks_say_whose_they_are() -> None:
    own: ContextVar[str] = ContextVar("own", default="")

    async def chatty(batch: Batch) -> None:
        assert own.get() == ""
        own.set(batch.name)

        async def child() -> None:
            get_logger("chatty").info("by_its_task", own=own.get())

        get_logger("chatty").info("by_itself")
        await asyncio.gather(child(), asyncio.to_thread(get_logger("chatty").info, "by_its_thread"))

    stream = io.StringIO()
    logs.configure("info", "json", stream)
    stage = Stage(2)
    handler = awaited(Scripting(chatty))
    tables = [unit(name, handler, lane=lane) for lane, name in enumerate(("orders", "items"))]
    stage.offer((tables[0], [0]), (tables[1], [1]))
    stage.run(*tables)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    for event in ("by_itself", "by_its_task", "by_its_thread"):
        found = {(line["table"], line["handler"]) for line in lines if line["event"] == event}
        assert found == {("shop.orders", "h0"), ("shop.items", "h0")}
    assert {line["own"] for line in lines if line["event"] == "by_its_task"} == {"orders", "items"}


def test_a_stuck_head_is_told_with_the_stacks_of_its_coroutine_and_its_tasks() -> None:
    go_on, inside = threading.Event(), threading.Event()

    async def waits_for_the_target() -> None:
        inside.set()
        while not go_on.is_set():
            await asyncio.sleep(0.01)

    async def of_a_task() -> None:
        await waits_for_the_target()

    async def awaits_a_task(batch: Batch) -> None:
        if batch.name == "orders":
            await asyncio.gather(of_a_task())

    stage = Stage(2)
    handler = awaited(Scripting(awaits_a_task))
    orders, items = unit("orders", handler), unit("items", handler, lane=1)
    stage.start()
    stage.offer((orders, [0]), (items, [1]))
    assert inside.wait(10)
    stage.wait(lambda: items.at_rest)
    watch = Watch(stage, orders, items)
    [log] = watch.wait()
    go_on.set()
    stage.wait(lambda: orders.at_rest)
    stage.stop()
    assert (log["event"], log["table"], log["state"]) == ("head_stuck", "shop.orders", "running")
    stack = log["stack_of_handler"]
    assert stack.index("in awaits_a_task")
    assert stack.index("in of_a_task") < stack.index("in waits_for_the_target")


@pytest.mark.parametrize("by", ["itself", "its task"])
def test_a_handler_that_blocks_the_loop_is_named_with_its_table_and_stack(by: str) -> None:
    async def blocks_the_loop() -> None:
        time.sleep(BLOCKED_SECONDS * 2.5)

    async def script(batch: Batch) -> None:
        if batch.name == "orders":
            await (blocks_the_loop() if by == "itself" else asyncio.gather(blocks_the_loop()))
        else:
            await asyncio.sleep(0.01)

    stage = Stage(2)
    own = awaited(Scripting(script))
    own.open(HandlerContext(worker="w", handler="mirror", folder=None))  # type: ignore[arg-type]
    orders, items = unit("orders", own), unit("items", own, lane=1)
    stage.offer((orders, [0]), (items, [1]))
    with capture_logs() as lines:
        stage.run(orders, items)
    found = [line for line in lines if line["event"] == "event_loop_blocked"]
    assert [line["table"] for line in found] == ["shop.orders"] * 2, "again at every doubling"
    assert [line["seconds"] >= BLOCKED_SECONDS * n for line, n in zip(found, (1, 2), strict=True)]
    assert {(line["handler"], line["log_level"]) for line in found} == {("mirror", "warning")}
    assert all("in blocks_the_loop" in line["stack_of_handler"] for line in found)


def test_a_loop_that_only_waits_is_not_blocked() -> None:
    stage = Stage()
    table = unit("orders", awaited(Scripting(lambda _: asyncio.sleep(BLOCKED_SECONDS * 1.5))))
    stage.offer((table, [0]))
    with capture_logs() as lines:
        stage.run(table)
    assert [line for line in lines if line["event"] == "event_loop_blocked"] == []


@pytest.mark.parametrize("ends", ["cancelled", "as if it was done"])
def test_cancelled_calls_leave_their_batches_unfinished(ends: str) -> None:
    cleaned: list[str] = []
    inside = threading.Semaphore(0)

    async def waits(batch: Batch) -> None:
        inside.release()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if ends == "cancelled":
                raise
        finally:
            await asyncio.sleep(0)
            cleaned.append(batch.name)

    own, stage = awaited(Scripting(waits)), Stage(2)
    orders, items = unit("orders", own, retry=NOW, on_failure="skip"), unit("items", own, lane=1)
    stage.start()
    stage.offer((orders, [0]), (items, [1]))
    assert inside.acquire(timeout=10)
    assert inside.acquire(timeout=10)
    for processor in stage.processors:
        processor.call_off()
    stage.lanes.stop()
    assert stage.calls.cancel("the time is over")
    for processor in stage.processors:
        processor.join(10)
        assert not processor.is_alive()
    assert sorted(cleaned) == ["items", "orders"]
    assert "the time is over" in str(orders.error)
    assert not orders.at_rest
    assert stage.checkpoint() == Checkpoint(0)


class Client(Handler):
    """Everything on the loop where it was opened."""

    def __init__(self) -> None:
        self.loops: list[tuple[str, asyncio.AbstractEventLoop]] = []

    def _note(self, what: str) -> None:
        self.loops.append((what, asyncio.get_running_loop()))

    async def open(self, context: HandlerContext) -> None:
        self._note(f"open {context.handler}")

    async def handle(self, batch: Batch) -> None:
        self._note("handle")

    async def release(self, partitions: Collection[tuple[str, int]]) -> None:
        self._note(f"release {list(partitions)}")

    async def close(self) -> None:
        self._note("close")

    async def check(self, context: HandlerContext) -> None:
        self._note("check")

    def status(self) -> dict[str, Any]:
        return {"calls": len(self.loops)}


class Bare(Handler):
    """Only `handle` is a coroutine."""

    per_lane = True
    close_timeout = 7.0

    def __init__(self) -> None:
        self.opened = False

    def open(self, context: HandlerContext) -> None:
        self.opened = True

    async def handle(self, batch: Batch) -> None:
        assert self.opened


def test_all_its_methods_run_on_one_loop() -> None:
    own = Client()
    with opened(own) as client:
        client.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
        client.release([("t", 1)])
        client.check(HandlerContext(worker="w", handler="h", folder=None))  # type: ignore[arg-type]
        assert client.status() == {"calls": 4}
    assert [what for what, _ in own.loops] == [
        "open Client",
        "handle",
        "release [('t', 1)]",
        "check",
        "close",
    ]
    assert len({id(loop) for _, loop in own.loops}) == 1


def test_threads_that_begin_together_have_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[EventLoop] = []

    def slowly() -> EventLoop:
        made.append(EventLoop())
        time.sleep(0.05)
        return made[-1]

    monkeypatch.setattr(coroutines, "_made", cache(slowly))
    own = Client()
    threads = [threading.Thread(target=awaited(own).close) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(own.loops) == 5
    assert len(made) == len({id(loop) for _, loop in own.loops}) == 1


def test_what_stands_for_it_is_as_it_is() -> None:
    with opened(Bare()) as bare:
        bare.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
        assert bare.close_timeout == 7.0
        assert bare.per_lane
        assert type(bare).release is Handler.release, "the worker asks for none"
        assert type(bare).status is Handler.status


def test_a_handler_without_coroutines_stands_for_itself() -> None:
    scripted = Scripted()
    assert awaited(scripted) is scripted
