"""A table of a target that is built again beside the one that is there: what the worker asks of it, and how
its end may turn out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from handlers.api import Batch
from handlers.progress.marks import Partition, Place


class Refused(Exception):
    """Why the table cannot be loaded again, in one sentence."""


class Differs(Refused):
    """The table that is there has other columns than the new one; a worker may be about to change it."""


class Hindered(Refused):
    """Another transaction was in the way; the same again may do."""


class Behind(Exception):
    """A worker has applied more than the new table has."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows that were replaced, and those that took their place."""

    before: int
    after: int


CatchUp = Callable[[Mapping[Partition, Place]], Mapping[Partition, int]]


class TableReload(Protocol):
    """One table, between `begin` and `end`. One thread."""

    at_once: ClassVar[int]
    """Changes that `apply` is best given at once."""

    def begin(self) -> None:
        """Connect, and remove what a reload has left that was killed. Raises Refused."""

    def marks(self) -> Mapping[Partition, Place]:
        """How far the table is applied, at least. Raises Refused."""

    def apply(self, batch: Batch) -> None:
        """Put changes into the new table. Raises as a handler does."""

    def take_over(self, read: Mapping[Partition, int], catch_up: CatchUp | None = None) -> Taken:
        """Put the new rows in the place of the old ones, and move the table's marks to where these stand.

        `read`: for all partitions of the table's topics, the next offset: the changes of all before it were
        given to `apply`. `catch_up`: called with the table's marks where they are beyond that; has `apply`
        take more, and returns `read` anew. Raises Behind, Differs, Hindered and Refused; then nothing has
        changed, if it does not say otherwise."""

    def end(self) -> str:
        """Remove the new table, and disconnect. Never raises; what is left behind is told, empty: nothing."""


def is_behind(read: Mapping[Partition, int], marks: Mapping[Partition, Place]) -> bool:
    """Whether something is applied that was not read. `read`: next offsets."""
    return any(each not in read or place[0] >= read[each] for each, place in marks.items())


def told_apart(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The first three differences of columns (name -> type); empty: there are none."""
    names = [name for name in dict.fromkeys((*ours, *theirs)) if ours.get(name) != theirs.get(name)]
    return "; ".join(
        f"{name} is {ours.get(name, 'not there')}, by the topic {theirs.get(name, 'not there')}"
        for name in names[:3]
    )
