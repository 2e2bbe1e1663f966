"""Commits to Delta tables without Spark: a version's actions are put on condition that it does not exist.

Also recognizes tables as binlane creates them: commits to these may ignore what only Spark supports.
By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from handlers.spark.delta.checkpoints import duration_ms, keep_house
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.few_files import FewFiles, Rewrite, TableFile, exact_scalar, put_file
from handlers.spark.delta.log_actions import PHYSICAL_NAME, Metadata, Protocol, Snapshot
from handlers.spark.delta.log_files import Unknown, found_in
from handlers.spark.delta.table_columns import (
    ID,
    LAST_ID,
    TYPE_CHANGES,
    ArrowColumns,
    ColumnChange,
    every,
    is_mapped,
)
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.log.stores.local import is_moved
from handlers.spark.rows.column_types import USUAL
from handlers.spark.table_ref import NAMES_MAPPED, TYPES_WIDENED, needs_mapping

NEW = Protocol(3, 7, ["timestampNtz"], ["timestampNtz", "appendOnly", "invariants"])
"""The protocol of each table that binlane creates (`runtime.conf`)."""
MOST_MEMORY = 256 * 2**20
"""The most bytes of rows in memory, of segments and of a table. Repetitive rows are small in a file."""
_NO_ROWS = Rewrite((), ())


@dataclass(frozen=True, slots=True)
class NextVersion:
    """A table's next version, which is not committed yet."""

    files: Files
    path: str
    """The table's folder."""
    base: Snapshot | None
    """The version before. None: the table is created."""
    columns: ArrowColumns

    @property
    def number(self) -> int:
        return 0 if self.base is None else self.base.version + 1

    def put(
        self,
        operation: str,
        parameters: Mapping[str, str],
        *,
        note: str | None = None,
        txn: tuple[str, int] | None = None,
        rows: Rewrite = _NO_ROWS,
        metadata: Metadata | None = None,
        protocol: Protocol | None = None,
        changes_data: bool = True,
    ) -> None:
        """Commit. `note`: the user metadata. `txn`: an application's identifier and number. `changes_data`:
        whether the table's rows change, not only their files.

        Raises MergeConflict if another writer has put this version, and what the store raises."""
        self._check_in_place()
        now = int(time.time() * 1000)
        info = {
            "timestamp": now,
            "operation": operation,
            "operationParameters": parameters,
            **({} if self.base is None else {"readVersion": self.base.version}),
            "isolationLevel": "Serializable",
            "isBlindAppend": operation != "MERGE" and not rows.removed,
            "operationMetrics": {},
            **({} if note is None else {"userMetadata": note}),
            "engineInfo": "binlane",
            "txnId": str(uuid.uuid4()),
        }
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        if metadata is not None:
            actions.append({"metaData": _told(metadata)})
        if protocol is not None:
            actions.append({"protocol": _told(protocol)})
        if txn is not None:
            actions.append({"txn": {"appId": txn[0], "version": txn[1], "lastUpdated": now}})
        for gone in rows.removed:
            removal = {"path": gone.path, "deletionTimestamp": now, "dataChange": changes_data}
            size = {"extendedFileMetadata": True, "partitionValues": {}, "size": gone.size}
            actions.append({"remove": {**removal, **size}})
        try:
            for each in rows.written:
                filed = each.rename_columns(self.columns.filed.names).cast(self.columns.filed)
                path, bytes_, stats = put_file(self.files, self.path, filed)
                addition = {"path": path, "partitionValues": {}, "size": bytes_, "modificationTime": now}
                actions.append({"add": {**addition, "dataChange": changes_data, "stats": stats}})
            data = "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions).encode()
            self._commit(data)
        finally:  # a removed folder takes no files
            self._check_in_place()
        self._check_goes_on(actions)
        kept = metadata or (None if self.base is None else self.base.metadata)
        if kept is not None:
            properties = kept.configuration
            keep_house(
                self.files, self.path, self.number, properties, lambda: bool(self._has(self.number, data))
            )

    def _check_in_place(self) -> None:
        """Raise MergeConflict if another worker has moved or dropped the table. A commit after that changes
        nothing: if the table has another name now, it has all rows that waited."""
        if is_moved(self.files):
            raise MergeConflict(f"{self.path}: the table was moved or dropped before version {self.number}")

    def _has(self, version: int, commit: bytes) -> bool | None:
        """Whether the table that is here has this commit, so that it is the same table. None if the version's
        file is gone."""
        try:
            return self.files.read(f"{self.path}/_delta_log/{version:020d}.json") == commit
        except FileNotFoundError:
            return None

    def _commit(self, data: bytes) -> None:
        if self.base is not None and self._has(self.base.version, self.base.commit) is False:
            raise MergeConflict(f"{self.path}: the table was dropped before version {self.number}")
        with suppress(AlreadyThere):  # it may be this one: a store's client repeats a put without an answer
            self.files.put(f"{self.path}/_delta_log/{self.number:020d}.json", data)
        # Spark's rename on a local disk may have replaced this commit.
        if not self._has(self.number, data):
            raise MergeConflict(f"{self.path}: another writer has put version {self.number}")

    def _check_goes_on(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Take the commit back if the table was moved or dropped: its puts have made the folder again. Raises
        MergeConflict."""
        folder = f"{self.path}/_delta_log"
        if self.base is None or (is_same := self._has(self.base.version, self.base.commit)):
            return
        if is_same is None:
            with suppress(Unknown):
                if self.number in found_in(self.files, folder)[1]:
                    return  # the log begins with a checkpoint
                raise MergeConflict(
                    f"{self.path}: others have put version {self.number}, and cleaned the log"
                )
        added = [f"{self.path}/{each['add']['path']}" for each in actions if "add" in each]
        for name in (f"{folder}/{self.number:020d}.json", *added):
            self.files.delete(name)
        raise MergeConflict(f"{self.path}: the table was moved or dropped before version {self.number}")

    # ---- statements

    def alter(self, operation: str, change: Callable[[ColumnChange], None], note: str | None = None) -> bool:
        """Commit a change of columns and properties. Returns False, with nothing changed, if Spark must do
        it: it has rules for older protocols. Raises like `put`."""
        assert self.base is not None
        old, changed = self.base.protocol, ColumnChange.of(self.base.metadata)
        try:
            change(changed)
        except ValueError:
            return False
        lacking = changed.features - old.features
        numbers = (old.min_reader_version, old.min_writer_version)
        if lacking and (numbers != (3, 7) or "timestampNtz" in lacking):
            return False
        protocol = with_features(old, lacking) if lacking else None
        self.put(operation, {}, note=note, metadata=changed.applied(self.base.metadata), protocol=protocol)
        return True

    # ---- rows

    def all_files(self) -> Sequence[TableFile]:
        """All files of the version before, without bounds."""
        assert self.base is not None
        return [TableFile(path, each.size, each.rows or 0, {}) for path, each in self.base.files.items()]

    def filled(self, values: Mapping[str, Any]) -> Rewrite | None:
        """Give each row these values, by the table's columns. None if Spark must do it."""
        named = self.columns.named
        try:
            scalars = {name: exact_scalar(value, named.field(name).type) for name, value in values.items()}
            return self.few_files({}, MOST_MEMORY).filled(self.all_files(), scalars)
        except (ValueError, TypeError, KeyError, pa.ArrowException):
            return None

    def few_files(self, key: Mapping[str, str], most_memory: int) -> FewFiles:
        """Return what rewrites the table's files. `key`: see FewFiles."""
        return FewFiles(self.files, self.path, self.columns, key, most_memory)


def with_features(protocol: Protocol, features: Iterable[str]) -> Protocol:
    """Return a protocol with more features, which readers must know, too."""
    more = sorted(features)
    readers = [*(protocol.reader_features or ()), *more]
    return Protocol(3, 7, readers, [*(protocol.writer_features or ()), *more])


def _told(action: msgspec.Struct) -> dict[str, Any]:
    """Return an action without its unknown parts."""
    told: dict[str, Any] = msgspec.to_builtins(action)
    return {name: value for name, value in told.items() if value is not None}


_FEATURES = frozenset(("timestampNtz", "appendOnly", "invariants", "columnMapping", "typeWidening"))
"""Delta features of tables that binlane creates, and features that these commits do not affect."""
_PROPERTIES = frozenset(
    (
        *("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"),
        *("delta.enableExpiredLogCleanup", "delta.feature.timestampNtz"),
        *("delta.minReaderVersion", "delta.minWriterVersion"),
        *(NAMES_MAPPED[0], LAST_ID, TYPES_WIDENED[0]),
    )
)
"""Table properties that do not affect how a commit is made."""
OF_COLUMNS = frozenset(("comment", ID, PHYSICAL_NAME, TYPE_CHANGES))
"""Column metadata that does not affect how a commit is made."""


def is_plain(table: Snapshot) -> bool:
    """Whether a table has no feature that only Spark supports."""
    protocol, metadata = table.protocol, table.metadata
    is_known = protocol.min_writer_version <= 2 or (
        protocol.min_writer_version == 7 and protocol.features <= _FEATURES
    )
    own = {name: value for name, value in metadata.configuration.items() if name.startswith("delta.")}
    intervals = [value for name, value in own.items() if name.endswith("RetentionDuration")]
    return (
        is_known
        and own.keys() <= _PROPERTIES
        and own.get(NAMES_MAPPED[0], "none") in ("none", NAMES_MAPPED[1])
        and all(duration_ms(each) is not None for each in intervals)
        and not metadata.partition_columns
        and metadata.format.get("provider") == "parquet"
        and all(each.get("metadata", {}).keys() <= OF_COLUMNS for each in every(metadata.fields))
    )


def can_be_made(schema: pa.Schema) -> bool:
    """Whether binlane itself creates such columns, and the names inside of them need no mapping."""
    names = {name.lower() for name in schema.names}
    return bool(names) and len(names) == len(schema.names) and all(_is_usual(each.type) for each in schema)


def _is_usual(arrow: pa.DataType) -> bool:
    if pa.types.is_struct(arrow):
        return all(not needs_mapping([each.name]) and _is_usual(each.type) for each in arrow)
    return arrow in USUAL or pa.types.is_decimal128(arrow)


def new_table(
    columns: Mapping[str, str | Mapping[str, Any]], properties: Mapping[str, str]
) -> tuple[Metadata, Protocol]:
    """Return a new table with these columns, as ColumnChange takes them. Raises ValueError."""
    made = ColumnChange([], dict(properties))
    for name, type_ in columns.items():
        made.add(name, type_)
    mapped = ("columnMapping",) if is_mapped(properties) else ()
    first = Metadata("", id=str(uuid.uuid4()), created_time=int(time.time() * 1000))
    return made.applied(first), with_features(NEW, mapped)


_OPERATION = re.compile(r"^(DELETE|UPDATE)|\b(SET TBLPROPERTIES|(?:ADD|DROP) COLUMNS|RENAME COLUMN)\b")


def operation_of(sql: str) -> str:
    """Return Delta's name of a statement."""
    named = re.sub("`(?:[^`]|``)*`", "", sql)
    found = _OPERATION.search(named)
    return found[0] if found else f"CHANGE COLUMN{'S' if named.count(' TYPE ') > 1 else ''}"
