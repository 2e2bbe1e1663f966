"""`binlane query` and `binlane.read`: rows of tables by their names in the source, without Spark."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
import sqlglot
from verify_lab import Stage
from view_lab import HandMade, row

import binlane
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.locations import path_safe
from handlers.spark.log.marks import Marks

HANDLERS = [
    {"type": "spark", "mode": "replica"},
    {"type": "spark", "mode": "changelog", "name": "changes", "path": "lake/changes/{database}/{table}"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A replica of three rows, the newest of which waits, and its changelog, which has nothing merged."""
    Stage(tmp_path, None).configure([{"match": "shop.*", "handlers": HANDLERS}])
    orders = HandMade(None, tmp_path / "lake")
    merged = {"id": [1, 2], "name": ["one", "two"], "price": pa.array([1, 2], pa.int32())}
    deltalake.write_deltalake(orders.path, pa.table(merged))
    orders.put(row(2, op="delete"), row(3, "a,\x1b[1m", 3), row(4, None, 4))
    changes = HandMade(None, tmp_path / "lake/changes", mode="changelog")
    changes.put(row(1, op="insert", topic="cdc", partition=0, offset=7, index=0))
    return tmp_path


def run(folder: Path, sql: str, *options: str, code: int = 0, match: str = "shop.*") -> str:
    """What is printed; with code 1 what is told on standard error."""
    stage = Stage(folder, None)
    stage.configure([{"match": match, "handlers": HANDLERS}])
    ended, out, err = stage.run("query", sql, *options)
    assert ended == code
    assert (out if code else err) == ""
    return err if code else out


QUERY = "SELECT o.id, o.name, {'p': price::DECIMAL(5,2)} AS more FROM shop.orders AS o ORDER BY id"


def test_a_query_sees_waiting_rows_in_each_format(folder: Path) -> None:
    assert [json.loads(line) for line in run(folder, QUERY, "--format", "json").splitlines()] == [
        {"id": 1, "name": "one", "more": {"p": "1.00"}},
        {"id": 3, "name": "a,\x1b[1m", "more": {"p": "3.00"}},
        {"id": 4, "name": None, "more": {"p": "4.00"}},
    ]
    assert list(csv.reader(io.StringIO(run(folder, QUERY, "--format", "csv"))))[1:3] == [
        ["1", "one", '{"p":"1.00"}'],
        ["3", "a,\x1b[1m", '{"p":"3.00"}'],
    ]
    shown = run(folder, QUERY)
    assert "\x1b" not in shown
    assert [line.split()[0] for line in shown.splitlines()] == ["id", "1", "3", "4"]


def test_a_query_reads_how_fresh_each_table_is(folder: Path) -> None:
    merged, now = datetime(2026, 11, 21, 8, 0, 1, 500_000, tzinfo=UTC), datetime.now(UTC)
    note = CommitNote("w", "spark", 1, 1, int(merged.timestamp() * 1000), {})
    orders = HandMade(None, folder / "lake")
    orders.log.load()
    orders.marks = Marks({("cdc", 0): {-1: (8, 0)}})
    orders.put(row(5, source_time=merged + timedelta(seconds=3)), row(6))
    deltalake.write_deltalake(
        orders.path,
        pa.table({"id": [4], "name": ["n"], "price": pa.array([4], pa.int32())}),
        mode="append",
        commit_properties=deltalake.CommitProperties(
            custom_metadata={"userMetadata": note.to_json(orders.ref.app_id)},
            app_transactions=[deltalake.Transaction(orders.ref.app_id, 1)],
        ),
    )
    sql = "SELECT * FROM binlane.freshness ORDER BY mode"
    changes, told = (json.loads(line) for line in run(folder, sql, "--format", "json").splitlines())
    assert (changes["table"], changes["handler"], changes["mode"]) == ("shop.orders", "changes", "changelog")
    assert [changes[each] for each in ("rows", "behind_seconds", "waiting_rows")] == [None, None, 1]
    counted = {"rows": 3, "version": 1, "waiting_rows": 2, "waiting_segments": 1, "waiting_statements": 0}
    assert told.items() >= {"mode": "replica", "behind_seconds": 3.0, "problems": [], **counted}.items()
    assert told["merged_source_time"] == "2026-11-21T08:00:01.500000+00:00"
    assert told["offsets"] == [{"topic": "cdc", "partition": 0, "offset": 8}]
    assert datetime.fromisoformat(told["read_at"]) >= now - timedelta(milliseconds=1)


