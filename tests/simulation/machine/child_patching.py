"""The simulated sockets and processes in place of the real ones in the modules for child processes."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from worker.processes import beginning, messages, process
from worker.processes import child as child_program
from worker.processes.messages import Events
from worker.processes.opened import Batches

from . import threads
from .kernel import Child, Kernel
from .kernel_calls import (
    ChildFcntl,
    KernelOs,
    KernelSelect,
    KernelSocket,
    KernelSubprocess,
    no_signals,
)
from .scheduler import current

__all__ = ["DEADLY", "put_children"]

DEADLY = b'"deadly":'
"""What ends the process that decodes a record with it."""


class _Known(process.Known):
    """Its lock was chosen when its class was made: before anything was replaced."""

    def __init__(self) -> None:
        super().__init__(lock=threads.Lock())  # type: ignore[arg-type]


class _Batches(Batches):
    def decode(
        self,
        token: int,
        described: Sequence[Any] | None,
        most_bytes: int,
        chunks: Iterable[Sequence[Any]],
        released: Iterable[int],
    ) -> dict[str, Any] | None:
        kernel: Kernel = current().world.kernel
        is_known = described is not None or token in self._tables
        if is_known and any(DEADLY in (value or b"") for chunk in chunks for value in chunk[6]):
            current().preempt()
            kernel.crash()
        found = super().decode(token, described, most_bytes, chunks, released)
        task = current().task
        assert task is not None
        assert isinstance(task.process, Child)
        kernel.decoded(task.process)
        return found


class _Child(child_program.Child):
    def __init__(self) -> None:
        super().__init__()
        task = current().task
        assert task is not None
        assert isinstance(task.process, Child)
        task.process.program = self

    @property
    def batches(self) -> Batches:
        return self._batches


def put_children(put: Callable[[Any, str, Any], None], gc: object) -> None:
    def kernel() -> Kernel:
        found: Kernel = current().world.kernel
        return found

    sockets, system = KernelSocket(kernel), KernelOs(kernel)
    put(process, "Known", _Known)
    put(process, "socket", sockets)
    put(beginning, "socket", sockets)
    put(beginning, "os", system)
    put(beginning, "subprocess", KernelSubprocess(kernel, child_program.main))
    put(messages, "socket", sockets)
    put(child_program, "Batches", _Batches)
    put(child_program, "Child", _Child)
    put(child_program, "socket", sockets)
    put(child_program, "os", system)
    put(child_program, "fcntl", ChildFcntl(kernel))
    put(child_program, "select", KernelSelect(kernel))
    put(child_program, "signal", no_signals)
    put(child_program, "gc", gc)
    put(child_program, "log_to", _log_to)
    put(child_program, "threading", types.SimpleNamespace(Thread=threads.Thread, get_ident=threads.get_ident))


def _log_to(events: Events, level: str) -> None:
    """What a child process logs goes through `World`, which knows its events by `Child.program`."""
