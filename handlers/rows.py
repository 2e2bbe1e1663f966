"""Rows of changes: is a row complete, and which two changes are one update.

Also the shard that a change belongs to, with `order_by: row`."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from copy import deepcopy
from decimal import Decimal
from operator import attrgetter
from typing import Any
from zlib import crc32

import msgspec

from handlers.api import Change, Row
from handlers.values.bounds import BeyondCalendar

_lacks = attrgetter("lacks")
position = attrgetter("topic", "partition", "offset", "index")
"""Returns a change's position."""
_WHOLE = {frozenset[str]()}
_NESTED = frozenset((list, dict))


class ValueUntold(ValueError):
    """A row appears under a new key without some of its values."""


def check_told(change: Change, *, moves: bool = False) -> None:
    """Raise ValueUntold for a new row that lacks values: the target may have removed the old row, which has
    them. `moves`: treat `change` as an update that changes the row's key in the target."""
    if (moves or change.op in ("insert", "snapshot")) and not change.is_whole:
        which = "any column" if change.lacks is None else ", ".join(sorted(change.lacks))
        raise ValueUntold(
            f"its key changed, and the source does not send the new row's value of {which}: let the source "
            "send whole rows (REPLICA IDENTITY FULL, binlog_row_image=FULL; json.updates: whole)"
        )


def check_all_told(changes: Sequence[Change]) -> None:
    """Raise ValueUntold for the first new row among the changes that lacks values."""
    if set(map(_lacks, changes)) - _WHOLE:
        for change in changes:
            check_told(change)


def on_rows(changes: Sequence[Change], function: Callable[[Sequence[Change]], Any]) -> Any:
    """Return `function(changes)`, computed where the rows are: perhaps in a child process (see
    `Handler.asks_for_rows`). Then the function and its result are pickled. Raises RowsLost."""
    computed = getattr(changes, "computed", None)
    return function(changes) if computed is None else computed(function)


def is_move(gone: Change, made: Change | None = None) -> bool:
    """Whether these two consecutive changes are one update that changed a row's key. `gone` is a delete, or
    an update that changes nothing if the old row is to stay."""
    return (
        made is not None
        and gone.moves_key
        and made.moves_key
        and gone.op != "insert"
        and made.op == "insert"
        and (gone.offset, gone.partition, gone.topic) == (made.offset, made.partition, made.topic)
    )


def borders(changes: Sequence[Change], first: int, end: int) -> list[int]:
    """Return all places at which the changes from `first` up to `end` may be split, including both ends. The
    two halves of a key change are applied or set aside together. So are changes that a transform has made of
    one. They have one position: with the first of them, a target would count all as applied."""
    pairs = ((at, changes[at - 1], changes[at]) for at in range(first + 1, end))
    inner = [at for at, *both in pairs if not is_move(*both) and len(set(map(position, both))) > 1]
    return [first, *inner, end]


def with_own_rows(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the same changes with deep copies of their rows, so that a handler can modify them without
    affecting others."""
    return tuple(
        msgspec.structs.replace(change, before=_own(change.before), after=_own(change.after))
        for change in changes
    )


def _own(row: Row | None) -> Row | None:
    if row is None:
        return None
    return row.copy() if _NESTED.isdisjoint(map(type, row.values())) else deepcopy(row)


# Changes of one row always have the same shard, on every process, host and Python version, because a target
# may store its marks by shard. The hash is CRC-32 of the key's values as text. It is fast and the same
# everywhere, and it spreads keys with a stride (ids that end in zeros) as evenly as others.

SHARDS = 64
"""Shards of each table: four for each of 16 lanes. That keeps the lanes busy even if the load differs between
keys, and each shard's batches stay large enough to be worth a call."""


def shard_of(change: Change) -> int | None:
    """Return a number from 0 to SHARDS - 1, or None for a change that concerns the whole table.

    Keys that a database may consider equal have the same shard. Such texts differ only in case, accents or
    trailing spaces (MySQL's usual collations), such numbers only in trailing zeros. All rows of a table
    without a primary key have shard 0. DDL, truncate and a row without its whole key have none: it may be any
    row."""
    columns = change.key_columns
    row = change.after if change.after is not None else change.before
    if row is None:
        return None
    if not columns:
        return 0
    try:
        if len(columns) == 1:
            value = row[columns[0]]
            if type(value) is int:
                return crc32(b"%d" % value) % SHARDS
            return crc32(_text(value)) % SHARDS
        return crc32(b"\x1f".join([_text(row[column]) for column in columns])) % SHARDS
    except KeyError:
        return None


def _text(value: Any) -> bytes:
    """Return the same text for equal values, everywhere."""
    write = _WRITERS.get(type(value))
    return repr(value).encode("utf-8", "backslashreplace") if write is None else write(value)


def _of_int(value: int) -> bytes:
    return b"%d" % value


def _of_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        return str(value).encode()
    # Digits without trailing zeros, and the exponent: no decimal context can round them.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    if not kept:
        return b"0"
    power = int(exponent) + len(text) - len(kept)
    if 0 <= power <= 64:  # written as an integer
        return f"{'-' * sign}{kept}{'0' * power}".encode()
    return f"{'-' * sign}{kept}e{power}".encode()


def _of_str(value: str) -> bytes:
    value = value.rstrip(" ")
    if value.isascii():
        return value.lower().encode()
    apart = unicodedata.normalize("NFKD", value.casefold())
    plain = "".join([letter for letter in apart if not unicodedata.combining(letter)])
    return plain.casefold().encode("utf-8", "surrogatepass")


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    int: _of_int,
    bool: _of_int,
    str: _of_str,
    Decimal: _of_decimal,
    float: lambda value: b"%d" % value if value.is_integer() else repr(value).encode(),
    bytes: lambda value: value.rstrip(b"\0"),  # binary(n) is filled up with them
    BeyondCalendar: lambda value: str(value).encode(),
}
