"""A version of a Delta table, and the actions of its log.

By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec


class DataFile(NamedTuple):
    """One Parquet file of a table."""

    size: int
    """Bytes."""
    rows: int | None
    """Without deleted ones. None if the log does not say."""
    partition: Mapping[str, str | None]
    """The values of the partition columns, by the columns' names in files."""
    deletion_vector: DeletionVector | None
    """Which rows are deleted. None: none."""
    stats: str | None = None
    """What the log says about the file's values, as JSON, if it was asked for."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table, with its files."""

    version: int
    metadata: Metadata
    protocol: Protocol
    files: Mapping[str, DataFile]
    """By the path, as the log has it: relative to the table, URL-encoded."""
    writers: Mapping[str, int]
    """The identifiers of applications (`TableRef.app_id`) that record their commits, with the last number."""
    removed: Mapping[str, int]
    """Files of earlier versions, if they were asked for -> when they were removed, in milliseconds since
    1970."""
    commit: bytes = b""
    """The version's commit, which no other table has. Empty if its file was removed."""

    @property
    def rows(self) -> int | None:
        """None if the log does not say how many rows a file has."""
        counts = [each.rows for each in self.files.values() if each.rows is not None]
        return sum(counts) if len(counts) == len(self.files) else None

    @property
    def bytes(self) -> int:
        """The total size of its files."""
        return sum(each.size for each in self.files.values())


class Stats(msgspec.Struct, rename="camel"):
    num_records: int


class Bounds(msgspec.Struct, rename="camel"):
    """The least and greatest values of columns, by their names in the file."""

    min_values: dict[str, Any] | None = None
    max_values: dict[str, Any] | None = None


class DeletionVector(msgspec.Struct, rename="camel", frozen=True):
    storage_type: str
    path_or_inline_dv: str
    cardinality: int
    offset: int | None = None


class Add(msgspec.Struct, rename="camel"):
    path: str
    size: int
    stats: str | None = None
    partition_values: dict[str, str | None] = {}
    deletion_vector: DeletionVector | None = None


class Remove(msgspec.Struct, rename="camel"):
    path: str
    deletion_timestamp: int | None = None
    deletion_vector: DeletionVector | None = None


class Sidecar(msgspec.Struct):
    path: str


class Txn(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class Metadata(msgspec.Struct, rename="camel"):
    """A table's metadata, without its files."""

    schema_string: str
    """As JSON."""
    id: str = ""
    name: str | None = None
    description: str | None = None
    format: dict[str, Any] = msgspec.field(default_factory=lambda: {"provider": "parquet", "options": {}})
    partition_columns: list[str] = []
    configuration: dict[str, str] = {}
    created_time: int | None = None

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as the log has them."""
        return list(json.loads(self.schema_string)["fields"])

    @property
    def columns(self) -> dict[str, Sequence[str]]:
        """Each with the names of its fields, if it is a struct."""
        return {each["name"]: _within(each["type"]) for each in self.fields}


class Protocol(msgspec.Struct, rename="camel"):
    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None

    @property
    def features(self) -> set[str]:
        return {*(self.reader_features or ()), *(self.writer_features or ())}


class CommitInfo(msgspec.Struct, rename="camel"):
    user_metadata: str | None = None
    operation: str | None = None
    operation_parameters: dict[str, Any] | None = None


class LastCheckpoint(msgspec.Struct):
    version: int


class Action(msgspec.Struct, rename="camel"):
    add: Add | None = None
    remove: Remove | None = None
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    sidecar: Sidecar | None = None
    txn: Txn | None = None
    commit_info: CommitInfo | None = None


read_action = msgspec.json.Decoder(Action).decode
read_last_checkpoint = msgspec.json.Decoder(LastCheckpoint).decode
read_stats = msgspec.json.Decoder(Stats).decode


def _within(kind: Any) -> Sequence[str]:
    is_struct = isinstance(kind, dict) and kind.get("type") == "struct"
    return [each["name"] for each in kind["fields"]] if is_struct else ()
