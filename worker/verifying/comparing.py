"""Rows of two sides in the order of their key, compared by the checksums of key ranges."""

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
    """A side does not keep to the order of the key."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same on both sides; in one form on both."""

    key: Row
    source: Row | None
    """None: the source has no such row."""
    replica: Row | None


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of one range of keys."""

    source_rows: int
    replica_rows: int
    source_checksum: bytes
    replica_checksum: bytes
    differences: Sequence[Difference]


def can_be_found(key: Row) -> bool:
    """Whether a row can be asked for by this key: not by NULL, nor by what is no number."""
    return all(value is not None and value == value for value in key)  # noqa: PLR0124 (what is no number)


def digest(row: Row) -> bytes:
    """16 bytes of a row in one form."""
    return hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def ranges(
    source: Iterable[Row], replica: Iterable[Row], key_of: Callable[[Row], Row], chunk: int
) -> Iterator[Range]:
    """The source's rows, `chunk` at a time, each with the replica's up to the same key; both in the order of
    their keys, in one form. Raises OutOfOrder."""
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
    """Rows without a key, as sets that hold a row several times: by digest, how many more the source has
    (fewer: negative), and how many rows each side has."""
    more: Counter[bytes] = Counter()
    counts = [0, 0]
    for side, (rows, sign) in enumerate(((source, 1), (replica, -1))):
        for row in rows:
            each = digest(row)
            counts[side] += 1
            if more[each] == -sign:
                del more[each]  # nothing is kept of rows that are even
            else:
                more[each] += sign
    return more, counts[0], counts[1]


def formed(rows: Iterable[Row], reads: Sequence[Callable[[Any], Any]]) -> Iterator[Row]:
    """Rows in one form: `reads` is a column's `Form`, of this side."""
    for row in rows:
        try:
            yield tuple(
                [None if value is None else read(value) for read, value in zip(reads, row, strict=True)]
            )
        except (ValueError, TypeError, ArithmeticError):
            yield tuple([_or_as_it_is(read, value) for read, value in zip(reads, row, strict=True)])


def _or_as_it_is(read: Callable[[Any], Any], value: Any) -> Any:
    """A value that its column's type does not explain equals itself alone."""
    try:
        return None if value is None else read(value)
    except (ValueError, TypeError, ArithmeticError):
        return str(value)


def _compared(source: Sequence[Row], replica: Sequence[Row], key_of: Callable[[Row], Row]) -> Range:
    sums = [hashlib.blake2b(digest_size=16) for _ in range(2)]
    for sum_, rows in zip(sums, (source, replica), strict=True):
        for row in rows:
            sum_.update(repr(row).encode("utf-8", "surrogatepass"))
    ours, theirs = (sum_.digest() for sum_ in sums)
    differences: list[Difference] = []
    if ours != theirs:
        there = {key_of(row): row for row in replica}
        for row in source:
            other = there.pop(key_of(row), None)
            if other != row:
                differences.append(Difference(key_of(row), row, other))
        differences += (Difference(key, None, row) for key, row in there.items())
        if len(replica) != len({key_of(row) for row in replica}):
            differences += _doubles(replica, key_of)
    return Range(len(source), len(replica), ours, theirs, differences)


def _doubles(rows: Sequence[Row], key_of: Callable[[Row], Row]) -> Iterator[Difference]:
    """Rows whose key came before."""
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
            raise OutOfOrder(f"{side} does not sort by the key's values: {key_of(row)!r} comes too late")
        last = key
        yield row


def _sortable(key: Row) -> Row:
    """As both databases were asked to sort: texts by their bytes, null before all."""
    return tuple((value is not None, _comparable(value)) for value in key)


def _comparable(value: Any) -> Any:
    if type(value) is date:  # a column of dates on one side may be one of times on the other
        return datetime(value.year, value.month, value.day)
    return value.encode() if isinstance(value, str) else value
