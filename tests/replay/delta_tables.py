"""What `spark` handlers keep of a stream."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from captured import truth
from delta_reading import column_types, read_delta
from pyspark.sql import SparkSession
from replica import Differences, Row, Workload, compare_all

from handlers.spark.table_ref import path_of

__all__ = ["Place", "Tables", "places_in_parquet", "wrong_types"]

Place = tuple[str, str, str, int, int, int]
"""(table, operation, topic, partition, offset, index) of a change."""

_PLACE = ("_op", "_topic", "_partition", "_offset", "_index")


class Tables:
    """The Delta tables in one folder: folder/database/table."""

    def __init__(self, folder: Path, spark: Callable[[], SparkSession]) -> None:
        """`spark` gives a session for tables that only Spark reads."""
        self._spark = spark
        self._folders = {
            f"{path_of(log.parts[-3])}.{path_of(log.parts[-2])}": log.parent
            for log in folder.glob("*/*/_delta_log")
        }

    @property
    def names(self) -> set[str]:
        return set(self._folders)

    def rows(self, table: str) -> list[Row]:
        return read_delta(self._folders[table], spark=self._spark)

    def current(self, table: str) -> list[Row]:
        """Those rows of a history that the source has now."""
        return read_delta(self._folders[table], where="_current", spark=self._spark)

    def types(self, table: str) -> dict[str, str]:
        """Column -> its type, as Spark spells it."""
        return column_types(self._folders[table])

    def differences(
        self, tables: Sequence[str] | None = None, workload: Workload | None = None
    ) -> Differences:
        """Of replicas: see Replica.differences."""
        return compare_all(self.names, self.rows, tables, workload)

    def places(self) -> Counter[Place]:
        """Of a changelog, where each of its rows comes from."""
        return Counter(
            (table, *(row[name] for name in _PLACE))
            for table in self.names
            for row in read_delta(self._folders[table], ", ".join(_PLACE), spark=self._spark)
        )


def places_in_parquet(folder: Path) -> Counter[Place]:
    """Of a changelog of plain files: folder/database/table/*.parquet."""
    found: Counter[Place] = Counter()
    for file in folder.glob("*/*/*.parquet"):
        table = f"{file.parts[-3]}.{path_of(file.parts[-2])}"
        # The file alone: its schema is its own, and folder names that hold `=` are no columns.
        columns = pq.ParquetFile(file).read(list(_PLACE)).to_pydict()
        found.update((table, *row) for row in zip(*(columns[name] for name in _PLACE), strict=True))
    return found


# ---- types: as docs/spark.md says

_SPARK_TYPES: Sequence[tuple[str, str]] = (
    (r"tinyint.* unsigned", "smallint"),
    (r"tinyint", "tinyint"),
    (r"smallint.* unsigned|mediumint|int(?!.* unsigned)", "int"),
    (r"smallint|year", "smallint"),
    (r"int.* unsigned|bigint(?!.* unsigned)", "bigint"),
    (r"bigint.* unsigned|bit\(64\)", "decimal(20,0)"),
    (r"bit", "bigint"),
    (r"float", "float"),
    (r"double", "double"),
    (r"datetime", "timestamp_ntz"),
    (r"date", "date"),
    (r"timestamp", "timestamp"),
    (r"binary|varbinary|\w*blob|point|geometry", "binary"),
    (r"set", "array<string>"),
    (r"char|varchar|\w*text|enum|json|time", "string"),
)


def spark_type(source: str) -> str:
    """The type of a column for the source's type, as SHOW COLUMNS tells it."""
    sizes = re.match(r"decimal(\(\d+,\d+\))", source)
    if sizes is not None:
        return f"decimal{sizes[1]}"
    return next(type_ for pattern, type_ in _SPARK_TYPES if re.match(f"(?:{pattern})", source))


def wrong_types(tables: Tables) -> dict[str, str]:
    """Column -> its type and the right one, for columns of the source's with another."""
    return dict(_wrong_types(tables))


def _wrong_types(tables: Tables) -> Iterator[tuple[str, str]]:
    for table in sorted(tables.names & truth().keys()):
        found = tables.types(table)
        for column, source in truth()[table].columns.items():
            right = spark_type(source)
            if column in found and found[column] != right:
                yield f"{table}.{column}", f"{found[column]}, not {right}"
