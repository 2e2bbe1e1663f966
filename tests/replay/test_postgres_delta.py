"""Every record of PostgreSQL's streams through the format and the `spark` handler: what its replicas hold at
the end are the source's own rows, but for what the records do not tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from captured import POSTGRES_STREAMS
from delta_tables import Tables
from postgres_differences import expected
from postgres_rows import IN_CALENDAR
from postgres_streams import batches_of_postgres
from replica import Differences
from spark_sessions import SHARED, SparkKeeper

from handlers import Batch, HandlerContext, Rejected
from handlers.spark import SparkHandler

pytestmark = pytest.mark.long

# What no type but these holds, and no record tells.
_TYPED = {
    "public.evolving": {"a": "bigint", "age": "string"},
    "public.key_infinity": {"t": "string"},
}
# Without schemas it stays base64.
_RATING = {"postgres-schemas": "decimal(10,4)", "postgres-plain": "string", "postgres-unwrap": "string"}
_SOME = ("public.nums", "public.times", "public.key_infinity", "public.evolving", "crm.Weird Table-名")
"""Each takes some seconds."""


class Lakes:
    """A handler of each table that needs options of its own, and one of the others."""

    def __init__(self, folder: Path, stream: str) -> None:
        self.rejected: Counter[str] = Counter()
        self._folder = folder
        types = {**_TYPED, "public.evolving": {**_TYPED["public.evolving"], "rating": _RATING[stream]}}
        self._handlers = {table: self._opened(table, {"columns": own}) for table, own in types.items()}
        self._others = self._opened("others", {})

    def _opened(self, name: str, options: dict[str, Any]) -> SparkHandler:
        path = f"{self._folder}/{name}/{{database}}/{{table}}"
        handler = SparkHandler(
            mode="replica", path=path, merge={"max_age": "1h", "at_close": "10m"}, **options
        )
        handler.open(HandlerContext(worker="test", handler=name, folder=self._folder, spark=SHARED))
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

    def differences(self, tables: Sequence[str], keeper: SparkKeeper) -> Differences:
        """Of these tables."""
        others = [table for table in tables if table not in self._handlers]
        found: Differences = {}
        for name, own in {**{table: [table] for table in self._handlers}, "others": others}.items():
            kept = Tables(self._folder / name, lambda: keeper.get().session)
            found |= kept.differences(own, IN_CALENDAR)
        return found


@pytest.fixture
def make_lakes(tmp_path: Path, spark_keeper: SparkKeeper) -> Iterator[Callable[[str], Lakes]]:
    spark_keeper.get()
    with ExitStack() as stack:

        def make(stream: str) -> Lakes:
            lakes = Lakes(tmp_path, stream)
            stack.callback(lakes.close)
            return lakes

        yield make


def kept(stream: str, tables: Sequence[str]) -> Differences:
    return {place: rows for place, rows in expected(stream, "delta").items() if place[0] in tables}


@pytest.mark.soak
def test_some_tables_of_a_stream_of_postgresql_are_those_of_their_source(
    make_lakes: Callable[[str], Lakes], spark_keeper: SparkKeeper
) -> None:
    lakes = make_lakes("postgres-schemas")
    for batch in batches_of_postgres("postgres-schemas", [], in_calendar=True):
        if batch.table in _SOME:
            lakes.take(batch)
    lakes.close()
    assert lakes.rejected == {}
    assert lakes.differences(_SOME, spark_keeper) == kept("postgres-schemas", _SOME)


@pytest.mark.soak
@pytest.mark.timeout(1200)  # two minutes of CPU: nine minutes on a busy machine
@pytest.mark.parametrize("stream", POSTGRES_STREAMS)
def test_a_stream_of_postgresql_leaves_the_tables_of_its_source(
    stream: str, make_lakes: Callable[[str], Lakes], spark_keeper: SparkKeeper
) -> None:
    lakes = make_lakes(stream)
    for batch in batches_of_postgres(stream, [], in_calendar=True):
        lakes.take(batch)
    lakes.close()
    # Updates that do not tell their row, of tables without a key: one that was dropped, those of flattened
    # records. Rows that get another key without their large values.
    rejected = {"public.dropped": 1, "public.toasted": 2, "public.toasted_index": 1}
    if stream == "postgres-unwrap":
        rejected |= {"public.no_key_full": 10, "public.toasted_nokey": 19}
    assert lakes.rejected == rejected
    assert lakes.differences(tuple(IN_CALENDAR.truth()), spark_keeper) == expected(stream, "delta")
