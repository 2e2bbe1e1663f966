"""Handlers are closed side by side: each has its whole time, however long the others take."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from building import configuration

from handlers import Handler
from worker.handler_set import HandlerSet
from worker.handler_status import OpenHandler


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
    handlers = handler_set(tmp_path, *hanging)
    began = time.monotonic()
    assert not handlers.close()
    assert time.monotonic() - began < 8  # one after the other, each with a second: more than 10
    for each in hanging:
        each.goes_on.set()
