"""What a table of a target remembers of where it is fed from, in revisions that have one writer each.

A row's epoch follows from the topics that are remembered, in their order. So it must never change: of two
workers that each remember a topic, the later one has to see the other's before it writes a row. A table's
description cannot be changed on a condition. But ClickHouse and Elasticsearch give a new name (of a column,
of a field) to one writer only. So each revision has a name of its own, whole; nobody changes one that
is there; the newest counts; and who finds that its number has been taken looks again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from handlers.api import TargetUnavailable
from handlers.progress.versions import Topic

__all__ = ["LookAgain", "Memory", "Recalled", "recalled", "remembering", "until_remembered"]

_NUMBER = re.compile(r"_(\d+)$")
_PARTITIONS = 2
"""So many are remembered: whether there are several is all that is asked."""
_ROUNDS = 40
"""Of one batch: in each another writer has remembered something, and there is little to remember."""
_T = TypeVar("_T")


class LookAgain(Exception):
    """The table is not as it was when it was looked at."""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a table is fed from."""

    table: str | None = None
    """Whose rows it holds; None: nobody has said so yet."""
    topics: tuple[Topic, ...] = ()
    """In the order of their epochs."""
    partitions: tuple[str, ...] = ()
    """The first that rows have come from."""
    epoch: int = 0
    """The highest option `epoch` that it was written under."""


class Recalled(NamedTuple):
    """The newest revision of a memory."""

    number: int = 0
    """0: there is none, or one in the form of earlier releases."""
    memory: Memory = Memory()


def recalled(texts: Mapping[str, str], earlier: Memory | None = None) -> Recalled:
    """The newest of these revisions; `texts`: name -> what stands there; a name ends in `_NUMBER`.

    `earlier`: the memory in the form before revisions. Raises ValueError for a text that is no memory.

    >>> recalled({"memory_9": "{}", "memory_10": '{"topics": [["cdc", "A"]]}'}).memory.topics
    (Topic(name='cdc', id='A'),)
    """
    numbers = {int(found[1]): name for name in texts if (found := _NUMBER.search(name))}
    if not numbers:
        return Recalled(0, earlier or Memory())
    name = numbers[max(numbers)]
    try:
        return Recalled(max(numbers), msgspec.json.decode(texts[name], type=Memory))
    except msgspec.MsgspecError as error:
        raise ValueError(f"what {name} remembers cannot be read, somebody has changed it: {error}") from error


def remembering(
    memory: Memory, *, table: str, topics: Sequence[Topic], epoch: int, partitions: Iterable[str] = ()
) -> Memory:
    """The memory as it has to be before any change of these is written.

    >>> remembering(Memory(epoch=2), table="t.t", topics=[], epoch=1, partitions=["cdc[1]", "cdc[0]"])
    Memory(table='t.t', topics=(), partitions=('cdc[0]', 'cdc[1]'), epoch=2)
    """
    known = memory.partitions
    if len(known) < _PARTITIONS:
        known = tuple(dict.fromkeys((*known, *sorted(partitions))))[:_PARTITIONS]
    return Memory(table, tuple(topics), known, max(memory.epoch, epoch))


def until_remembered(attempt: Callable[[], _T]) -> _T:
    """What `attempt` returns, which looks at the table anew whenever it has raised LookAgain.

    Raises what it raises; TargetUnavailable where others are faster all the time.
    """
    for _ in range(_ROUNDS):
        try:
            return attempt()
        except LookAgain as error:
            last = error
    raise TargetUnavailable(f"{last}; {_ROUNDS} times", others_go_on=True)
