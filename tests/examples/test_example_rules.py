"""The examples of tables' rules, as they are, and computed columns in every target that makes tables."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
import yaml
from delta_reading import column_types, read_delta
from examples.example_runs import EXAMPLES, ExampleRun, RunExample
from integration.process import eventually
from pyiceberg.catalog import load_catalog
from servers.clickhouse_server import ClickHouseServer
from servers.postgres_server import PostgresServer
from topic_messages import messages

from worker.local.broker import Broker

ROWS = [
    # id, total_eur, day, large, label, size
    (1000, Decimal("5398.90"), date(2025, 1, 25), 1, "NEW eta gamma \\n theta", "l"),
    (5001, Decimal("2551.44"), date(2025, 2, 4), 0, "NEW alpha kappa beta zeta", "l"),
    (5003, Decimal("6596.36"), date(2025, 11, 7), 1, "PAID no note", "l"),
    (5004, Decimal("1748.37"), date(2025, 5, 17), 0, "PAID no note", "l"),
]
NAMES = ("id", "total_eur", "day", "large", "label", "size")


def orders_in(url: str, table: str, names: tuple[str, ...] = NAMES) -> list[tuple[Any, ...]]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT {', '.join(names)} FROM {table} ORDER BY id").all()
    engine.dispose()
    return [tuple(row) for row in found]


def in_sqlite(run: ExampleRun, name: str, names: tuple[str, ...] = NAMES) -> list[tuple[Any, ...]]:
    return orders_in(f"sqlite:///{run.folder}/{name}.db", '"shop.orders"', names)


LANES = [{"processes": 0}, {"processes": 2}, {"order_by": "row"}, {"processes": 2, "order_by": "row"}]


def varied(folder: Path, name: str, group: str, **sections: Any) -> Path:
    """Write the example with other sections, for a group of its own. Return the folder of `rules`."""
    example = yaml.safe_load((EXAMPLES / "rules" / f"{name}.yaml").read_text())
    example["kafka"]["group_id"] = group
    example["tables"][0].update(sections.pop("tables", {}))
    (folder / "rules").mkdir()
    (folder / "rules" / f"{name}.yaml").write_text(yaml.safe_dump(example | sections, sort_keys=False))
    return folder


@pytest.mark.parametrize("lanes", LANES, ids=str)
def test_computed_columns_in_processes_and_in_both_orders(
    run_example: RunExample, postgres: PostgresServer, lanes: dict[str, Any], tmp_path: Path
) -> None:
    group = f"computed-{LANES.index(lanes)}"
    url = postgres.new_database("computed")  # the worker itself writes SQLite's files
    handlers = {"handlers": [{"type": "sql", "url": url}]}
    run_example(
        "rules/computed-columns",
        folder=varied(tmp_path, "computed-columns", group, lanes=lanes, tables=handlers),
    )
    assert orders_in(url, "shop.orders") == ROWS


def test_computed_columns(run_example: RunExample) -> None:
    found = in_sqlite(run_example("rules/computed-columns"), "computed")
    assert [(id_, Decimal(eur), date.fromisoformat(day), *rest) for id_, eur, day, *rest in found] == ROWS


def test_computed_columns_in_every_target_that_makes_tables(
    run_example: RunExample, postgres: PostgresServer, own_clickhouse: Any, tmp_path: Path
) -> None:
    """Each target creates the table by the CREATE TABLE or by the first row, with the columns' types."""
    url, clickhouse = postgres.new_database("computed"), own_clickhouse()
    handlers = [
        {"type": "sql", "url": url},
        {"type": "clickhouse", "url": clickhouse.url},
        {"type": "files", "format": "parquet", "directory": "raw"},
        {"type": "spark", "mode": "replica", "name": "delta", "merge": {"at_close": "1m"}},
        {"type": "spark", "mode": "replica", "name": "ice", "format": "iceberg", "merge": {"at_close": "1m"}},
    ]
    spark = {"warehouse": "lake", "iceberg": {"type": "sql", "uri": "sqlite:///lake/catalog.db"}}
    folder = varied(tmp_path, "computed-columns", "computed-all", tables={"handlers": handlers}, spark=spark)
    run = run_example("rules/computed-columns", folder=folder)
    run.stop()

    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert (
            connection.exec_driver_sql(f"SELECT {', '.join(NAMES)} FROM shop.orders ORDER BY id").all()
            == ROWS
        )
    types = {
        column["name"]: str(column["type"]) for column in sa.inspect(engine).get_columns("orders", "shop")
    }
    engine.dispose()
    assert [types[name] for name in NAMES[1:]] == ["NUMERIC(38, 2)", "DATE", "SMALLINT", "TEXT", "TEXT"]

    in_clickhouse(clickhouse)
    delta = run.folder / "lake" / "shop" / "orders"
    found = read_delta(delta, ", ".join(NAMES))
    assert sorted(tuple(row[name] for name in NAMES) for row in found) == ROWS
    assert [column_types(delta)[name] for name in NAMES[1:]] == [
        "decimal(38,2)",
        "date",
        "tinyint",
        "string",
        "string",
    ]

    table = load_catalog("default", type="sql", uri=f"sqlite:///{run.folder}/lake/catalog.db").load_table(
        "shop.orders"
    )
    of_iceberg = table.scan().to_arrow()
    assert sorted(tuple(row[name] for name in NAMES) for row in of_iceberg.to_pylist()) == ROWS

    *_, file = sorted(run.folder.glob("raw/shop/orders/*/*/*.parquet"))  # the first one has the statement
    schema = pq.ParquetFile(file).schema_arrow
    for one in (schema, of_iceberg.schema):
        assert (one.field("total_eur").type, one.field("day").type) == (pa.decimal128(38, 2), pa.date32())


