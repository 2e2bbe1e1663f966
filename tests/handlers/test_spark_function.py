"""Mode `function`: what an own function is given, and what becomes of what it raises."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from spark_sessions import SHARED, SparkKeeper

from handlers import PartialFailure, Rejected
from handlers.loading.registry import HandlerTypeError, load_function
from handlers.spark import SparkHandler
from handlers.testing import make_batch, opened
from worker.configuration import ConfigurationError, load

MODULE = '''
from handlers import PartialFailure, Rejected

CALLS = []
RAISE = {}
"""At which call (from 0) to raise what."""

def keep(frame, batch):
    """Notes what it is given."""
    place = len(CALLS)
    CALLS.append((frame.toArrow(), frame.dtypes, batch))
    if place in RAISE:
        raise RAISE[place]

def view(frame, batch):
    session = frame.sparkSession
    frame.createOrReplaceTempView("batch")
    CALLS.append(session.sql("SELECT sum(id) FROM batch").collect()[0][0])

def broken(frame, batch):
    frame.select("nope").collect()

async def later(frame, batch):
    pass

def lonely(frame):
    pass

class Frames:
    pass

LIMIT = 3
'''
TYPES = {"id": "int", "price": "decimal(10,2)", "at": "datetime(6)"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("function")
    (folder / "own_functions.py").write_text(MODULE)
    return folder


@pytest.fixture(scope="module")
def _spark(spark_keeper: SparkKeeper) -> None:
    """One Spark for all handlers of the module."""
    spark_keeper.get()


@pytest.fixture
def own(_spark: None, folder: Path) -> Any:
    """The functions' module, with nothing noted yet."""
    import sys

    load_function("own_functions:keep", folder, ("frame", "batch"))
    module = sys.modules["own_functions"]
    module.CALLS.clear()
    module.RAISE.clear()
    return module


def handle(folder: Path, *changes: dict[str, Any], name: str = "keep", **options: Any) -> None:
    handler = SparkHandler(mode="function", function=f"own_functions:{name}", **options)
    types = options.pop("types", TYPES)
    with opened(handler, folder, spark=SHARED):
        handler.handle(make_batch("shop.orders", changes, key="id", types=types, offset=10))


ROW = {"id": 1, "price": "12.50", "at": "2026-11-21 08:00:00.000001"}
ALTER = {"sql": "ALTER TABLE orders ADD n int"}


def test_each_change_is_a_row_in_the_sources_types(own: Any, folder: Path) -> None:
    handle(folder, ROW, {"before": ROW, "after": ROW | {"price": "13.00"}}, {"before": ROW, "after": None})
    [(table, dtypes, batch)] = own.CALLS
    assert dict(dtypes)["at"] == "timestamp_ntz"
    assert dict(dtypes)["price"] == "decimal(10,2)"
    assert dict(dtypes)["_source_time"] == "timestamp"
    rows = table.to_pylist()
    assert [row["_op"] for row in rows] == ["insert", "update", "delete"]
    assert [row["_offset"] for row in rows] == [10, 11, 12]
    assert [str(row["price"]) for row in rows] == ["12.50", "13.00", "12.50"]
    assert rows[1]["_before"]["at"] == datetime.datetime(2026, 11, 21, 8, 0, 0, 1)
    assert batch.table == "shop.orders"
    assert len(batch.changes) == 3


def test_ddl_is_a_call_of_its_own_between_the_rows_before_and_after_it(own: Any, folder: Path) -> None:
    handle(folder, ROW, ALTER, ROW | {"id": 2})
    told = [(table["_op"].to_pylist(), table["_sql"].to_pylist()) for table, _, _ in own.CALLS]
    assert told == [(["insert"], [None]), (["ddl"], [ALTER["sql"]]), (["insert"], [None])]
    assert [[change.offset for change in batch.changes] for _, _, batch in own.CALLS] == [[10], [11], [12]]
    assert [batch.positions for _, _, batch in own.CALLS][1] == {("test", 0): (11, 11)}


def test_a_batch_that_is_ddl_alone_comes_without_columns_of_rows(own: Any, folder: Path) -> None:
    handle(folder, ALTER)
    assert [name for name, _ in own.CALLS[0][1]][-1] == "_sql"


