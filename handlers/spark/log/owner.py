"""Whose a log is: `table.json` beside its segments, as a folder's name cannot tell in every template."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from handlers.spark.log.files import AlreadyThere, Files
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.places import PENDING

__all__ = ["Owner", "logs_below", "owner_of", "sign"]

_NAME = "table.json"


class Owner(msgspec.Struct, frozen=True):
    """The source table that a log belongs to."""

    database: str
    table: str
    mode: str


def sign(files: Files, log_folder: str, owner: Owner) -> None:
    """Write down whose the log is, if nobody has. Raises what the store raises."""
    with suppress(AlreadyThere):
        files.put(f"{log_folder.removesuffix(f'/{PENDING}')}/{_NAME}", msgspec.json.encode(owner))


def logs_below(files: Files, folder: str) -> Iterator[tuple[str, Owner]]:
    """Each log folder below the folder of all logs, and whose it is.

    Raises BrokenLog for a `table.json` that does not tell, and what the store raises.
    """
    folders = [folder]
    while folders:
        here = folders.pop()
        entries = sorted(files.list(here), key=lambda entry: entry.name, reverse=True)
        if any(entry.name == _NAME for entry in entries):
            yield f"{here}/{PENDING}", owner_of(files, f"{here}/{PENDING}")
        else:
            folders += [f"{here}/{entry.name}" for entry in entries if entry.is_folder]


def owner_of(files: Files, log_folder: str) -> Owner:
    """Whose log it is. Raises FileNotFoundError and BrokenLog."""
    path = f"{log_folder.removesuffix(f'/{PENDING}')}/{_NAME}"
    try:
        return msgspec.json.decode(files.read(path), type=Owner)
    except msgspec.MsgspecError as error:
        raise BrokenLog(f"{path} does not tell whose log is beside it: {error}") from None