def in_clickhouse(server: ClickHouseServer) -> None:
    rows = server.rows("shop.orders")
    assert sorted((row["id"], row["total_eur"], row["day"], row["large"]) for row in rows) == [
        (id_, str(total), str(day), large) for id_, total, day, large, *_ in ROWS
    ]


@pytest.mark.parametrize("lanes", LANES, ids=str)
def test_expectations_in_processes_and_in_both_orders(
    run_example: RunExample,
    played: Broker,
    postgres: PostgresServer,
    lanes: dict[str, Any],
    tmp_path: Path,
) -> None:
    url = postgres.new_database("expectations")
    topic = f"unexpected.{LANES.index(lanes)}"
    played.create_topic(topic)
    group, letters = f"expectations-{LANES.index(lanes)}", {"topic": topic}
    handlers = {"handlers": [{"type": "sql", "url": url}]}
    folder = varied(tmp_path, "expectations", group, lanes=lanes, dead_letter=letters, tables=handlers)
    judge_expectations(run_example("rules/expectations", folder=folder), played, topic)
    assert orders_in(url, "shop.orders", ("id",)) == [(1000,), (5001,), (5004,)]


def test_expectations(run_example: RunExample, played: Broker) -> None:
    run = run_example("rules/expectations")
    judge_expectations(run, played, "example.unexpected")
    assert in_sqlite(run, "expectations", ("id",)) == [(1000,), (5001,), (5004,)]


def judge_expectations(run: ExampleRun, broker: Broker, topic: str) -> None:
    """Order 5003 is too large, and has no note. Two more changes have none."""
    [letter] = messages(broker.bootstrap_servers, topic)
    headers = dict(letter.headers() or [])
    assert headers["binlane.error"] == (
        b"shop.orders does not meet expectations: has_note: note IS NOT NULL is false; "
        b"usual_size: total < 5000 is false; "
        b"not_too_large: total_eur < 6000 is false (at example.canal[0] offset 18)"
    )
    assert headers["binlane.table"] == b"shop.orders"

    counts = {
        rule: run.worker.metric("binlane_expectations_failed_total", table="shop.orders", rule=rule)
        for rule in ("has_note", "usual_size", "not_too_large", "has_customer")
    }
    assert counts == {"has_note": 3, "usual_size": 2, "not_too_large": 1, "has_customer": 0}
    warnings = [line["error"] for line in run.worker.logged("expectation_failed")]
    assert [text.rpartition(" (at ")[2] for text in warnings] == [
        "example.canal[0] offset 16)",
        "example.canal[0] offset 19)",
        "example.canal[0] offset 23)",
    ]


def test_a_row_that_must_not_be_halts_its_table(
    played: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", played.bootstrap_servers)
    expect = {"small": {"check": "total < 6000", "on_failure": "halt"}}
    folder = varied(tmp_path, "expectations", "expectations-halt", tables={"expect": expect})
    run = ExampleRun(folder / "rules" / "expectations.yaml", tmp_path / "run")
    try:
        run.worker.start(within=60)
        [halted] = eventually(lambda: run.worker.logged("table_halted"), within=60)
        assert halted["position"] == "example.canal[0] offset 18"
        assert halted["error"].startswith("shop.orders does not meet expectations: small: total < 6000")
        assert run.worker.metric("binlane_expectations_failed_total", rule="small") == 1
    finally:
        run.close()
