"""How a worker rebuilds a target's table beside the existing one: the interface, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from handlers.api import Batch
from handlers.progress import Partition, Place


class Refused(Exception):
    """Why the table cannot be reloaded, in one sentence."""


class Differs(Refused):
    """The existing table's columns are not those of the new one. A worker may be about to change it."""


class Hindered(Refused):
    """Another transaction was in the way. The same call may succeed later."""


class Behind(Exception):
    """A worker has applied more than the new table contains."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The number of rows that were replaced, and of the rows that replaced them."""

    before: int
    after: int


CatchUp = Callable[[Mapping[Partition, Place]], Mapping[Partition, int]]


class TableReload(Protocol):
    """The reload of one table, between `begin` and `end`. One thread."""

    at_once: ClassVar[int]
    """The best number of changes for each call of `apply`."""

    def begin(self) -> None:
        """Connect, and remove what a killed reload left behind. Raises Refused."""

    def marks(self) -> Mapping[Partition, Place]:
        """Return how far the table is applied, at least. Raises Refused."""

    def apply(self, batch: Batch) -> None:
        """Apply changes to the new table. Raises as a handler does."""

    def take_over(self, read: Mapping[Partition, int], catch_up: CatchUp | None = None) -> Taken:
        """Replace the old rows by the new ones, and move the table's marks to match the new rows.

        `read`: the next offset of each partition of the table's topics. All earlier changes were given to
        `apply`. `catch_up`: called with the table's marks if they are beyond `read`. It applies more changes
        and returns the new `read`. Raises Behind, Differs, Hindered and Refused. Unless the error says
        otherwise, nothing has changed."""

    def end(self) -> str:
        """Remove the new table and disconnect. Never raises. Returns what is left behind; empty: nothing."""


def is_behind(read: Mapping[Partition, int], marks: Mapping[Partition, Place]) -> bool:
    """Whether the table contains changes that were not read. `read`: next offsets."""
    return any(each not in read or place[0] >= read[each] for each, place in marks.items())


def told_apart(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Describe the first three differences of columns (name -> type). Empty if there are none."""
    names = [name for name in dict.fromkeys((*ours, *theirs)) if ours.get(name) != theirs.get(name)]
    return "; ".join(
        f"{name} is {ours.get(name, 'not there')}, according to the topic {theirs.get(name, 'not there')}"
        for name in names[:3]
    )
