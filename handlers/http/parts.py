"""Division of requests: by size, and to find the row that a server refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


class Refused(Exception):
    """The server refuses a request because of its rows. It would refuse it again, but may accept a part."""


class RequestRefused(Exception):
    """The server refuses a request, and no single row is the cause."""


class RowRefused(Exception):
    """The server refuses one row permanently."""

    def __init__(self, at: int, reason: str) -> None:
        """`at`: the position of the row, or of its change, in the request."""
        super().__init__(reason)
        self.at = at


def by_halves(borders: Sequence[int], send: Callable[[int, int], None]) -> None:
    """Call `send(start, end)` from the first border to the last. If that raises Refused, do the same with
    each half, divided at a border.

    Raises RowRefused with the start of the first part that is refused on its own. Passes on other errors."""
    try:
        send(borders[0], borders[-1])
    except Refused as error:
        if len(borders) == 2:
            raise RowRefused(borders[0], str(error)) from None
        middle = len(borders) // 2
        by_halves(borders[: middle + 1], send)
        by_halves(borders[middle:], send)


def chunks(lines: Sequence[bytes], most: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of requests with at most `most` bytes. A larger line gets its own request.

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
    """Call `send(start, end)` for all rows, in requests of about `most_bytes`. Halve refused requests.

    Raises RowRefused with the place of the first row that is refused on its own. Passes on other errors."""
    for start, end in chunks(rows, most_bytes):
        try:
            by_halves(range(start, end + 1), send)
        except RowRefused as error:
            raise RowRefused(places[error.at], str(error)) from None
