"""A folder of Delta tables, in which statements of a source are followed, with a crash before every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_reading import column_types, read_delta, table_at

from handlers import Change
from handlers.mysql.ddl import TableName
from handlers.mysql.ddl.rules import DDLRules
from handlers.spark.ddl.follow import DDLResult, follow
from handlers.spark.ddl.progress import Surroundings
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions, SparkOptions
from handlers.spark.rows.shape import Mode
from handlers.spark.runtime.session import SharedSpark
from handlers.spark.table_ref import TableRef, path_safe

__all__ = ["IN_ONE_LIFE", "TIME_MS", "DDLLake", "MakeLake"]

IN_ONE_LIFE = pytest.mark.parametrize("mortal", [False, pytest.param(True, marks=pytest.mark.soak)])
"""For tests of values: that a statement goes on wherever a worker dies is what the others are for."""

TIME_MS = 1_750_000_000_000  # 2025-06-15T15:06:40Z


class Crashed(Exception):
    """The worker dies here."""


class Life:
    """Of one worker: it dies before it has done more than so much."""

    def __init__(self, steps: int | None) -> None:
        self._left = steps

    def step(self) -> None:
        if self._left is not None:
            if self._left == 0:
                raise Crashed
            self._left -= 1


class MortalFiles(LocalFiles):
    def __init__(self, life: Life) -> None:
        self._life = life

    def put(self, path: str, data: Any) -> None:
        if not path.endswith(".parquet"):  # of a commit that comes next
            self._life.step()
        super().put(path, data)

    def delete(self, path: str) -> None:
        self._life.step()
        super().delete(path)

    def delete_tree(self, folder: str) -> None:
        self._life.step()
        super().delete_tree(folder)

    def rename(self, source: str, target: str) -> None:
        self._life.step()
        super().rename(source, target)


class MortalConf:
    def __init__(self, conf: Any, life: Life) -> None:
        self._conf = conf
        self._life = life

    def set(self, key: str, value: str) -> None:
        """The note is set right before each commit."""
        if key.endswith(".userMetadata"):
            self._life.step()
        self._conf.set(key, value)

    def get(self, key: str, default: str | None) -> str | None:
        found: str | None = self._conf.get(key, default)
        return found

    def unset(self, key: str) -> None:
        self._conf.unset(key)


class MortalSession:
    def __init__(self, session: Any, life: Life) -> None:
        self._session = session
        self._life = life
        self.conf = MortalConf(session.conf, life)

    def sql(self, text: str) -> Any:
        if text.startswith("DROP TABLE") or " RENAME TO " in text:
            self._life.step()  # these make no commit
        return self._session.sql(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


NOTE = '{"binlane": {"worker": "test", "handler": "spark"}}'


@dataclass
class DDLLake:
    spark: SharedSpark
    folder: Path
    mode: Mode = "replica"
    engine: str = "auto"
    """Who makes commits."""
    catalog: str | None = None
    """A template: the tables are in Spark's catalog."""
    overrides: dict[str, pa.DataType] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    handles: Callable[[str], bool] = lambda _: True
    settled: list[str] = field(default_factory=list)
    look_again: Callable[[], None] = lambda: None
    offset: int = 0

    def __post_init__(self) -> None:
        self.session = self.spark.fresh()

    def ref(self, name: TableName) -> TableRef:
        if self.catalog is not None:
            return TableRef(self.catalog.format(**name._asdict()), None, f"{self.folder}/logs")
        return table_at(f"{self.folder}/{path_safe(name.database)}/{path_safe(name.table)}")

    def sql_of(self, table: str, database: str = "db") -> str:
        return self.ref(TableName(database, table)).sql

    def put(self, table: str, columns: str, *rows: str, database: str = "db", made: str = "binlane") -> None:
        """A table of these columns and rows (as SQL values), `made` by binlane or by somebody else."""
        parts = [part.strip().rpartition(" ") for part in columns.split(";")]
        sources = [f"c{at}" for at in range(len(parts))]
        listed = [
            f"CAST({one} AS {type_}) AS {name}" for one, (name, _, type_) in zip(sources, parts, strict=True)
        ]
        values = ", ".join(f"({row})" for row in rows) or f"({', '.join(['null'] * len(parts))})"
        mapping = "name" if "`" in columns else "none"
        self.session.sql(
            f"CREATE TABLE {self.sql_of(table, database)} USING delta "
            f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}', '{made}.made' = 'true') "
            f"AS SELECT {', '.join(listed)} FROM VALUES {values} AS v({', '.join(sources)})"
            f"{'' if rows else ' WHERE false'}"
        )

    def follow(
        self,
        sql: str | None,
        *,
        table: str = "t",
        database: str = "db",
        rules: DDLRules | None = None,
        key: tuple[str, ...] | None = None,
        mortal: bool = True,
    ) -> DDLResult:
        """The statement by workers that die after one step each, until one has nothing left to do; the last
        result in which something was done. Not `mortal`: by one worker, once."""
        self.offset += 1
        done: tuple[str, ...] = ()
        for _ in range(150):
            life = Life(1 if mortal else None)
            try:
                result = self._follow(sql, TableName(database, table), life, rules, key)
            except Crashed:
                continue
            done = result.done or done
            if not result.done or not mortal:
                return DDLResult(result.touched, done, result.key)
        raise AssertionError(f"always something left to do: {done}")

    def _follow(
        self, sql: str | None, own: TableName, life: Life, rules: DDLRules | None, key: Any
    ) -> DDLResult:
        op: Any = "truncate" if sql is None else "ddl"
        change = Change(op, None, None, None, sql, TIME_MS, "cdc", 0, self.offset, 0, None, None)
        files = MortalFiles(life)
        options = SparkOptions(
            mode=self.mode,
            properties=self.properties,
            partition_by=list(self.partition_by),
            cluster_by=list(self.cluster_by),
            merge=MergeOptions.model_validate({"engine": self.engine}),
            ddl=rules or DDLRules.model_validate({}),
        )
        without_spark = WithoutSpark(options, files)
        around = Surroundings(
            options,
            self.ref,
            files,
            f"{self.folder}/_binlane",
            settle=lambda name: self.settled.append(".".join(name)),
            databases_of=lambda _: self._databases(),
            handles=self.handles,
            overrides=self.overrides,
            next_version=without_spark.next_version,
            create=without_spark.create,
        )
        session: Any = MortalSession(self.session, life)
        return follow(lambda: session, change, around, own, note=NOTE, key=key, look_again=self.look_again)

    def _databases(self) -> list[str]:
        return ["db", "other"] if self.catalog else [one.name for one in self.folder.iterdir()]

    # ---- what there is

    def exists(self, table: str, database: str = "db") -> bool:
        ref = self.ref(TableName(database, table))
        return self.session.catalog.tableExists(ref.sql) if ref.path is None else Path(ref.path).exists()

    def rows(self, what: str = "*", table: str = "t", database: str = "db") -> list[tuple[Any, ...]]:
        """Ordered by the first column."""
        path = self.ref(TableName(database, table)).path
        if path is not None:
            found = read_delta(Path(path), what, spark=lambda: self.session)
        else:
            query = f"SELECT {what} FROM {self.sql_of(table, database)}"
            found = self.session.sql(query).toArrow().to_pylist()
        rows = [tuple(row.values()) for row in found]
        return sorted(rows, key=lambda row: (row[0] is not None, row[0]))

    def columns(self, table: str = "t", database: str = "db") -> dict[str, str]:
        path = self.ref(TableName(database, table)).path
        if path is not None:
            return column_types(Path(path))
        fields = self.session.table(self.sql_of(table, database)).schema.fields
        return {one.name: one.dataType.simpleString() for one in fields}

    def commits(self, table: str = "t", database: str = "db") -> list[str]:
        """Operations since the table was made, oldest first."""
        history = self.session.sql(f"DESCRIBE HISTORY {self.sql_of(table, database)}").collect()
        return [row.operation for row in reversed(history)][1:]


MakeLake = Callable[..., DDLLake]
