"""A handler that is closed and opened again, as one that another worker has after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from handlers import Batch, Handler


class Reopened(Handler):
    """Hands batches over to the handler that is open now."""

    def __init__(self, open_one: Callable[[], AbstractContextManager[Handler]]) -> None:
        self._open_one = open_one
        self._stack = ExitStack()
        self._current = self._stack.enter_context(open_one())

    def handle(self, batch: Batch) -> None:
        self._current.handle(batch)

    def close(self) -> None:
        self._stack.close()

    def restart(self) -> None:
        self._stack.close()
        self._current = self._stack.enter_context(self._open_one())


@contextmanager
def reopened(open_one: Callable[[], AbstractContextManager[Handler]]) -> Iterator[Reopened]:
    handler = Reopened(open_one)
    try:
        yield handler
    finally:
        handler.close()
