"""Bulk writes of documents with versions, and the cluster's result for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from handlers.api import TargetUnavailable
from handlers.elasticsearch.client import SearchClient, is_of_index, told
from handlers.failures import UnfitPlace
from handlers.http.client import is_denied, is_passing
from handlers.http.parts import Refused, RequestRefused, RowRefused, in_parts

_encode = msgspec.json.Encoder().encode
_CONFLICT = 409
_OF_PIPELINE = "fail_processor_exception"
"""An ingest pipeline refuses the document on purpose. Its status 500 does not mean a failed cluster."""
_OTHER_TYPE = (
    "If the type of the source's column changed: a field cannot change its type, so create an index with "
    "this one's mapping and the new type, copy the documents (_reindex with version_type: external), and "
    "route this table there (option index)"
)


class Item(msgspec.Struct, frozen=True):
    id: str
    version: int
    at: int
    """The place of its change in the batch."""
    document: bytes | None
    """The document as JSON; None to delete it."""

    def lines(self) -> bytes:
        action = {"_id": self.id, "version": self.version, "version_type": "external"}
        if self.document is None:
            return _encode({"delete": action}) + b"\n"
        return _encode({"index": action}) + b"\n" + self.document + b"\n"


class _Outcome(msgspec.Struct, gc=False):
    status: int
    error: Any = None


class _Results(msgspec.Struct, gc=False):
    """The decoded part of an answer. The whole would need several times the memory of its text."""

    items: list[dict[str, _Outcome]]
    errors: bool = False


def write(client: SearchClient, path: str, items: Sequence[Item], most_bytes: int) -> list[Item]:
    """Write all items. Return those whose document has an equal or higher version in the index.

    Raises RowRefused for the first item that is refused for its content. Raises TargetUnavailable if some
    were not accepted now. Raises RequestRefused. Written items stay; writing them again changes nothing."""
    lines, late = [item.lines() for item in items], list[Item]()

    def send(start: int, end: int) -> None:
        body = b"".join(lines[start:end])
        answer = client.request("POST", f"{path}/_bulk", lines=body, may=(413,), form=_Results)
        if answer.status == 413:
            raise Refused(f"its document of {len(body)} bytes is too large for the cluster")
        late.extend(_late(path, items[start:end], answer.body, start))

    in_parts(lines, most_bytes, send, places=[item.at for item in items])
    return late


def _late(path: str, items: Sequence[Item], results: _Results, start: int) -> list[Item]:
    """Return items with a later version in the index. `start`: the first one's place. Raises as `write`."""
    if len(results.items) != len(items):
        raise TargetUnavailable("the answer to _bulk does not list each document")
    if not results.errors:
        return []
    late, refused = list[Item](), list[RowRefused]()
    unavailable: TargetUnavailable | None = None
    for at, (item, result) in enumerate(zip(items, results.items, strict=True), start):
        outcome = next(iter(result.values()))
        status, error = outcome.status, outcome.error
        if error is None:
            continue
        if status == _CONFLICT:
            late.append(item)
        elif _lacks_pipeline(error) or is_of_index(status, {"error": error}):
            raise UnfitPlace(f"_bulk of {path[1:]}: {status}: {told(error)}")
        elif _is_passing(status, error):
            unavailable = TargetUnavailable(f"_bulk of {path[1:]}: {told(error)}")
        elif status == 400 or error.get("type") == _OF_PIPELINE:
            refused.append(RowRefused(at, f"its document is refused: {told(error)}. {_OTHER_TYPE}"))
        else:
            raise RequestRefused(f"_bulk of {path[1:]}: {status}: {told(error)}")
    # Retry unavailable items first; a refusal is judged after that.
    if unavailable is not None:
        raise unavailable
    if refused:
        raise refused[0]
    return late


def _lacks_pipeline(error: dict[str, Any]) -> bool:
    return str(error.get("reason")).startswith("pipeline with id [")


def _is_passing(status: int, error: dict[str, Any]) -> bool:
    # A block means a full disk, or an index that is being moved.
    is_blocked = error.get("type") == "cluster_block_exception"
    return error.get("type") != _OF_PIPELINE and (is_passing(status) or is_denied(status) or is_blocked)