def test_a_source_that_tells_no_time_is_not_behind(folder: Path) -> None:
    HandMade(None, folder / "lake").put(row(7, source_time=datetime(1970, 1, 1, tzinfo=UTC)))
    sql = (
        "SELECT source_time, merged_source_time, behind_seconds FROM binlane.freshness WHERE mode = 'replica'"
    )
    assert set(json.loads(run(folder, sql, "--format", "json")).values()) == {None}


def test_a_table_of_the_source_keeps_its_name(tmp_path: Path) -> None:
    HandMade(None, tmp_path / "lake", table="binlane/freshness").put(row(7))
    stage = Stage(tmp_path, None)
    stage.configure([{"match": "*", "handlers": HANDLERS}])
    assert stage.run("query", "SELECT id FROM binlane.freshness", "--format", "csv")[1] == "id\n7\n"


def test_other_databases_are_duckdbs(folder: Path) -> None:
    sql = f"ATTACH '{folder}/x.db' AS x; CREATE TABLE x.main.t AS SELECT id FROM shop.orders; FROM x.main.t"
    assert len(run(folder, sql, "--format", "json").splitlines()) == 3


def test_arrow_is_a_stream_for_other_programs(folder: Path) -> None:
    command = [sys.executable, "-m", "binlane", "query", "binlane.yaml", QUERY, "--format", "arrow"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=60)
    assert pa.ipc.open_stream(ended.stdout).read_all().column("id").to_pylist() == [1, 3, 4]


def test_the_output_may_be_cut(folder: Path) -> None:
    command = f"{sys.executable} -m binlane query binlane.yaml 'FROM range(1000000)' --format csv | head -n 1"
    ended = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("range\n", "")


def test_control_c_ends_a_query_as_any_command(folder: Path) -> None:
    # It comes between two statements or in one.
    some = "SELECT 1; " * 5_000
    long = "SELECT count(*) FROM range(10000000000) a, range(10000) b"
    sql = f"COPY (SELECT 1) TO 'begun'; {some}{long}; SELECT 1"
    command = [sys.executable, "-m", "binlane", "query", "binlane.yaml", sql]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) as ended:
        try:
            until = time.monotonic() + 60
            while not (folder / "begun").exists() and time.monotonic() < until:
                time.sleep(0.05)
            ended.send_signal(signal.SIGINT)
            assert (ended.wait(30), ended.communicate()[1]) == (130, b"")
        finally:
            ended.kill()


@pytest.mark.parametrize("format", ["csv", "arrow"])
def test_control_c_ends_a_query_whose_output_nobody_reads(folder: Path, format: str) -> None:
    sql = "FROM range(100000000)"
    command = [sys.executable, "-m", "binlane", "query", "binlane.yaml", sql, "--format", format]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ended:
        try:
            assert ended.stdout is not None
            ended.stdout.read(1)
            time.sleep(0.5)  # the pipe is full
            ended.send_signal(signal.SIGINT)
            assert (ended.wait(30), ended.communicate()[1]) == (130, b"")
        finally:
            ended.kill()


