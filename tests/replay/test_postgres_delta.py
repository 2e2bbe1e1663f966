"""Every record of PostgreSQL's streams through the format and the `spark` handler: what its replicas hold at
the end are the source's own rows, but for what the records do not tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from captured import POSTGRES_STREAMS
from delta_tables import Tables
from postgres_differences import expected
from postgres_rows import POSTGRESQL
from postgres_streams import batches_of_postgres
from replica import Differences
from spark_sessions import LIGHT, SparkKeeper

from handlers import Batch, HandlerContext, Rejected
from handlers.spark import SparkHandler

pytestmark = pytest.mark.long

# What no type but these holds, and no record tells.
_TYPED = {
    "public.evolving": {"a": "bigint", "age": "string", "rating": "decimal(10,4)"},
    "public.key_infinity": {"t": "string"},
}
_SOME = ("public.nums", "public.times", "public.key_infinity", "public.evolving", "crm.Weird Table-名")
"""Each takes some seconds."""


class Lakes:
    """A handler of each table that needs options of its own, and one of the others."""

    def __init__(self, folder: Path) -> None:
        self.rejected: Counter[str] = Counter()
        self._folder = folder
        self._handlers = {table: self._opened(table, {"columns": types}) for table, types in _TYPED.items()}
        self._others = self._opened("others", {})

    def _opened(self, name: str, options: dict[str, Any]) -> SparkHandler:
        path = f"{self._folder}/{name}/{{database}}/{{table}}"
        handler = SparkHandler(
            mode="replica", path=path, merge={"max_age": "1h", "at_close": "10m"}, **options
        )
        handler.open(HandlerContext(worker="test", handler=name, folder=self._folder, spark=LIGHT))
        return handler

    def take(self, batch: Batch) -> None:
        """The batch; of one that is rejected all that are not, as with `on_failure: skip`."""
        handler = self._handlers.get(batch.table, self._others)
        try:
            handler.handle(batch)
        except Rejected:
            if len(batch.changes) == 1:
                self.rejected[batch.table] += 1
            else:
                for change in batch.changes:
                    self.take(Batch(batch.table, [change], database=batch.database, name=batch.name))

    def close(self) -> None:
        for handler in (*self._handlers.values(), self._others):
            handler.close()

    def differences(self, tables: tuple[str, ...] | None, keeper: SparkKeeper) -> Differences:
        found: Differences = {}
        for name in (*self._handlers, "others"):
            kept = Tables(self._folder / name, lambda: keeper.get().session)
            there = tuple(table for table in kept.names if tables is None or table in tables)
            found |= kept.differences(there, POSTGRESQL)
        return found


@pytest.fixture
def lakes(tmp_path: Path, spark_keeper: SparkKeeper) -> Iterator[Lakes]:
    spark_keeper.get()
    made = Lakes(tmp_path)
    yield made
    made.close()


def kept(stream: str, tables: tuple[str, ...]) -> Differences:
    return {place: rows for place, rows in expected(stream, "delta").items() if place[0] in tables}


def test_some_tables_of_a_stream_of_postgresql_are_those_of_their_source(
    lakes: Lakes, spark_keeper: SparkKeeper
) -> None:
    for batch in batches_of_postgres("postgres-schemas", []):
        if batch.table in _SOME:
            lakes.take(batch)
    lakes.close()
    assert lakes.rejected == {}
    assert lakes.differences(_SOME, spark_keeper) == kept("postgres-schemas", _SOME)


@pytest.mark.soak
@pytest.mark.parametrize("stream", POSTGRES_STREAMS)
def test_a_stream_of_postgresql_leaves_the_tables_of_its_source(
    stream: str, lakes: Lakes, spark_keeper: SparkKeeper
) -> None:
    for batch in batches_of_postgres(stream, []):
        lakes.take(batch)
    lakes.close()
    # Updates that do not tell their row, of tables without a key: one that was dropped, those of flattened
    # records.
    rejected = {"public.dropped": 1}
    if stream == "postgres-unwrap":
        rejected |= {"public.no_key_full": 10, "public.toasted_nokey": 19}
    assert lakes.rejected == rejected
    everything = tuple({place[0] for place in expected(stream, "delta")} | set(POSTGRESQL.truth()))
    assert lakes.differences(everything, spark_keeper) == expected(stream, "delta")
