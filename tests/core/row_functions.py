"""Transforms that tests name: as users would write them, and as they would not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from binlane import Batch, Change, PartialFailure, Rejected, StopWorker, TargetUnavailable

SEEN: list[Change] = []
"""What `note` was given."""


def note(change: Change) -> Change:
    SEEN.append(change)
    return change


def upper(change: Change) -> Change:
    """The name in capitals."""
    for row in (change.before, change.after):
        if row and "name" in row:
            row["name"] = row["name"].upper()
    return change


def without_drafts(change: Change) -> list[Change]:
    return [] if (change.after or change.before or {}).get("name") == "draft" else [change]


def without_odd(change: Change) -> list[Change]:
    return [] if (change.after or {}).get("id") in (100, 300) else [change]


def lines(change: Change) -> list[Change]:
    """One row for each word of `words`, with its number as a second key column."""
    words = str((change.after or change.before or {}).get("words", "")).split()
    made = []
    for number, word in enumerate(words):
        before, after = (
            None if row is None else {"id": row["id"], "n": number, "word": word}
            for row in (change.before, change.after)
        )
        made.append(replace(change, before=before, after=after, key_columns=("id", "n"), types=None))
    return made


def lower_key(change: Change) -> Change:
    for row in (change.before, change.after):
        if row and "id" in row:
            row["id"] = str(row["id"]).lower()
    return change


def lower_new_key(change: Change) -> Change:
    if change.after:
        change.after["id"] = str(change.after["id"]).lower()
    return change


def softly(change: Change) -> Change:
    """A row that is marked as deleted is deleted."""
    if change.after and change.after.get("gone"):
        return replace(change, op="delete", before=change.after, after=None)
    return change


def gone_as_it_was(change: Change) -> Change:
    """As `softly`, with the old row."""
    return replace(change, op="delete", after=None) if (change.after or {}).get("gone") else change


def marked(change: Change) -> Change:
    """A deleted row stays, with a mark."""
    if change.before is None or change.op != "delete":
        return change
    return replace(change, op="update", after={**change.before, "gone": 1})


def again(change: Change) -> Change:
    """A deleted row comes back."""
    return replace(change, op="insert", before=None, after=change.after or change.before)


def with_tenant(change: Change) -> Change:
    """The tenant becomes a part of the key."""
    return replace(change, key_columns=("tenant", "id"))


def with_old_row(change: Change) -> Change:
    assert change.after is not None
    return replace(change, before={"id": change.after["id"]})


def without_id(change: Change) -> Change:
    for row in (change.before, change.after):
        if row:
            row["number"] = row.pop("id")
    return change


def tell_all(change: Change) -> Change:
    """Copies all that it sees into one column."""
    assert change.after is not None
    change.after["told"] = repr((change, change.before, change.after))
    return change


def with_pid_alone(change: Change) -> Change:
    """Names its process in the types."""
    return replace(change, types={**(change.types or {}), f"of {os.getpid()}": "int"})


def with_pid(change: Change) -> Change:
    assert change.after is not None
    change.after["id"] = change.after["id"] + 1000
    return replace(change, types={**(change.types or {}), f"of {os.getpid()}": "int"})


def double(batch: Batch) -> Sequence[Change]:
    """Each row twice, under two keys."""
    made = []
    for change in batch.changes:
        assert change.after is not None
        made += [change, replace(change, after={**change.after, "id": change.after["id"] + 100})]
    return made


def last_of_each(batch: Batch) -> list[Change]:
    """Only the last change of each row."""
    return list({str(change.key): change for change in batch.changes}.values())


def backwards(batch: Batch) -> list[Change]:
    return list(reversed(batch.changes))


def the_batch(batch: Batch) -> Batch:
    return batch


def foreign(batch: Batch) -> list[Change]:
    return [replace(change, offset=change.offset + 1000) for change in batch.changes]


def nothing(_change: Change) -> None:
    return None


def row(change: Change) -> Any:
    return change.after


def row_or_empty(change: Change) -> Any:
    return {}


def empty_text(change: Change) -> Any:
    return ""


def text(_change: Change) -> Any:
    return ["row"]


def number(_change: Change) -> Any:
    return 7


def row_of_pairs(change: Change) -> Change:
    return replace(change, after=[*(change.after or {}).items()])


def keys_of_a_list(change: Change) -> Change:
    return replace(change, key_columns=["id"])


def lacks_of_a_list(change: Change) -> Change:
    return replace(change, lacks=["name"])


def moved(change: Change) -> Change:
    return replace(change, offset=change.offset + 1)


def other_index(change: Change) -> Change:
    return replace(change, index=change.index + 1)


def other_transaction(change: Change) -> Change:
    return replace(change, transaction="another")


def as_statement(change: Change) -> Change:
    return replace(change, op="ddl", sql="DROP TABLE users", before=None, after=None)


def as_delete(change: Change) -> Change:
    return replace(change, op="delete")


def unlike(change: Change) -> list[Change]:
    return [change, replace(change, key_columns=("other",))]


def yielding(change: Change) -> Iterator[Change]:
    yield change


def lazily(change: Change) -> Any:
    """Looks like a plain function, and returns a generator."""
    return yielding(change)


async def awaiting(change: Change) -> Change:
    return change


def with_two(change: Change, other: Change) -> Change:
    return change or other


def fails(change: Change) -> Change:
    """For the row 7, for example because it looks something up there."""
    if (change.after or {}).get("id") in (7, 700):
        raise KeyError("no such country")
    return change


def fails_for_some(batch: Batch) -> Sequence[Change]:
    if any((change.after or {}).get("id") in (7, 700) for change in batch.changes):
        raise ValueError("7 is among them")
    return batch.changes


def rejects(change: Change) -> Change:
    if (change.after or {}).get("id") in (7, 700):
        raise Rejected("no 7")
    return change


def rejects_in_batch(batch: Batch) -> Sequence[Change]:
    for at, change in enumerate(batch.changes):
        if (change.after or {}).get("id") in (7, 700):
            raise Rejected("no 7", at=at)
    return batch.changes


def says_done(_change: Change) -> Change:
    raise PartialFailure(1)


def stops(_change: Change) -> Change:
    raise StopWorker("no licence")


def waits(change: Change) -> Change:
    """Until the file is there."""
    if not Path(os.environ["ROW_FUNCTIONS_FILE"]).exists():
        raise TargetUnavailable("the lookup is away", retry_after=0.01)
    return change


def slowly(change: Change) -> Change:
    time.sleep(0.2)
    return change