def test_numbers_that_are_not_finite_are_no_nulls(folder: Path) -> None:
    sql = "SELECT 'nan'::DOUBLE AS a, {'n': '-inf'::FLOAT} AS b, NULL::DOUBLE AS c, -0.0::DOUBLE AS d"
    assert json.loads(run(folder, sql, "--format", "json")) == {
        **{"a": "NaN", "b": {"n": "-Infinity"}, "c": None, "d": 0}
    }
    assert run(folder, sql, "--format", "csv").splitlines()[1] == 'NaN,"{""n"":""-Infinity""}",,-0.0'
    assert run(folder, sql).splitlines()[1].split() == ["NaN", '{"n":"-Infinity"}', "-", "-0.0"]


def test_times_that_python_does_not_have_are_texts(folder: Path) -> None:
    sql = "SELECT TIMESTAMP_NS '2024-01-01 00:00:00.123456789' AS a"
    assert run(folder, sql, "--format", "csv").splitlines()[1] == "2024-01-01T00:00:00.123456789"
    assert run(folder, "SELECT DATE '12000-01-01' AS a", "--format", "csv").splitlines()[1] == "12000-01-01"
    assert "out of range" in run(folder, "SELECT [DATE '12000-01-01'] AS a", code=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("340282366920938463463374607431768211455::UHUGEINT", "340282366920938463463374607431768211455"),
        ("'10:00:00+02'::TIMETZ", "10:00:00+02"),
        ("'24:00:00'::TIME", "24:00:00"),
        ("'0101'::BIT", "0101"),
        ("['0101'::BIT]", "[0101]"),
        ("'infinity'::DATE", "infinity"),
        ("'-infinity'::TIMESTAMP", "-infinity"),
        ("'infinity'::TIMESTAMPTZ", "infinity"),
        ("'2024-01-01 12:00:00+02'::TIMESTAMPTZ", "2024-01-01T10:00:00+00:00"),
        ("'12000-01-01 12:00:00.5+02'::TIMESTAMPTZ", "12000-01-01 10:00:00.5+00"),
        ("(-170141183460469231731687303715884105728)::HUGEINT", "-170141183460469231731687303715884105728"),
    ],
)
def test_values_that_arrow_does_not_have_are_texts(folder: Path, value: str, text: str) -> None:
    out = run(folder, f"SELECT 7 AS a, {value} AS a", "--format", "csv")
    assert list(csv.reader(io.StringIO(out))) == [["a", "a_1"], ["7", text]]
    assert json.loads(run(folder, f"SELECT {value} AS a", "--format", "json")) == {"a": text}
    assert text in run(folder, f"SELECT {value} AS a")


def test_a_line_of_csv_is_one_row_for_each_reader(folder: Path) -> None:
    sql = "SELECT chr(13) || 'a' AS x, 'b' AS y UNION ALL SELECT chr(13) || chr(10), chr(10)"
    out = run(folder, sql, "--format", "csv")
    assert out == 'x,y\n"\ra",b\n"\r\n","\n"\n'
    rows = list(csv.reader(io.StringIO(out, newline="")))
    assert rows == [["x", "y"], ["\ra", "b"], ["\r\n", "\n"]]


def test_names_that_occur_twice_stay_apart(folder: Path) -> None:
    out = run(
        folder,
        "SELECT a.id, b.id FROM shop.orders a JOIN shop.orders b ON a.id + 1 = b.id",
        "--format",
        "json",
    )
    assert json.loads(out) == {"id": 3, "id_1": 4}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM shop.nope", "there is no Spark table shop.nope yet: `binlane tables` lists"),
        ("SELECT nope FROM shop.orders", 'Referenced column "nope" not found'),
        ("SELEC", "syntax error"),
        ("SELECT * FROM orders", "Table with name orders does not exist"),
    ],
)
def test_what_cannot_be_answered_is_told(folder: Path, sql: str, reason: str) -> None:
    assert reason in run(folder, sql, code=1)


