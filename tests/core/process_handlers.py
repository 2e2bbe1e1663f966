"""Handlers that child processes import: they write what they get, and do as their options say."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from handlers import (
    Batch,
    Change,
    Handler,
    HandlerContext,
    PartialFailure,
    Rejected,
    StopWorker,
    TargetUnavailable,
)
from handlers.logs import get_logger
from handlers.rows import on_rows
from worker.formats.canal.format import Canal

log = get_logger("process_handlers")


class OwnError(Exception):
    """With a constructor that pickle could not call."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class Writing(Handler):
    """Writes a line for each call. `does`: id of a row -> what happens before it is written."""

    def __init__(self, file: str, does: Mapping[str, str] | None = None, once: str = "") -> None:
        """`once`: a file that the first one to do something removes. Afterwards nothing happens."""
        self._file = Path(file)
        self._does = does or {}
        self._once = Path(once) if once else None
        self._context: HandlerContext | None = None

    def open(self, context: HandlerContext) -> None:
        self._context = context
        self._note(event="open", handler=context.handler, lane=context.lane)

    def handle(self, batch: Batch) -> None:
        ids = [None if change.after is None else int(change.after["id"]) for change in batch.changes]
        for place, number in enumerate(ids):
            what = self._does.get(str(number))
            if what is not None and self._may():
                self._do(what, place)
        types = dict(batch.changes[0].types or {})
        self._note(event="handle", table=batch.table, attempt=batch.attempt, ids=ids, types=types)

    def release(self, partitions: Any) -> None:
        self._note(event="release", partitions=sorted(partitions))

    def status(self) -> Mapping[str, Any]:
        return {"pid": os.getpid()}

    def close(self) -> None:
        self._note(event="close")

    def _may(self) -> bool:
        if self._once is None:
            return True
        try:
            self._once.unlink()
        except FileNotFoundError:
            return False
        return True

    def _do(self, what: str, place: int) -> None:
        assert self._context is not None
        match what:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(10)
            case "crash":
                ctypes.string_at(0)
            case "exit":
                os._exit(137)
            case "fail":
                raise OwnError("never", "ever")
            case "reject":
                raise Rejected("no", at=place)
            case "part":
                raise PartialFailure(place, ValueError("the rest"))
            case "down":
                raise TargetUnavailable("down", retry_after=0.0)
            case "stop":
                raise StopWorker("gone")
            case "told":
                self._context.stop_worker(StopWorker("told"))  # type: ignore[misc]
            case "log":
                log.warning("seen", place=place)
                self._context.metrics.count("binlane_handler_passed_over_total", 3, handler="h")
            case "log more":
                for number in range(5_000):
                    log.info("more", number=number, text="x" * 200)
            case "log what cannot be made again":
                log.warning("odd", error=OwnError("never", "ever"), number=2**70)
            case "log with wrong arguments":
                logging.getLogger("a_library").warning("%d rows", "many")
            case "environment":
                self._note(event="environment", value=os.environ.get("OF_THE_WORKER"))
            case "ask which tables it handles":
                assert self._context.handles is not None
                self._note(event="handles", items=self._context.handles("shop.items"))
            case "sleep":
                time.sleep(0.5)
            case "wait for the file":
                while self._once is not None and not self._once.exists():
                    time.sleep(0.01)
            case "hang":
                _hang()
            case "fork":
                if os.fork() == 0:
                    time.sleep(25)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            case "limit sockets":
                socket.setdefaulttimeout(0.2)
            case "fork and exit":
                if os.fork() == 0:
                    sys.exit(0)
                time.sleep(1.0)
            case "fork and log":
                for _ in range(3):
                    if os.fork() == 0:
                        for number in range(300):
                            log.info("of a copy", number=number, text="x" * 50_000)
                        os._exit(0)
                for number in range(300):
                    log.info("own", number=number, text="x" * 50_000)
            case "start and end others":
                with subprocess.Popen(["sleep", "60"]) as program:
                    program.terminate()
                    copy = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
                    copy.start()
                    time.sleep(0.2)
                    copy.terminate()
                    copy.join()
                    self._note(event="ended", codes=[program.wait(), copy.exitcode])
            case "thread":
                thread = threading.Thread(target=_fail_with, args=("s3cret",))
                thread.start()
                thread.join()

    def _note(self, **what: Any) -> None:
        line = json.dumps({"pid": os.getpid(), **what}) + "\n"
        with self._file.open("a") as file:
            file.write(line)


class Changing(Writing):
    """Modifies its rows, as a handler may, and then fails once."""

    def handle(self, batch: Batch) -> None:
        super().handle(batch)
        for change in batch.changes:
            assert change.after is not None
            change.after["id"] = 1000
        if self._once is not None and self._may():
            raise ValueError("once")


class Refusing(Writing):
    """Fails with statements."""

    def handle(self, batch: Batch) -> None:
        if any(change.op == "ddl" for change in batch.changes):
            raise ValueError("no statements")
        super().handle(batch)


class Awaiting(Handler):
    """Notes its calls as `Writing` does. Row 300 waits until it is cancelled."""

    def __init__(self, file: str) -> None:
        self._writing = Writing(file)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, context: HandlerContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._writing.open(context)

    async def handle(self, batch: Batch) -> None:
        assert asyncio.get_running_loop() is self._loop
        if any(change.offset == 3 for change in batch.changes):
            log.warning("waits")
            await asyncio.sleep(60)
        self._writing.handle(batch)

    async def close(self) -> None:
        self._writing.close()


class InWorker(Writing):
    in_worker = True


class AskingForRows(Writing):
    """Stays in the worker, and looks at the rows where they are."""

    in_worker = True

    @classmethod
    def asks_for_rows(cls, options: Mapping[str, Any]) -> bool:
        return True

    def handle(self, batch: Batch) -> None:
        pid, ids = on_rows(batch.changes, partial(seen, does=self._does))
        self._note(event="rows", table=batch.table, attempt=batch.attempt, ids=ids, rows_of=pid)


def seen(changes: Sequence[Change], does: Mapping[str, str]) -> tuple[int, list[int]]:
    """Where these rows are, and their ids."""
    ids = [int((change.after or {})["id"]) for change in changes]
    if "die" in map(does.get, map(str, ids)):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)
    if "fail" in map(does.get, map(str, ids)):
        raise OwnError("never", "ever")
    return os.getpid(), ids


def same(change: Change) -> Change:
    return change


class PerLane(Writing):
    per_lane = True


class DyingInOpen(Writing):
    """Ends its process when it is opened: as long as `once` is not set, or once."""

    def open(self, context: HandlerContext) -> None:
        super().open(context)
        if self._may():
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(10)


class SlowToOpen(Writing):
    """Its `open` waits while `once` exists."""

    def open(self, context: HandlerContext) -> None:
        super().open(context)
        while self._once is not None and self._once.exists():
            time.sleep(0.01)


def _fail_with(secret: str) -> None:
    raise ValueError(secret)


def _hang() -> None:
    time.sleep(3)


def poison() -> None:
    """Make the decoding of a record with the row 300 end this process, as a defect in a library would."""
    decode_many = Canal.decode_many

    def deadly(self: Canal, table: str, records: Any, into: Any, ends: Any) -> Any:
        records = list(records)
        if any(b'"300"' in (each.value() or b"") for each in records):
            os.kill(os.getpid(), signal.SIGKILL)
        return decode_many(self, table, iter(records), into, ends)

    Canal.decode_many = deadly  # type: ignore[method-assign]
