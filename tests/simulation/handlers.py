"""The handler of simulated workers: it asks the simulation what becomes of each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers import Batch, Handler

from .machine.scheduler import Killed, current

if TYPE_CHECKING:
    from .world import World

__all__ = ["Simulated"]


class Simulated(Handler):
    close_timeout = 5.0

    def __init__(self, **options: Any) -> None:
        """Takes what its entry says, and does not look at it."""

    def handle(self, batch: Batch) -> None:
        scheduler = current()
        world: World = scheduler.world
        process: Any = scheduler.task.process
        if process.dead:  # the worker took Killed for an error of the last call
            raise Killed
        numbers = [int(change.after["id"]) for change in batch.changes]
        began = world.oracles.begin(process, batch.table, batch.shard, numbers)
        done = 0
        try:
            done = len(numbers)
            world.answer(process, batch)
        except BaseException as error:
            done = getattr(error, "done", 0)
            raise
        finally:
            world.oracles.end(process, began, numbers[:done])
