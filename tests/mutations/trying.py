"""Mutations tried, several at a time where they mostly wait."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from types import TracebackType
from typing import Self

from forked_pytest import ForkedPytest
from mutant import Run, mutant, run_tests, verdict
from patching import Mutation, StalePatch

__all__ = ["Trials"]


class Trials:
    """`begin(mutations)` tries so many at a time beside all else; `run(mutation)` tells of any one, and waits
    for no other. A context manager."""

    def __init__(self, at_a_time: int) -> None:
        self._pool = ThreadPoolExecutor(at_a_time)
        self._idle: SimpleQueue[ForkedPytest] = SimpleQueue()
        self._stack = ExitStack()
        self._lock = Lock()  # of the stack
        self._begun: dict[str, Future[tuple[str, Run | None]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._stack.close()

    def begin(self, chosen: Iterable[Mutation]) -> None:
        """Those that are told of later."""
        for mutation in chosen:
            self._begun[mutation.name] = self._pool.submit(self._tried, mutation)

    def run(self, mutation: Mutation) -> tuple[str, Run | None]:
        """Why it does not count as caught, or nothing; what became of its tests, if they were run."""
        begun = self._begun.get(mutation.name)
        return self._tried(mutation) if begun is None else begun.result()

    def _tried(self, mutation: Mutation) -> tuple[str, Run | None]:
        with tempfile.TemporaryDirectory(prefix="binlane-mutant-") as folder:
            try:
                mutant(mutation, Path(folder))
            except StalePatch as fault:
                return str(fault), None
            forked = self._forked()
            try:
                run = run_tests(mutation.caught_by, Path(folder), forked)
            finally:
                self._idle.put(forked)
            return verdict(mutation, run), run

    def _forked(self) -> ForkedPytest:
        """One that has nothing to do; there are as many as ever ran at once."""
        with suppress(Empty):
            return self._idle.get_nowait()
        with self._lock:
            return self._stack.enter_context(ForkedPytest())
