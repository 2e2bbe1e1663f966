"""What `binlane unblock` asks of a worker, and what that answers: the bodies of `POST /api/unblock`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

UnblockResult = Literal["set_aside", "handled", "ordered", "refused"]
"""The record is set aside; its handlers took it when it was tried once more; one of both will be; neither."""


class Refused(Exception):
    """What is the matter with what was asked for, and what to do."""


class UnblockRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: Annotated[str, msgspec.Meta(max_length=500)]
    """`database.table`, as the status tells it; empty: `offset` begins a batch that cannot be read."""
    offset: _Number
    action: Literal["skip", "dead_letter"]
    by: _Name
    """Who asks, as they say."""
    topic: _Name | None = None
    """None, with `partition`: whichever of the worker's has this offset unfinished for the table."""
    partition: _Number | None = None


class UnblockAnswer(msgspec.Struct, frozen=True, kw_only=True):
    result: UnblockResult
    message: str
    """What was done, or what is the matter and what to do."""
    position: str | None = None
    """`topic[partition] offset n`, if it was found."""
    letters: list[str] = []
    """Where the dead letters are."""
    committed: bool = False
    """Whether Kafka has it, so that a restart does not bring the record back."""
