"""The statements that a real server ran, followed one after the other."""

from __future__ import annotations

import pytest
from captured import records, truth
from pyspark.sql.pandas.types import from_arrow_type
from spark_ddl_lab import DDLLake

from handlers import Change
from handlers.spark.rows.column_types import column_type
from worker.formats import registry
from worker.formats.interface import Skip


# In every run test_delta_replay.py follows them, with the rows between them.
@pytest.mark.soak
def test_all_statements_of_a_stream_lead_to_the_columns_of_its_source(lake: DDLLake) -> None:
    format_ = registry.get("canal")
    statements = 0
    for record in records("canal"):
        changes: list[Change] = []
        route = format_.explain(record)
        format_.decode(record, changes)
        for change in changes:
            if change.op in ("ddl", "truncate") and not isinstance(route, Skip):
                statements += 1
                lake.follow(change.sql, table=route.table, database=route.database, mortal=False)
    assert statements == 57  # ten more are about whole databases
    for name, source in truth("final").items():
        database, _, table = name.partition(".")
        expected = {
            column: from_arrow_type(column_type(type_).arrow, prefer_timestamp_ntz=True).simpleString()
            for column, type_ in source.columns.items()
        }
        assert list(lake.columns(table, database).items()) == list(expected.items()), name
    assert not lake.exists("swap_old", "crm")
    assert not lake.exists("coupons", "crm")
