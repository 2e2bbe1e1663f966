"""Handlers are closed side by side: each has its whole time, however long the others take."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, SupportsIndex

import pytest
from building import configuration

from handlers import Handler
from handlers.hanging_calls import GivenUp
from worker.configuration import Configuration
from worker.running.handler_set import HandlerOpenError, HandlerSet
from worker.running.open_handlers import OpenHandler, close_all, most_seconds


class Closing(Handler):
    close_timeout = 5.0

    def __init__(self, together: threading.Barrier) -> None:
        self.together = together

    def close(self) -> None:
        self.together.wait(self.close_timeout)


class Hanging(Handler):
    close_timeout = 0.2

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def close(self) -> None:
        self.goes_on.wait()


def handler_set(tmp_path: Path, *opened: Handler) -> HandlerSet:
    made = HandlerSet(configuration(checkpoint={"directory": str(tmp_path)}))
    made._opened += [OpenHandler("some", "some", None, handler) for handler in opened]
    return made


def test_all_handlers_are_closing_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(3)
    handlers = handler_set(tmp_path, *(Closing(together) for _ in range(3)))
    assert handlers.close()
    assert handlers.close(), "none is left to be closed again"


def test_handlers_that_hang_are_waited_for_no_longer_than_one_of_them(tmp_path: Path) -> None:
    hanging = [Hanging() for _ in range(10)]
    for each in hanging:
        each.close_timeout = 3.0
    handlers = handler_set(tmp_path, *hanging)
    began = time.monotonic()
    assert not handlers.close()
    assert time.monotonic() - began < 25  # one after the other: more than 30
    for each in hanging:
        each.goes_on.set()


def test_a_handler_is_closed_after_a_release_that_is_under_way(tmp_path: Path) -> None:
    class Releasing(Handler):
        def __init__(self) -> None:
            self.said: list[str] = []
            self.begun, self.goes_on = threading.Event(), threading.Event()

        def release(self, partitions: Any) -> None:
            self.said.append("release")
            self.begun.set()
            self.goes_on.wait()
            self.said.append("released")

        def close(self) -> None:
            self.said.append("close")

    handler = Releasing()
    handlers = handler_set(tmp_path, handler)
    [opened] = handlers._opened
    handlers.release([("t", 0)], 0.0)
    handler.begun.wait()
    closing = threading.Thread(target=handlers.close)
    closing.start()
    while not opened._ending._closed:
        time.sleep(0.01)
    opened.release([("t", 1)])  # one that comes too late
    handler.goes_on.set()
    closing.join()
    assert handler.said == ["release", "released", "close"]


def test_a_close_timeout_that_raises_counts_as_the_usual_one() -> None:
    class Odd(Handler):
        @property
        def close_timeout(self) -> float:  # type: ignore[override]
            raise SystemExit(3)

    assert most_seconds([Odd()]) == Handler.close_timeout


def opening(folder: Path, module: str, statement: str, *, kind: str = "def") -> Configuration:
    """Of one handler, which does this when it opens."""
    (folder / f"{module}.py").write_text(
        "import asyncio, handlers\n"
        "class H(handlers.Handler):\n"
        f"    {kind} open(self, context): {statement}\n"
        f"    {kind} handle(self, batch): ...\n"
    )
    return configuration({"handlers": [{"type": f"{module}:H"}]})


def test_an_open_that_ends_the_process_is_a_handler_that_cannot_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    handlers = HandlerSet(opening(tmp_path, "leaving_on_open", "import sys; sys.exit(5)"))
    with pytest.raises(HandlerOpenError, match=r"could not open: SystemExit: 5"):
        handlers.open()


def test_an_open_that_cancels_itself_is_a_handler_that_cannot_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    found = opening(tmp_path, "cancelled_on_open", "raise asyncio.CancelledError('late')", kind="async def")
    with pytest.raises(HandlerOpenError, match=r"could not open: CancelledError: late"):
        HandlerSet(found).open()
    handlers = HandlerSet(configuration())
    with pytest.raises(HandlerOpenError, match=r"could not open: CancelledError: late"):
        handlers.plan(found)  # a reload that is refused, not an error that stops the worker


def test_an_open_that_is_let_go_because_the_worker_stops_is_no_fault_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    found = opening(tmp_path, "let_go_on_open", "raise handlers.TargetUnavailable('not up yet')")
    with pytest.raises(GivenUp, match=r"not open yet: not up yet"):
        HandlerSet(found, stopping=lambda: True).open()
    with pytest.raises(HandlerOpenError, match="could not open"):
        HandlerSet(found, stopping=lambda: False).open()


class Late(list[OpenHandler]):
    """Another thread has opened one more handler when all the others were seen."""

    one: OpenHandler | None = None

    def __iter__(self) -> Iterator[OpenHandler]:
        yield from super().__iter__()
        self._open()

    def pop(self, place: SupportsIndex = -1) -> OpenHandler:
        try:
            return super().pop(place)
        except IndexError:
            self._open()
            raise

    def _open(self) -> None:
        if self.one is not None:
            self.append(self.one)
            self.one = None


def test_a_handler_that_opens_while_the_others_are_closed_is_closed_by_who_opened_it() -> None:
    class Counting(Handler):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    first, late = Counting(), Counting()
    opened = Late([OpenHandler("first", "some", None, first)])
    opened.one = OpenHandler("late", "some", None, late)
    assert close_all(opened)
    assert close_all(opened), "as its own thread does once it sees that nobody waits for it"
    assert (first.closed, late.closed) == (1, 1)
