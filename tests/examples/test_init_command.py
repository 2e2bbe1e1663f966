"""`binlane init` writes a configuration that `check` accepts, from the first records of any topic."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from confluent_kafka import Producer
from examples.example_runs import ExampleRun
from typer.testing import CliRunner

from worker.cli import app
from worker.commands.init import _HANDLERS as HANDLERS
from worker.configuration import load
from worker.local.broker import Broker

TABLES = ["crm.audit", "crm.contacts", "crm.tags", "shop.customers", "shop.orders"]


def binlane(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)), standalone_mode=False)


def init(broker: Broker, file: Path, topic: str, *more: str, handler: str = "sql") -> Any:
    kafka = ("--kafka", broker.bootstrap_servers, "--topic", topic, "--handler", handler)
    return binlane("init", file, *kafka, *more)


def topic_of(broker: Broker, name: str, *values: bytes) -> str:
    broker.create_topic(name)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(name, value)
    producer.flush()
    return name


@pytest.mark.parametrize(
    ("topic", "format_", "tables"),
    [
        ("example.canal", "canal", TABLES),
        ("example.maxwell", "maxwell", TABLES),
        ("example.dts", "dts", TABLES),
        ("example-schemas.shop.orders", "debezium", ["shop.orders"]),
        ("example-flat.shop.orders", "debezium", ["shop.orders"]),
        (r"^example-schemas\.(crm|shop)\.", "debezium", TABLES),
        ("example.json", "json", ["example.json"]),
    ],
)
def test_each_format_is_found_with_its_tables(
    played: Broker, topic: str, format_: str, tables: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "first.yaml"
    answer = init(played, file, topic)
    assert answer.return_value == 0, answer.output
    assert f"format {format_}, which reads" in answer.output
    assert f"tables: {', '.join(tables)}\n" in answer.output
    assert binlane("check", file).return_value == 0
    configuration = load(file)
    assert configuration.format == format_
    assert all(configuration.rule_for(table) for table in tables)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("handler", HANDLERS)
def test_check_accepts_what_it_writes_for_each_target(played: Broker, handler: str, tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    assert init(played, file, "example.canal", handler=handler).return_value == 0
    assert binlane("check", file).return_value == 0


def test_rows_of_an_unknown_topic_are_in_sqlite(played: Broker, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    file = tmp_path / "new" / "first.yaml"
    assert init(played, file, "example.canal").return_value == 0
    run = ExampleRun(file, tmp_path / "run")
    try:
        run.start()
        engine = sa.create_engine(f"sqlite:///{run.folder}/replica.db")
        with engine.connect() as connection:
            found = connection.exec_driver_sql('SELECT id FROM "shop.orders" ORDER BY id').scalars().all()
        engine.dispose()
    finally:
        run.close()
    assert found == [1000, 5001, 5003, 5004]


def test_own_json_has_its_row_and_its_key_found(played: Broker, tmp_path: Path) -> None:
    values = [b'{"kind": "started", "trip": {"id": %d, "km": 1}}' % number for number in range(3)]
    file = tmp_path / "first.yaml"
    assert init(played, file, topic_of(played, "fleet.trips", *values)).return_value == 0
    layout = load(file).json_layout
    assert layout is not None
    assert (layout.database, layout.table, layout.after, layout.key) == ("=fleet", "=trips", "trip", ["id"])


@pytest.mark.parametrize(
    ("objects", "after"), [(("before", "after"), "after"), (("after", "ids"), "after"), (("a", "b"), ".")]
)
def test_own_json_with_several_objects_has_the_row_named_after(
    played: Broker, objects: tuple[str, ...], after: str, tmp_path: Path
) -> None:
    topic = topic_of(
        played, f"objects.{'.'.join(objects)}", json.dumps({name: {} for name in objects}).encode()
    )
    assert init(played, tmp_path / "first.yaml", topic).return_value == 0
    layout = load(tmp_path / "first.yaml").json_layout
    assert layout is not None
    assert layout.after == after


def canal(database: str, table: str) -> dict[str, Any]:
    row = {"pkNames": ["id"], "mysqlType": {"id": "int"}, "data": [{"id": "1"}]}
    return {"database": database, "table": table, "type": "INSERT", "isDdl": False, "es": 1, **row}


@pytest.mark.parametrize(
    "record",
    [
        canal("shop", "orders\nhttp: {port: 9999}\n#"),
        canal("shop", "orders\x85name: other"),
        canal("sh\x07op", "orders"),
        canal("${HOME}", "orders"),
        canal("/sh?p", "*[a]"),
        {"kind": "started", "tr.ip": {"id": 1}},
        {"kind": "started", "${HOME}": {"id": 1}},
        {"kind": "started", ".": {"id": 1}},
        {"kind": "started", "=trip": {"id": 1}},
    ],
)
def test_names_in_records_are_nothing_but_names(
    played: Broker, record: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/none/of/their/business")
    file, sample = tmp_path / "first.yaml", tmp_path / "records.jsonl"
    sample.write_text(json.dumps(record))
    topic = topic_of(played, f".hostile.{abs(hash(sample))}.", sample.read_bytes())
    answer = init(played, file, topic)
    assert answer.return_value == 0, answer.output
    configuration = load(file)
    assert configuration.http is not None
    assert (configuration.http.port, configuration.name) == (8080, f"{topic}-sql")
    assert "business" not in repr(configuration)
    assert binlane("check", file, "--sample", sample).return_value == 0


def test_it_never_writes_over_a_file(played: Broker, tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text("mine")
    answer = init(played, file, "example.canal")
    assert answer.return_value == 1
    assert "first.yaml exists already, and is not changed" in answer.output
    assert file.read_text() == "mine"


SECRET = b"hunter2-is-secret"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([], "has no records, and only records say what they are"),
        ([b"\x01\x02" + SECRET], r"one has 19 bytes and begins like '??aaaaaa9-aa-aaaaaa'"),
        ([b'"' + SECRET + b'"'], "begins like '\"aaaaaa9-aa-aaaaaa\"'"),
        ([b"\x00\x00\x00\x00\x07" + SECRET], "begins as with a schema registry (schema 7)"),
        ([b'{"a": 1}', SECRET], "no format reads its records"),
        (
            [b'{"a": {}}', json.dumps(canal("", "hunter")).encode()],
            "it is a Canal message: set `format: canal`",
        ),
    ],
)
def test_what_cannot_be_read_is_told_without_its_values(
    played: Broker, values: list[bytes], what: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic = topic_of(played, f"unknown.{abs(hash(request.node.name))}", *values)
    answer = init(played, tmp_path / "first.yaml", topic)
    assert answer.return_value == 1
    assert what in answer.output
    assert "hunter" not in answer.output
    assert list(tmp_path.iterdir()) == []


def test_own_json_of_several_topics_is_refused(played: Broker, tmp_path: Path) -> None:
    for name in ("several.a", "several.b"):
        topic_of(played, name, b'{"id": 1}')
    answer = init(played, tmp_path / "first.yaml", r"^several\.")
    assert answer.return_value == 1
    assert "JSON of several topics: choose one of several.a, several.b" in answer.output


def test_a_topic_that_is_not_there_is_told_with_those_that_are(played: Broker, tmp_path: Path) -> None:
    answer = init(played, tmp_path / "first.yaml", "example.canel")
    assert answer.return_value == 1
    assert "topic example.canel: there is no such topic; the brokers have: " in answer.output
    assert "example.canal" in answer.output


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (("--handler", "sqll"), "--handler: found sqll; allowed: sql, spark"),
        (("--property", "sasl.password=hunter2"), "--property sasl.password: the file would contain the"),
        (("--url", "postgresql://me:hunter2@host/db"), "--url: the file would contain the password"),
        (("--property", "sasl.mechanism"), "--property: write NAME=VALUE"),
        (("--property", "sasl.mechanismm=PLAIN"), "first.yaml:8: kafka.properties.sasl.mechanismm"),
        (("--property", "sasl.password=${NOBODY_HAS_SET_IT}"), "NOBODY_HAS_SET_IT"),
    ],
)
def test_a_wrong_option_is_told(played: Broker, more: tuple[str, ...], what: str, tmp_path: Path) -> None:
    answer = init(played, tmp_path / "first.yaml", "example.canal", *more)
    assert answer.return_value == 1
    assert what in answer.output
    assert "hunter" not in answer.output
    assert list(tmp_path.iterdir()) == []


def test_properties_are_used_and_written_without_secrets(
    played: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_SECRET", "hunter2")
    file = tmp_path / "first.yaml"
    more = ("--property", "sasl.password=${KAFKA_SECRET}", "--property", "client.id=first")
    assert init(played, file, "example.canal", *more).return_value == 0
    assert "hunter2" not in file.read_text()
    assert load(file).kafka.properties == {"sasl.password": "hunter2", "client.id": "first"}
    monkeypatch.setenv("KAFKA_PROTOCOL", "ssl")
    answer = init(
        played, tmp_path / "2.yaml", "example.canal", "--property", "security.protocol=${KAFKA_PROTOCOL}"
    )
    assert answer.return_value == 1
    assert "kafka " in answer.output


def test_without_a_terminal_a_missing_option_is_an_error(played: Broker, tmp_path: Path) -> None:
    answer = binlane("init", tmp_path / "first.yaml", "--kafka", played.bootstrap_servers)
    assert answer.return_value == 1
    assert "--topic is missing, and there is no terminal to ask" in answer.output


def test_with_a_terminal_it_asks(played: Broker, tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    ours, its = pty.openpty()
    command = [str(Path(sys.executable).parent / "binlane"), "init", str(file)]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, close_fds=True)
    os.close(its)
    os.write(ours, f"{played.bootstrap_servers}\nexample.canal\n\n".encode())
    end = time.monotonic() + 60
    said = b""
    while process.poll() is None and time.monotonic() < end:
        try:
            said += os.read(ours, 1000)
        except OSError:  # the other end is closed
            break
    assert process.wait(20) == 0, said
    os.close(ours)
    assert b"Target (sql, spark" in said
    assert load(file).tables[0].handlers[0].type == "sql"
