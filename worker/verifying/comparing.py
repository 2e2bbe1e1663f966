"""Compare rows of two sides in the order of their key, by checksums of key ranges."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
from typing import Any

from worker.verifying.source import Row


class OutOfOrder(RuntimeError):
    """A side does not follow the order of the key."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs between the sides. Both are in the common form."""

    key: Row
    source: Row | None
    """None: the source has no such row."""
    replica: Row | None


@dataclass(frozen=True, slots=True)
class Range:
    """The rows of one range of keys."""

    source_rows: int
    replica_rows: int
    differences: Sequence[Difference]


def can_be_found(key: Row) -> bool:
    """Whether a query can find a row by this key: not by NULL or NaN."""
    return all(value is not None and value == value for value in key)  # noqa: PLR0124 (NaN)


def digest(*rows: Row) -> bytes:
    """Return a checksum (16 bytes) of rows in the common form."""
    found = hashlib.blake2b(digest_size=16)
    for row in rows:
        found.update(repr(row).encode("utf-8", "surrogatepass"))
    return found.digest()


def ranges(
    source: Iterable[Row], replica: Iterable[Row], key_of: Callable[[Row], Row], chunk: int
) -> Iterator[Range]:
    """Yield the source's rows, `chunk` at a time, each with the replica's rows up to the same key. Both sides
    are in the order of their keys and in the common form. Raises OutOfOrder."""
    left = _checked(source, key_of, "the source")
    right = _checked(replica, key_of, "the replica")
    waiting = next(right, None)
    while rows := list(islice(left, chunk)):
        end = _sortable(key_of(rows[-1]))
        others = []
        while waiting is not None and _sortable(key_of(waiting)) <= end:
            others.append(waiting)
            waiting = next(right, None)
        yield _compared(rows, others, key_of)
    while waiting is not None:
        yield _compared([], [waiting, *islice(right, chunk - 1)], key_of)
        waiting = next(right, None)


def surplus(source: Iterable[Row], replica: Iterable[Row]) -> tuple[Counter[bytes], int, int]:
    """Compare rows without a key as multisets. Return how many more of each digest the source has (negative:
    the replica), and how many rows each side has."""
    more: Counter[bytes] = Counter()
    counts = [0, 0]
    for side, (rows, sign) in enumerate(((source, 1), (replica, -1))):
        for row in rows:
            each = digest(row)
            counts[side] += 1
            if more[each] == -sign:
                del more[each]  # equal numbers of rows are not kept
            else:
                more[each] += sign
    return more, counts[0], counts[1]


def formed(rows: Iterable[Row], reads: Sequence[Callable[[Any], Any]]) -> Iterator[Row]:
    """Yield the rows in the common form. `reads` are the columns' `Form`s for this side."""
    for row in rows:
        try:
            yield tuple(
                [None if value is None else read(value) for read, value in zip(reads, row, strict=True)]
            )
        except (ValueError, TypeError, ArithmeticError):
            yield tuple([_or_as_it_is(read, value) for read, value in zip(reads, row, strict=True)])


def _or_as_it_is(read: Callable[[Any], Any], value: Any) -> Any:
    """Read a value. One that does not fit its column's type equals only itself."""
    try:
        return None if value is None else read(value)
    except (ValueError, TypeError, ArithmeticError):
        return str(value)


def _compared(source: Sequence[Row], replica: Sequence[Row], key_of: Callable[[Row], Row]) -> Range:
    differences: list[Difference] = []
    if digest(*source) != digest(*replica):
        there = {key_of(row): row for row in replica}
        for row in source:
            other = there.pop(key_of(row), None)
            if other != row:
                differences.append(Difference(key_of(row), row, other))
        differences += (Difference(key, None, row) for key, row in there.items())
        if len(replica) != len({key_of(row) for row in replica}):
            differences += _doubles(replica, key_of)
    return Range(len(source), len(replica), differences)


def _doubles(rows: Sequence[Row], key_of: Callable[[Row], Row]) -> Iterator[Difference]:
    """Yield rows with the key of an earlier row."""
    seen: set[Row] = set()
    for row in rows:
        key = key_of(row)
        if key in seen:
            yield Difference(key, None, row)
        seen.add(key)


def _checked(rows: Iterable[Row], key_of: Callable[[Row], Row], side: str) -> Iterator[Row]:
    last: Any = None
    for row in rows:
        key = _sortable(key_of(row))
        if last is not None and key < last:
            raise OutOfOrder(f"{side} is not sorted by the key's values: {key_of(row)!r} comes too late")
        last = key
        yield row


def _sortable(key: Row) -> Row:
    """Return a sort key as both databases sort: texts by bytes, null first."""
    return tuple((value is not None, _comparable(value)) for value in key)


def _comparable(value: Any) -> Any:
    if type(value) is date:  # dates on one side may be times on the other
        return datetime(value.year, value.month, value.day)
    return value.encode() if isinstance(value, str) else value