@pytest.mark.parametrize(
    "name", ["odd.select", "memory.values", 'odd."d.t"', '"o.d".t', '"o.d"."d.t"', "main.t"]
)
def test_tables_of_any_name_are_found(tmp_path: Path, name: str) -> None:
    Stage(tmp_path, None).configure([{"match": "*", "handlers": HANDLERS[:1]}])
    table = sqlglot.to_table(name, dialect="duckdb")
    path = tmp_path / "lake" / path_safe(table.db) / path_safe(table.name)
    deltalake.write_deltalake(path, pa.table({"id": [7]}))
    stage = Stage(tmp_path, None)
    stage.configure([{"match": "*", "handlers": HANDLERS[:1]}])
    assert stage.run("query", f"SELECT id FROM {name}", "--format", "csv") == (0, "id\n7\n", "")
    assert read(tmp_path, f"{table.db}.{table.name}") == [{"id": 7}]


def test_a_dot_within_a_name_is_not_the_one_between_two(tmp_path: Path) -> None:
    stage = Stage(tmp_path, None)
    stage.configure([{"match": "*", "handlers": HANDLERS[:1]}])
    for number, path in enumerate(("o/d.t", "o.d/t")):
        deltalake.write_deltalake(tmp_path / "lake" / path, pa.table({"id": [number]}))
    asked = 'SELECT a.id, b.id FROM o."d.t" AS a, "o.d".t AS b'
    assert stage.run("query", asked, "--format", "csv") == (0, "id,id_1\n0,1\n", "")
    ended, _, told = stage.run("query", 'FROM "o.d.t".x')
    assert (ended, "there is no Spark table o.d.t.x yet" in told) == (1, True)


@pytest.mark.parametrize(
    "sql", ["FROM INFORMATION_SCHEMA.SCHEMATA", 'SELECT "table" AS catalog_name FROM Binlane.Freshness']
)
def test_names_that_are_not_the_sources_may_have_capitals(folder: Path, sql: str) -> None:
    assert "catalog_name" in run(folder, sql)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("FROM shop.orders JOIN shop.Orders USING (id)", "shop.orders and shop.Orders differ only in case"),
        ("FROM System.orders", "a database named System cannot be queried: use binlane.read"),
    ],
)
def test_names_that_duckdb_cannot_keep_apart_are_told(folder: Path, sql: str, reason: str) -> None:
    deltalake.write_deltalake(folder / "lake/shop/Orders", pa.table({"id": [7]}))
    deltalake.write_deltalake(folder / "lake/System/orders", pa.table({"id": [7]}))
    assert reason in run(folder, sql, code=1, match="*")


@pytest.mark.parametrize(
    "sql", ["EXPLAIN FROM shop.orders", "SUMMARIZE shop.orders", "FROM query('FROM shop.orders')"]
)
def test_statements_about_queries_find_their_tables(folder: Path, sql: str) -> None:
    assert "id" in run(folder, sql).casefold()


def test_a_schema_of_the_query_is_no_table(folder: Path) -> None:
    sql = (
        "CREATE SCHEMA own; USE own; CREATE TABLE t AS FROM _binlane.shop.orders; SELECT count(*) AS n FROM t"
    )
    assert run(folder, f"FROM shop.orders; {sql}", "--format", "csv") == "n\n3\n"


def test_duckdb_lists_the_views(folder: Path) -> None:
    sql = "SELECT DISTINCT table_name FROM information_schema.tables, shop.orders WHERE table_schema = 'shop'"
    assert run(folder, sql, "--format", "csv") == "table_name\norders\n"


def test_the_extra_that_read_needs_is_named() -> None:
    code = "import sys; sys.modules['duckdb'] = None; import binlane; binlane.read('lake/shop/orders')"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (
        "binlane.read needs DuckDB and Arrow, which are not installed: pip install '.[read]'" in ended.stderr
    )


def read(folder: Path, table: str, columns: Sequence[str] | None = None) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = binlane.read(table, folder / "binlane.yaml", columns).to_pylist()
    return rows


