"""Records a log's owner in `table.json` beside its segments. The folder's name may not contain it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from handlers.api import Rejected
from handlers.spark.locations import CATALOG, PENDING
from handlers.spark.log.packs.streams import SHARED, is_stream
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.interface import AlreadyThere, Files

_NAME = "table.json"
_DDL = "ddl"
# handlers.spark.ddl.progress records finished steps of statements here: <topic>-<partition>-<offset>-<index>.
_PROGRESS = re.compile(r".+-\d+-\d+-\d+")


_VERSION = 1


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source table of a log, and the settings of its handler on which the segments' use depends."""

    database: str
    table: str
    mode: str
    prefix: str | None = None
    """Prefix of the columns that binlane adds. None if an earlier release wrote this, like the next."""
    catalog: str | None = None
    """The handler's `table`. Empty with a `path`, because then the log's own folder identifies the table."""
    version: int = _VERSION
    """Version of the file. The first version does not contain it."""


_read_owner = msgspec.json.Decoder(Owner).decode


class _Version(msgspec.Struct):
    version: int = _VERSION


_read_version = msgspec.json.Decoder(_Version).decode


def fits(found: Owner, own: Owner) -> bool:
    """Whether a log belongs to its reader, according to its record."""
    names = found.database, found.table, found.mode
    return (
        names == (own.database, own.table, own.mode)
        and found.prefix in (None, own.prefix)
        and found.catalog in (None, own.catalog)
    )


def sign(files: Files, log_folder: str, owner: Owner) -> Owner | None:
    """Record the log's owner, if it has none. Returns the recorded owner, if it had one.

    Raises Rejected if the log belongs to another owner, BrokenLog for an unreadable `table.json`, and what
    the store raises."""
    path = _place(log_folder)
    try:
        found = _read(files, path)
    except FileNotFoundError:
        try:
            files.put(path, msgspec.json.encode(owner))
        except AlreadyThere:
            found = _read(files, path)
        else:
            return None
    if not fits(found, owner):
        raise Rejected(_shared(path, found, owner))
    return found


def check_prefix(schema: pa.Schema | None, log_folder: str, prefix: str) -> None:
    """Check that a log's segments have the columns of a handler with this prefix. Raises Rejected."""
    if schema is not None and f"{prefix}op" not in schema.names:
        added = next((name for name in schema.names if name.endswith("op")), None)
        hint = f"; they have {added}" if added else ""
        raise Rejected(
            f"the segments in {log_folder} have no column {prefix}op{hint}: they were written with another "
            "prefix. Set the handler's prefix back, or remove the table with its log and read the source "
            "again"
        )


def look_in(files: Files, here: str, root: str) -> tuple[bool, Sequence[str]]:
    """Return whether a folder below `root`, the folder of all logs, is a log's. If not, also return which of
    its folders to search. Raises what the store raises."""
    entries = files.list(here)
    if any(entry.name == _NAME for entry in entries):
        return True, ()
    names = sorted(entry.name for entry in entries if entry.is_folder and entry.name != CATALOG)
    if here == f"{root}/{_DDL}":  # a database may have this name, too
        names = [name for name in names if _PROGRESS.fullmatch(name) is None]
    if here == f"{root}/{SHARED}":  # the same
        names = [name for name in names if not is_stream(name)]
    return False, [f"{here}/{name}" for name in names]


def logs_below(files: Files, folder: str) -> Iterator[tuple[str, Owner]]:
    """Yield each log's folder below the folder of all logs, with its owner.

    Raises BrokenLog for an unreadable `table.json`, and what the store raises."""
    folders = [folder]
    while folders:
        here = folders.pop()
        is_log, more = look_in(files, here, folder)
        if is_log:
            yield f"{here}/{PENDING}", owner_of(files, f"{here}/{PENDING}")
        folders += reversed(more)


def owner_of(files: Files, log_folder: str) -> Owner:
    """Return a log's owner. Raises FileNotFoundError and BrokenLog."""
    return _read(files, _place(log_folder))


def _place(log_folder: str) -> str:
    return f"{log_folder.removesuffix(f'/{PENDING}')}/{_NAME}"


def _read(files: Files, path: str) -> Owner:
    data = files.read(path)
    try:
        version = _read_version(data).version
        if version > _VERSION:
            raise BrokenLog(
                f"{path} has version {version}, but this binlane knows versions up to {_VERSION}: run the "
                "release that wrote it, or a later one"
            )
        return _read_owner(data)
    except msgspec.MsgspecError as error:
        raise BrokenLog(
            f"{path} does not name the table of the log beside it ({error}): restore it from a backup; or, "
            "if the log belongs to this table only, remove the file, and the next batch writes it again"
        ) from None


def _shared(path: str, found: Owner, own: Owner) -> str:
    advice = (
        "Set it back, or remove the table with its log and read the source again"
        if (found.database, found.table, found.mode) == (own.database, own.table, own.mode)
        else "Give one of them its own place, with {database} and {table} in its name; or, if the first is "
        "no longer used, remove its table, its log and this file, and read the source again"
    )
    return (
        f"{path} says that this is the place of {_told(found, own)}; it cannot be that of "
        f"{_told(own, found)}, too: each would treat the other's changes as its own. {advice}"
    )


def _told(owner: Owner, other: Owner) -> str:
    told = f"the {owner.mode} of {owner.database}.{owner.table}"
    if None not in (owner.prefix, other.prefix) and owner.prefix != other.prefix:
        told += f" with prefix {owner.prefix}"
    if None not in (owner.catalog, other.catalog) and owner.catalog != other.catalog:
        told += f" in table {owner.catalog}" if owner.catalog else " in a path"
    return told
