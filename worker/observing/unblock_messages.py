"""The bodies of `POST /api/unblock` and `POST /api/pause`, and the secret with which the commands prove where
they run.

An address proves nothing: behind a sidecar or a plain proxy, every client has this machine's address."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from handlers.logs import get_logger

LONGEST = 500
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

Result = Literal["set_aside", "handled", "ordered", "paused", "resumed", "refused"]
"""set_aside: it was set aside. handled: one more attempt succeeded. ordered: one of both will follow."""
log = get_logger("http")


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


class PauseRequest(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"duration": "for"}
):
    table: _Name
    """A pattern, such as `match` of a table's rule."""
    action: Literal["pause", "resume"]
    by: _Name
    handler: _Name | None = None
    """None: all handlers."""
    duration: _Name | None = None
    """How long it is paused, such as 1h; None: until it is resumed."""
    reason: _Name | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    result: Result
    message: str
    """What was done, or why nothing was done and what to do."""


class UnblockAnswer(Answer, frozen=True, kw_only=True):
    position: str | None = None
    """`topic[partition] offset n`, if it was found."""
    letters: list[str] = []
    """The positions of the dead letters."""
    committed: bool = False
    """Whether Kafka has the commit, after which a restart does not repeat the record."""


def order_token_file(folder: Path, port: int) -> Path:
    """Return the token file of a worker with this `checkpoint.directory` and `http.port`."""
    return folder / f"order-token-{port}"


def write_order_token(folder: Path, port: int, token: str) -> None:
    """Write the token so that only the worker's user can read it. A failure is logged."""
    path = order_token_file(folder, port)
    # Two containers may have the same process id.
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
        new.replace(path)
    except OSError as error:
        log.warning("order_token_not_written", file=str(path), error=str(error))
