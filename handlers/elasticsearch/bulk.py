"""Documents written in bulk, each with its version, and what the cluster says about each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from handlers.api import TargetUnavailable
from handlers.elasticsearch.client import LATER, RefusedByCluster, SearchClient, told

__all__ = ["Item", "RowRefused", "chunks", "write"]

_encode = msgspec.json.Encoder().encode
_CONFLICT = 409


class RowRefused(Exception):
    """One document is refused for what it is, whenever it is sent."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


class Item(msgspec.Struct, frozen=True):
    id: str
    version: int
    at: int
    """The place of its change in the batch."""
    document: bytes | None
    """JSON; None: it is deleted."""

    def lines(self) -> bytes:
        action = {"_id": self.id, "version": self.version, "version_type": "external"}
        if self.document is None:
            return _encode({"delete": action}) + b"\n"
        return _encode({"index": action}) + b"\n" + self.document + b"\n"


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


def write(client: SearchClient, path: str, items: Sequence[Item], most_bytes: int) -> list[Item]:
    """Write all; those of which the index holds a version as high or higher.

    Raises RowRefused for the first that is refused for what it is; TargetUnavailable, where some were not
    taken now; RefusedByCluster. What was written then, stays: it is the same when it comes again.
    """
    lines, late = [item.lines() for item in items], list[Item]()
    for start, end in chunks(lines, most_bytes):
        late += _send(client, path, items[start:end], lines[start:end])
    return late


def _send(client: SearchClient, path: str, items: Sequence[Item], lines: Sequence[bytes]) -> list[Item]:
    answer = client.request("POST", f"{path}/_bulk", lines=b"".join(lines), may=(413,))
    if answer.status == 413:
        if len(items) == 1:
            size = len(lines[0])
            raise RowRefused(items[0].at, f"its document of {size} bytes is too large for the cluster")
        middle = len(items) // 2
        return _send(client, path, items[:middle], lines[:middle]) + _send(
            client, path, items[middle:], lines[middle:]
        )
    results = answer.body.get("items") if isinstance(answer.body, dict) else None
    if not isinstance(results, list) or len(results) != len(items):
        raise TargetUnavailable("the answer to _bulk does not tell of each document")
    if not answer.body.get("errors"):
        return []
    late, refused = list[Item](), list[RowRefused]()
    unavailable: TargetUnavailable | None = None
    for item, result in zip(items, results, strict=True):
        outcome: dict[str, Any] = next(iter(result.values()))
        status, error = outcome["status"], outcome.get("error")
        if error is None:
            continue
        if status == _CONFLICT:
            late.append(item)
        elif _is_passing(status, error):
            unavailable = TargetUnavailable(f"_bulk of {path[1:]}: {told(error)}")
        elif status == 400 and error.get("type") != "index_closed_exception":
            refused.append(RowRefused(item.at, told(error)))
        else:
            raise RefusedByCluster(f"_bulk of {path[1:]}: {status}: {told(error)}")
    # What is down is not the row's fault: first wait, then judge.
    if unavailable is not None:
        raise unavailable
    if refused:
        raise min(refused, key=lambda one: one.at)
    return late


def _is_passing(status: int, error: dict[str, Any]) -> bool:
    # A block: a disk that is full, or an index that is being moved.
    return status in LATER or status >= 500 or error.get("type") == "cluster_block_exception"
