"""A table is read without Spark while a DROP takes it away."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.read.in_duckdb import Source, read
from handlers.spark.table_ref import TableRef


class Leaving(LocalFiles):
    """The table is moved away between the look whether there is one and the first look at its files."""

    def list_after(self, folder: str, name: str):  # type: ignore[no-untyped-def]
        if folder.endswith("/_delta_log") and Path(folder).exists():
            table = Path(folder).parent
            table.rename(table.with_name("away"))
        return super().list_after(folder, name)


def test_it_is_gone_and_no_table_for_spark_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    deltalake.write_deltalake(path, pa.table({"id": [1]}))
    with pytest.raises(LookupError, match="neither a table"):
        read(Source(Leaving(), TableRef(f"delta.`{path}`", path, str(tmp_path / "pending")), "_"))
    assert Path(tmp_path, "away").exists()
