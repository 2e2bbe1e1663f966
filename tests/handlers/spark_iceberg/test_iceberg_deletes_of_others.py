"""Deletes that other programs write beside the data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lab import IcebergLake, change
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deleting(_FastAppendFiles):
    """PyIceberg writes no manifest of deletes by itself."""

    deletes: DataFile

    def _manifests(self) -> list[Any]:
        schema, spec = self.schema(), self._transaction.table_metadata.spec()
        with _DeletesWriter(
            spec, schema, self.new_manifest_output(), self._snapshot_id, self._compression
        ) as writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=self.deletes
                )
            )
        return [writer.to_manifest_file(), *self._existing_manifests()]


def _delete_second(lake: IcebergLake, content: DataFileContent) -> None:
    """Delete the row with id 2: by its key, as Flink does, or by its place in the file. Both kinds of files
    may have statistics of the deleted row."""
    table = lake.table()
    path = f"{table.location()}/data/deletes.parquet"
    if content == DataFileContent.EQUALITY_DELETES:
        columns, values = [("id", pa.int32(), 1)], [[2]]
    else:
        columns = [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)]
        values = [[table.inspect.files()["file_path"][0].as_py()], [1]]
    fields = [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for name, kind, number in columns
    ]
    pq.write_table(pa.table(values, schema=pa.schema(fields)), path)
    bound = to_bytes(IntegerType(), 2)
    transaction = table.transaction()
    producer = _Deleting(Operation.DELETE, transaction, table.io)
    producer.deletes = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=Path(path).stat().st_size,
        value_counts={1: 1},
        null_value_counts={1: 0},
        lower_bounds={1: bound},
        upper_bounds={1: bound},
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    with producer:
        pass
    transaction.commit_transaction()


@pytest.mark.parametrize("changed", [1, 2])
def test_a_table_stops_whose_rows_others_deleted_by_keys(lake: IcebergLake, changed: int) -> None:
    """PyIceberg does not apply such deletes, so a file that is written again would get its rows back."""
    lake.take(*(change(number, {"id": number, "name": "a"}) for number in (1, 2, 3)))
    lake.merge()
    _delete_second(lake, DataFileContent.EQUALITY_DELETES)
    lake.take(change(4, {"id": changed, "name": "b"}))
    with pytest.raises(Exception, match="equality deletes"):
        lake.merge()
    assert len(lake.table().snapshots()) == 2


def test_rows_that_others_deleted_by_places_do_not_come_back(lake: IcebergLake) -> None:
    lake.take(*(change(number, {"id": number, "name": "a"}) for number in (1, 2, 3)))
    lake.merge()
    _delete_second(lake, DataFileContent.POSITION_DELETES)
    assert [row["id"] for row in lake.rows()] == [1, 3]
    lake.take(change(4, {"id": 1, "name": "b"}))
    lake.merge()
    assert [(row["id"], row["name"]) for row in lake.rows()] == [(1, "b"), (3, "a")]
