"""The handler of simulated workers: it asks the simulation what becomes of each batch."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from handlers import Batch, Handler, HandlerContext

from .machine.scheduler import current

if TYPE_CHECKING:
    from .world import World

__all__ = ["Apart", "Simulated"]


class Simulated(Handler):
    close_timeout = 5.0

    def __init__(self, **options: Any) -> None:
        """Takes what its entry says, and does not look at it."""
        self._name = ""

    def open(self, context: HandlerContext) -> None:
        self._name = context.handler

    def handle(self, batch: Batch, looked: float | None = None) -> None:
        """`looked`: when a child process found that the call may begin."""
        world: World = current().world
        process = world.caller()
        numbers = [int(change.after["id"]) for change in batch.changes]
        began = world.oracles.begin(process, self._name, batch, numbers, looked)
        done = 0
        try:
            done = len(numbers)
            world.answer(process, batch)
        except BaseException as error:
            done = getattr(error, "done", 0)
            raise
        finally:
            world.oracles.end(process, began, numbers[:done])


class Apart(Simulated):
    """One for a child process, which may end at any place."""

    def open(self, context: HandlerContext) -> None:
        super().open(context)
        _at("open")

    def handle(self, batch: Batch, looked: float | None = None) -> None:
        looked = current().now
        _at("before")
        super().handle(batch, looked)
        _at("after")

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        _at("release")

    def close(self) -> None:
        _at("close")


def _at(place: str) -> None:
    current().preempt()
    current().world.at_place(place)
