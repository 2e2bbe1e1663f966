"""From a batch to what an index is to hold: the last state of each document."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from handlers.api import Batch, Change, Rejected, Row
from handlers.elasticsearch.mapping import ORIGIN
from handlers.elasticsearch.versions import BeyondVersions
from handlers.options.templates import MissingValue, Template, place_of
from handlers.rows import is_whole, row_after

__all__ = ["State", "document_id", "last_states", "partition_of"]

_ID = Template("{key}")
_ID_BYTES = 512  # https://www.elastic.co/docs/reference/elasticsearch/mapping-reference/mapping-id-field
_HASHED = "sha256-"


class State(msgspec.Struct):
    """What a batch leaves of one document."""

    row: Row | None
    """None: there is none."""
    types: Mapping[str, str] | None
    whole: bool
    """Whether `row` is all there is; else what the document holds beside it stays."""
    at: int
    """The place of the document's last change in `batch.changes`."""
    version: int
    partition: str
    time: int
    """Of the source, in milliseconds."""
    of_several: bool = False
    """Whether `row` has values of earlier changes, too: which of them is to blame cannot be told then."""

    @property
    def blamed(self) -> int | None:
        """`Rejected.at` where the document is refused."""
        return None if self.of_several else self.at


def document_id(row: Row, key_columns: tuple[str, ...] | None) -> str:
    """As the redis handler's {key}; what is too long, or empty, by its hash. Raises MissingValue, TypeError.

    >>> document_id({"a": 1, "b": "x:y"}, ("a", "b"))
    '1:x%3Ay'
    """
    text = _ID.key("", "", row, key_columns)
    data = text.encode("utf-8", "surrogatepass")
    if 0 < len(data) <= _ID_BYTES and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(data).hexdigest()


def partition_of(batch: Batch, change: Change) -> str:
    """Where the change's record stood at first."""
    topic, number, _ = batch.replay_of or (change.topic, change.partition, 0)
    return f"{topic}[{number}]"


def _checked_id(row: Row, key_columns: tuple[str, ...] | None) -> str:
    if ORIGIN in row:
        raise MissingValue(f"its column {ORIGIN} is what documents tell of their origin: rename it")
    return document_id(row, key_columns)


def last_states(batch: Batch, version: Callable[[Change], int]) -> dict[str, State]:
    """A document's id -> what the batch leaves of it. DDL and truncates are not looked at.

    Raises Rejected, with the place of the first change that has no id, or no version.
    """
    states: dict[str, State] = {}
    for at, change in enumerate(batch.changes):
        if change.op in ("ddl", "truncate"):
            continue
        try:
            row = None if change.after is None else row_after(change)
            key = _checked_id((change.before or {}) if row is None else row, change.key_columns)
            state = State(
                row=row,
                types=change.types,
                whole=row is None or is_whole(change, row),
                at=at,
                version=version(change),
                partition=partition_of(batch, change),
                time=change.source_time_ms,
            )
        except (MissingValue, TypeError, BeyondVersions) as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
        known = states.get(key)
        if known is not None and not state.whole and row is not None:
            state.row, state.whole = {**(known.row or {}), **row}, known.whole
            state.of_several = known.row is not None
        states[key] = state
    return states