def test_tables_are_read_by_name_or_folder(folder: Path) -> None:
    assert sorted(each["id"] for each in read(folder, "shop.orders", ["id"])) == [1, 3, 4]
    assert read(folder, "shop.orders_changelog", ["_offset", "id"]) == [{"_offset": 7, "id": 1}]
    assert binlane.read(folder / "lake/shop/orders").num_rows == 3
    assert binlane.read(folder / "lake/changes/shop/orders", columns=["_offset"]).num_rows == 1
    with pytest.raises(ValueError, match=r'orders: .*"nope"'):
        read(folder, "shop.orders", ["nope"])
    with pytest.raises(LookupError, match=r"no Spark table shop\.nope"):
        read(folder, "shop.nope")
    for columns in ([], "id"):
        with pytest.raises(ValueError, match="columns: give a list of names"):
            read(folder, "shop.orders", columns)
    with pytest.raises(ValueError, match="no table is named"):
        binlane.read("")
    with pytest.raises(LookupError, match="neither a table"):
        binlane.read(folder / "nope")


def test_no_pyspark_is_needed(folder: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['deltalake'] = None; import binlane;"
        "found = [binlane.read('shop.orders', 'binlane.yaml'), binlane.read('lake/shop/orders')];"
        "print(*(each.num_rows for each in found))"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("3 3\n", "")


def test_the_table_of_freshness_says_that_it_needs_pyspark(folder: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; import binlane; from worker.cli import main;"
        "sys.argv = ['binlane', 'query', 'binlane.yaml', 'FROM binlane.freshness']; main()"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "pip install '.[spark]'" in ended.stderr


def test_a_table_that_no_handler_fills_any_more_is_not_taken_for_another(tmp_path: Path) -> None:
    first = HANDLERS[0]
    second = {**first, "name": "second", "path": "other/{database}/{table}"}
    stage = Stage(tmp_path, None)
    HandMade(None, tmp_path / "lake").put(row(1))
    HandMade(None, tmp_path / "other").put(row(2))
    for filled, other, id in ((first, second, 1), (second, first, 2)):
        stage.configure([{"match": "shop.*", "handlers": [filled]}, {"match": "*", "handlers": [other]}])
        assert read(tmp_path, "shop.orders", ["id"]) == [{"id": id}]
    stage.configure([{"match": "shop.*", "handlers": [first, second]}])
    with pytest.raises(LookupError, match=r"several handlers keep shop.orders: .* folders .*lake/shop/order"):
        read(tmp_path, "shop.orders")


def test_a_replica_in_iceberg_does_not_hide_the_one_in_delta(tmp_path: Path) -> None:
    iceberg = {**HANDLERS[0], "name": "iceberg", "format": "iceberg"}
    stage = Stage(tmp_path, None)
    HandMade(None, tmp_path / "lake").put(row(1))
    (tmp_path / "lake/_binlane/!iceberg/shop/orders/pending").mkdir(parents=True)
    stage.configure([{"match": "*", "handlers": [HANDLERS[0], iceberg]}])
    assert read(tmp_path, "shop.orders", ["id"]) == [{"id": 1}]
    stage.configure([{"match": "*", "handlers": [iceberg]}])
    with pytest.raises(RuntimeError, match=r"`shop`\.`orders` is an Iceberg table: its catalog shows it"):
        read(tmp_path, "shop.orders")


def test_links_lead_to_the_waiting_changes(folder: Path) -> None:
    for link, target in (("to_lake", "lake"), ("to_table", "lake/shop/orders"), ("far", "to_table")):
        (folder / link).symlink_to(folder / target)
    for place in ("to_lake/shop/orders", "to_table", "far"):
        assert sorted(binlane.read(folder / place)["id"].to_pylist()) == [1, 3, 4], place
    (folder / "lake/shop/orders").rename(folder / "moved")
    (folder / "lake/shop/orders").symlink_to(folder / "moved")
    assert sorted(binlane.read(folder / "lake/shop/orders")["id"].to_pylist()) == [1, 3, 4]
