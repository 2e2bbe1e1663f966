"""The request and response bodies of `POST /api/unblock`, used by `binlane unblock`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

UnblockResult = Literal["set_aside", "handled", "ordered", "refused"]
"""set_aside: it was set aside. handled: one more attempt succeeded. ordered: one of both will follow."""


class Refused(Exception):
    """The request cannot be carried out. The text says why, and what to do."""


class UnblockRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: Annotated[str, msgspec.Meta(max_length=500)]
    """`database.table`, as in the status; empty: `offset` is the start of a batch that cannot be read."""
    offset: _Number
    action: Literal["skip", "dead_letter"]
    by: _Name
    """Who asks, in their own words."""
    topic: _Name | None = None
    """If None, and `partition` too: the partition in which the table has this offset unfinished."""
    partition: _Number | None = None


class UnblockAnswer(msgspec.Struct, frozen=True, kw_only=True):
    result: UnblockResult
    message: str
    """What was done, or why nothing was done and what to do."""
    position: str | None = None
    """`topic[partition] offset n`, if it was found."""
    letters: list[str] = []
    """The positions of the dead letters."""
    committed: bool = False
    """Whether Kafka has the commit, after which a restart does not repeat the record."""