def test_the_columns_option_wins_and_the_prefix_is_the_users(own: Any, folder: Path) -> None:
    handle(folder, ROW, columns={"price": "decimal(12,4)"}, prefix="cdc_")
    dtypes = dict(own.CALLS[0][1])
    assert dtypes["price"] == "decimal(12,4)"
    assert dtypes["cdc_op"] == "string"


@pytest.mark.parametrize(
    ("raised", "done", "cause"),
    [
        (ValueError("no"), 1, ValueError),
        (PartialFailure(1, ValueError("no")), 2, ValueError),
        (Rejected("bad", at=0), 1, Rejected),
    ],
)
def test_what_a_later_call_raises_leaves_the_earlier_ones_done(
    own: Any, folder: Path, raised: Exception, done: int, cause: type[Exception]
) -> None:
    own.RAISE[1] = raised
    with pytest.raises(PartialFailure) as caught:
        handle(folder, ALTER, ROW, ROW | {"id": 2})
    assert (caught.value.done, type(caught.value.cause)) == (done, cause)


def test_a_row_that_is_rejected_within_a_later_call_is_met_again_by_the_next_attempt(
    own: Any, folder: Path
) -> None:
    own.RAISE[1] = Rejected("bad", at=1)
    with pytest.raises(PartialFailure) as caught:
        handle(folder, ALTER, ROW, ROW | {"id": 2})
    assert caught.value.done == 1
    assert not isinstance(caught.value.cause, Rejected)


def test_what_the_only_call_raises_is_raised_as_it_is(own: Any, folder: Path) -> None:
    own.RAISE[0] = Rejected("bad", at=0)
    with pytest.raises(Rejected, match="bad"):
        handle(folder, ROW)


def test_an_error_of_spark_names_table_offset_and_function(own: Any, folder: Path) -> None:
    expected = r"shop\.orders, test\[0\] from offset 10 on: own_functions:broken: AnalysisException: \[UNRES"
    with pytest.raises(RuntimeError, match=expected) as caught:
        handle(folder, ROW, name="broken")
    assert len(str(caught.value).splitlines()) == 1


def test_temporary_views_of_one_call_are_not_seen_by_another_that_runs(own: Any, folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    handler = SparkHandler(mode="function", function="own_functions:view")
    with opened(handler, folder, spark=SHARED), ThreadPoolExecutor(4) as threads:
        batches = [make_batch(f"shop.t{n}", [{"id": n}], key="id", types={"id": "int"}) for n in range(12)]
        list(threads.map(handler.handle, batches))
    assert sorted(own.CALLS) == list(range(12))


def test_without_a_batch_it_tells_where_spark_runs(own: Any, folder: Path) -> None:
    handler = SparkHandler(mode="function", function="own_functions:keep")
    assert handler.status() is None
    with opened(handler, folder, spark=SHARED):
        told = handler.status()
    assert told is not None
    assert told["spark"]["master"] == "local[2]"
    assert told["spark"]["ui"] is None


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            "own_functions:kep",
            "the module own_functions has no kep; allowed: .*keep.*nearest: own_functions:keep",
        ),
        ("own_function:keep", "there is no module own_function on PYTHONPATH or in"),
        ("own_functions:later", r"later is async.*allowed: def later\(frame, batch\)"),
        ("own_functions:lonely", r"lonely cannot be called with \(frame, batch\): too many positional"),
        ("own_functions:Frames", "Frames is not a function"),
        ("own_functions:LIMIT", "LIMIT is not a function"),
    ],
)
def test_a_function_that_cannot_be_called_is_found_before_anything_runs(
    folder: Path, function: str, told: str
) -> None:
    with pytest.raises(HandlerTypeError, match=told):
        load_function(function, folder, ("frame", "batch"))
    config = folder / "binlane.yaml"
    config.write_text(
        "kafka: {bootstrap_servers: b:1, group_id: g, topics: [t]}\nformat: canal\n"
        f"tables: [{{match: '*', handlers: [{{type: spark, mode: function, function: '{function}'}}]}}]\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        load(config)
    [fault] = caught.value.faults
    assert fault.path == "tables[0].handlers[0].function"
    assert fault.line == 3
