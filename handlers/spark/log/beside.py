"""Records beside a log's segments: its owner, and what its table was last seen to contain.

The owner is in `table.json`, because the folder's name may not contain it.

Delta removes the notes of old commits. Then only the first segment of the last merge is known. And a table
that was restored, replaced or removed looks like one that never contained more. So empty files in the folder
`_table` have these names:

- `00000000000000000005-00000000000000000008`: the table's newest merge contained segments 5 to 8
- `left-00000000000000000009`: records up to 9 were about a table that DDL has dropped or renamed
- `followed-00000000000000000007`: the statements in the log up to this segment are followed"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pyarrow as pa

from handlers.api import Rejected
from handlers.spark.locations import CATALOG, PENDING
from handlers.spark.log.pack_file import SHARED, is_stream
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.interface import AlreadyThere, Files

_NAME = "table.json"
_DDL = "ddl"
# handlers.spark.ddl.progress records finished steps here: <topic>[/<id>]-<partition>-<offset>-<index>.
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
    if f"{root}/{_DDL}" in (here, here.rpartition("/")[0]):  # a database may have this name, too
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
        f"{path} says that this is the place of {_described(found, own)}; it cannot be that of "
        f"{_described(own, found)}, too: each would treat the other's changes as its own. {advice}"
    )


def _described(owner: Owner, other: Owner) -> str:
    told = f"the {owner.mode} of {owner.database}.{owner.table}"
    if None not in (owner.prefix, other.prefix) and owner.prefix != other.prefix:
        told += f" with prefix {owner.prefix}"
    if None not in (owner.catalog, other.catalog) and owner.catalog != other.catalog:
        told += f" in table {owner.catalog}" if owner.catalog else " in a path"
    return told


FOLDER = "_table"
_HELD = re.compile(r"(\d{20})-(\d{20})")
_LEFT = re.compile(r"left-(\d{20})")
_FOLLOWED = re.compile(r"followed-(\d{20})")


@dataclass(frozen=True, slots=True)
class Held:
    """The segments of the newest merge into a table. The table contains all up to `last`."""

    first: int = 0
    last: int = 0
    """0 if the table contains none, or does not exist."""
    marks: Mapping[tuple[str, int], tuple[int, int]] | None = field(default=None, compare=False)
    """(topic, partition) -> (offset, index) of the last of these changes, if the merge's note is there."""


class Told(NamedTuple):
    """The record about a log's table."""

    held: Held = Held()
    """What the table was last seen to contain, if it has not left since."""
    left: int = 0
    """Segments up to this one were merged into tables that have left."""
    followed: int = 0
    """Statements in the log up to this segment are followed."""


class ToldHeld:
    """The records beside one log. Raises what the store raises."""

    def __init__(self, files: Files, log_folder: str) -> None:
        self._files = files
        self._folder = f"{log_folder}/{FOLDER}"

    def look(self) -> Told:
        return _told(self._names())

    def begun_with(self, first: int) -> Held:
        """Return the commit that began with this segment, also of a table that has left and returned. Empty
        if it was not recorded."""
        found = [held for held in _all_held(self._names()) if held.first == first]
        return max(found, key=lambda held: held.last, default=Held())

    def tell(self, held: Held) -> None:
        """Record that the table contains this."""
        self._put(f"{held.first:020d}-{held.last:020d}")

    def tell_left(self, last: int) -> None:
        """The table is about to be dropped or renamed. Record that it contains no segment after `last`."""
        self._put(f"left-{last:020d}")

    def tell_followed(self, number: int) -> None:
        """Record that the statement in this segment is followed, and all before it."""
        self._put(f"followed-{number:020d}")

    def _put(self, name: str) -> None:
        with suppress(AlreadyThere):
            self._files.put(f"{self._folder}/{name}", b"")
        names = self._names()
        held, left, followed = _told(names)
        for other in names:
            if (old := _HELD.fullmatch(other)) and left < int(old[2]) < held.last:
                self._files.delete(f"{self._folder}/{other}")
            if (old := _LEFT.fullmatch(other)) and int(old[1]) < left:
                self._files.delete(f"{self._folder}/{other}")
            if (old := _FOLLOWED.fullmatch(other)) and int(old[1]) < followed:
                self._files.delete(f"{self._folder}/{other}")

    def _names(self) -> Sequence[str]:
        return [entry.name for entry in self._files.list(self._folder)]


def _all_held(names: Iterable[str]) -> list[Held]:
    return [Held(int(each[1]), int(each[2])) for name in names if (each := _HELD.fullmatch(name))]


def _told(names: Sequence[str]) -> Told:
    left = max((int(each[1]) for name in names if (each := _LEFT.fullmatch(name))), default=0)
    beyond = [held for held in _all_held(names) if held.last > left]
    followed = max((int(each[1]) for name in names if (each := _FOLLOWED.fullmatch(name))), default=0)
    return Told(max(beyond, key=lambda held: held.last, default=Held()), left, followed)
