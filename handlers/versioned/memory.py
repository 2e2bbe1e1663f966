"""The memory of a target table: which topics feed it, in revisions with one writer each.

The order of the remembered topics decides a row's epoch, so it must never change. If two workers each
add a topic, the later one must see the other's before it writes a row. The description of a table
cannot be changed conditionally. But ClickHouse and Elasticsearch let only one writer create a name (of a
column or a field). So each revision has its own name, is complete and never changes. The newest one counts.
A writer whose number is taken reads again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from handlers.failures import UnfitPlace
from handlers.versioned.versions import Topic

_NUMBER = re.compile(r"_(\d+)$")
_PARTITIONS = 2
"""Partitions to remember. Two are enough to know that there are several."""


class Unfit(UnfitPlace):
    """The server, table or index cannot accept a table's rows. The message says why, and what to do."""


RENAMED = "If the source has only renamed them, restore the former names with the table's rules (rename)"


class UnfitColumn(Exception):
    """The table or index lacks a column that some rows have. The message says what to do."""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sources of a target table."""

    table: str | None = None
    """The source table; None: not known yet."""
    topics: tuple[Topic, ...] = ()
    """In the order of their epochs."""
    partitions: tuple[str, ...] = ()
    """The first partitions that rows came from."""
    epoch: int = 0
    """The highest option `epoch` that the table was written with."""
    key: tuple[str, ...] = ()
    """The latest columns of the rows' primary key; empty: not known yet."""
    number: int = 0
    """The revision's number, which its text omits; 0: no revision exists."""

    @property
    def text(self) -> str:
        return msgspec.json.encode(msgspec.structs.replace(self, number=0)).decode()

    def next(self) -> Memory:
        """Return the same content with the next revision's number."""
        return msgspec.structs.replace(self, number=self.number + 1)


_read_memory = msgspec.json.Decoder(Memory).decode


def recalled(place: str, texts: Mapping[str, str]) -> Memory:
    """Return the newest revision of `place`. `texts`: name -> revision; each name ends in `_NUMBER`.

    Raises Unfit if the newest text cannot be read.

    >>> recalled("orders", {"memory_9": "{}", "memory_10": '{"topics": [["cdc", "A"]]}'}).topics
    (Topic(name='cdc', id='A'),)
    """
    numbers = {int(found[1]): name for name in texts if (found := _NUMBER.search(name))}
    if not numbers:
        return Memory()
    name = numbers[max(numbers)]
    try:
        memory = _read_memory(texts[name])
    except msgspec.MsgspecError as error:
        raise Unfit(
            f"{place}: the contents of {name} cannot be read, because they were changed: {error}"
        ) from None
    return msgspec.structs.replace(memory, number=max(numbers))


def remembering(
    memory: Memory,
    *,
    table: str,
    topics: Sequence[Topic],
    epoch: int,
    key: Sequence[str] = (),
    partitions: Iterable[str] = (),
) -> Memory:
    """Return the memory that must be stored before changes of these topics are written.

    >>> remembering(Memory(epoch=2), table="t.t", topics=[], epoch=1, partitions=["cdc[1]", "cdc[0]"])
    Memory(table='t.t', topics=(), partitions=('cdc[0]', 'cdc[1]'), epoch=2, key=(), number=0)
    """
    known = memory.partitions
    if len(known) < _PARTITIONS:
        known = tuple(dict.fromkeys((*known, *sorted(partitions))))[:_PARTITIONS]
    ids = tuple(key) or memory.key
    return Memory(table, tuple(topics), known, max(memory.epoch, epoch), ids, memory.number)
