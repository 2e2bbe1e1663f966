"""Requests that are divided: by their size, and to find what a server refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


class Refused(Exception):
    """The server refuses something in what was sent. It would refuse it again, but may take a part of it."""


class RequestRefused(Exception):
    """The server refuses a request, and no single row is to blame for that."""


class RowRefused(Exception):
    """The server refuses one row, however often it is sent."""

    def __init__(self, at: int, reason: str) -> None:
        """`at`: the position of the row, or of its change, in what was sent."""
        super().__init__(reason)
        self.at = at


def by_halves(borders: Sequence[int], send: Callable[[int, int], None]) -> None:
    """Call `send(start, end)` for what is between the first border and the last. If that raises Refused, one
    half of it after the other, parted at a border.

    Raises RowRefused with the start of the first part that is refused alone, and what else `send` raises.
    """
    try:
        send(borders[0], borders[-1])
    except Refused as error:
        if len(borders) == 2:
            raise RowRefused(borders[0], str(error)) from None
        middle = len(borders) // 2
        by_halves(borders[: middle + 1], send)
        by_halves(borders[middle:], send)


def chunks(lines: Sequence[bytes], most: int) -> Iterator[tuple[int, int]]:
    """(start, end) of requests of at most so many bytes; what is larger goes alone.

    >>> list(chunks([b"12", b"3", b"45678", b"9"], 4))
    [(0, 2), (2, 3), (3, 4)]
    """
    start, size = 0, 0
    for at, one in enumerate(lines):
        if at > start and size + len(one) > most:
            yield start, at
            start, size = at, 0
        size += len(one)
    if lines:
        yield start, len(lines)


def in_parts(
    rows: Sequence[bytes], most_bytes: int, send: Callable[[int, int], None], *, places: Sequence[int]
) -> None:
    """Call `send(start, end)` for all rows, in requests of about `most_bytes` that are halved if refused.

    Raises RowRefused with the place of the first row that is refused alone, and what else `send` raises.
    """
    for start, end in chunks(rows, most_bytes):
        try:
            by_halves(range(start, end + 1), send)
        except RowRefused as error:
            raise RowRefused(places[error.at], str(error)) from None
