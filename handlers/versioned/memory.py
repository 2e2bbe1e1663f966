"""What a table of a target remembers of where it is fed from, in revisions that have one writer each.

The topics that are remembered, in their order, decide a row's epoch, so this order must never change. If two
workers each remember a topic, the later one has to see the other's before it writes a row. A description of
a table cannot be changed on a condition. But ClickHouse and Elasticsearch give a new name (of a column, of a
field) to one writer only. So each revision has a name of its own and is complete. Nobody changes it. The
newest one counts, and a writer whose number is taken looks again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from handlers.failures import UnfitPlace
from handlers.versioned.versions import Topic

_NUMBER = re.compile(r"_(\d+)$")
_PARTITIONS = 2
"""So many are remembered: the only question is whether there are several."""


class Unfit(UnfitPlace):
    """The server, or its table or index, cannot take a table's rows. The message says why, and what to do."""


RENAMED = "If the source has only renamed them, let the table's rules give back the former names (rename)"


class UnfitColumn(Exception):
    """The table or index has no place for a column that some rows have. The message says what to do."""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a table is fed from."""

    table: str | None = None
    """Whose rows it holds; None: not known yet."""
    topics: tuple[Topic, ...] = ()
    """In the order of their epochs."""
    partitions: tuple[str, ...] = ()
    """The first that rows have come from."""
    epoch: int = 0
    """The highest option `epoch` that it was written under."""
    key: tuple[str, ...] = ()
    """The columns of the rows' primary key, as they were last; empty: not known yet."""
    number: int = 0
    """Of the revision, and not in its text; 0: there is none."""

    @property
    def text(self) -> str:
        return msgspec.json.encode(msgspec.structs.replace(self, number=0)).decode()

    def next(self) -> Memory:
        """The same as the next revision."""
        return msgspec.structs.replace(self, number=self.number + 1)


def recalled(place: str, texts: Mapping[str, str]) -> Memory:
    """The newest of the revisions that `place` holds; `texts`: name -> revision; a name ends in `_NUMBER`.

    Raises Unfit for a text that is no memory.

    >>> recalled("orders", {"memory_9": "{}", "memory_10": '{"topics": [["cdc", "A"]]}'}).topics
    (Topic(name='cdc', id='A'),)
    """
    numbers = {int(found[1]): name for name in texts if (found := _NUMBER.search(name))}
    if not numbers:
        return Memory()
    name = numbers[max(numbers)]
    try:
        memory = msgspec.json.decode(texts[name], type=Memory)
    except msgspec.MsgspecError as error:
        raise Unfit(
            f"{place}: what {name} remembers cannot be read, somebody has changed it: {error}"
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
    """The memory as it has to be before any change of these is written.

    >>> remembering(Memory(epoch=2), table="t.t", topics=[], epoch=1, partitions=["cdc[1]", "cdc[0]"])
    Memory(table='t.t', topics=(), partitions=('cdc[0]', 'cdc[1]'), epoch=2, key=(), number=0)
    """
    known = memory.partitions
    if len(known) < _PARTITIONS:
        known = tuple(dict.fromkeys((*known, *sorted(partitions))))[:_PARTITIONS]
    ids = tuple(key) or memory.key
    return Memory(table, tuple(topics), known, max(memory.epoch, epoch), ids, memory.number)
