"""Commits to Delta tables without Spark: a version's actions are put on condition that it does not exist.

By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from handlers.spark.delta.checkpoints import keep_house
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.few_files import FewFiles, Rewrite, put_file
from handlers.spark.delta.log_actions import Metadata, Protocol, Snapshot
from handlers.spark.delta.table_columns import ArrowColumns, ColumnChange
from handlers.spark.log.stores.interface import AlreadyThere, Files

NEW = Protocol(3, 7, ["timestampNtz"], ["timestampNtz", "appendOnly", "invariants"])
"""The protocol of each table that binlane creates (`runtime.conf`)."""
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
        for each in rows.written:
            filed = each.rename_columns(self.columns.filed.names).cast(self.columns.filed)
            path, bytes_, stats = put_file(self.files, self.path, filed)
            addition = {"path": path, "partitionValues": {}, "size": bytes_, "modificationTime": now}
            actions.append({"add": {**addition, "dataChange": changes_data, "stats": stats}})
        self._commit(actions)
        kept = metadata or (None if self.base is None else self.base.metadata)
        if kept is not None:
            keep_house(self.files, self.path, self.number, kept.configuration)

    def _commit(self, actions: Sequence[Mapping[str, Any]]) -> None:
        data = "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions).encode()
        path = f"{self.path}/_delta_log/{self.number:020d}.json"
        with suppress(AlreadyThere):  # it may be this one: a store's client repeats a put without an answer
            self.files.put(path, data)
        # Spark's rename on a local disk may have replaced this commit.
        if self.files.read(path) != data:
            raise MergeConflict(f"{self.path}: another writer has put version {self.number}")

    # ---- statements

    def alter(self, operation: str, change: ColumnChange, note: str | None) -> bool:
        """Commit a change of columns and properties. Returns False, with nothing changed, if the table's
        protocol must become another than Delta does for it. Raises like `put`."""
        assert self.base is not None
        old = self.base.protocol
        lacking = sorted(change.features - old.features)
        protocol = None
        if lacking:
            if old.min_writer_version != NEW.min_writer_version or "timestampNtz" in lacking:
                return False
            readers = [*(old.reader_features or ()), *lacking]
            protocol = Protocol(3, 7, readers, [*(old.writer_features or ()), *lacking])
        self.put(operation, {}, note=note, metadata=change.applied(self.base.metadata), protocol=protocol)
        return True

    def few_files(self, key: Mapping[str, str], most_memory: int) -> FewFiles:
        """Return what rewrites the table's files. `key`: see FewFiles."""
        return FewFiles(self.files, self.path, self.columns, key, most_memory)


def _told(action: msgspec.Struct) -> dict[str, Any]:
    """Return an action without its unknown parts."""
    told: dict[str, Any] = msgspec.to_builtins(action)
    return {name: value for name, value in told.items() if value is not None}
