"""Check of changes whose row has an equal or higher version in the target: are they late, or lost?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from handlers.api import Batch
from handlers.options.templates import place_of
from handlers.versioned.last_states import State, topic_of
from handlers.versioned.versions import EPOCH_BITS, Topic, has_reached


class RowMoved(Exception):
    """Versions do not show which of two changes of a row is the later one."""


class Held(NamedTuple):
    """A row in the target."""

    name: str
    """Name in messages: `the document 7 of shop.orders`."""
    version: int
    partition: str | None
    """None: another program wrote it."""


def check_late(
    batch: Batch, state: State, held: Held, *, base: int, topics: Callable[[], Sequence[Topic] | None]
) -> None:
    """Return if the change may be skipped, because the target has a later change of the row.

    It may be skipped if both come from one partition, which orders them. It may also be skipped if the
    target's change is from a later epoch of the same topic. `base`: the option `epoch`. `topics`: returns the
    topics that the target remembers now; None if it is gone. Raises RowMoved."""
    if held.version < state.version:
        return
    epoch = held.version - 1 >> EPOCH_BITS
    epochs_later = epoch - (state.version - 1 >> EPOCH_BITS)
    topic, whose = topic_of(state.partition), f"is of {held.partition}"
    if held.partition is None:
        is_late, whose = False, "was not written by binlane"
    elif epochs_later <= 0:
        is_late = held.partition == state.partition
    elif batch.replay_of is not None:
        if 0 < base <= epoch:  # versions of dead letters do not include the option
            raise RowMoved(
                f"{place_of(batch.changes[state.at], batch.table)}: {held.name} was written with the option "
                "epoch, so it is unknown whether the dead letter is later: let the source write the row again"
            )
        is_late = True  # every later epoch wins over a replayed dead letter
    elif topic_of(held.partition) == topic:
        known = topics()  # another worker may have begun the epoch since this batch began
        is_late = known is None or has_reached(known, topic, base=base, version=held.version)
        whose = "has a later epoch than any that the target remembers (is it a bare copy?)"
    else:
        is_late = False
    if not is_late:
        raise RowMoved(
            f"{place_of(batch.changes[state.at], batch.table)}: {held.name} {whose}, with a version as high "
            "or higher: it is unknown which of the two is later. All changes of a row must be in one "
            "partition. If the topic has other partitions now, or other writers have filled the target, let "
            f"new changes win: option epoch: {base + 1 + max(0, epochs_later)}"
        )
