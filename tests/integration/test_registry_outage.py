"""Records in Avro from a real Kafka to a handler, while the registry is down and when it is back."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest
from avro_records import AvroWriter, framed
from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.conftest import MakeStage
from integration.process import eventually
from integration.test_process_runs import children
from servers.schema_registry import SchemaRegistry, guid_of, schema_registry

from worker.local.broker import Broker

SOURCE = {"connector": "mysql", "name": "my1", "db": "shop", "ts_ms": 1_795_000_000_000}
COLUMNS = [{"field": "id", "type": "int64"}, {"field": "seq", "type": "int64"}]
ROW = {"type": "struct", "fields": COLUMNS, "optional": True, "name": "my1.shop.Value"}
TEXT = {"type": "string"}
ENVELOPE = {
    "type": "struct",
    "name": "my1.shop.Envelope",
    "fields": [
        {**ROW, "field": "before"},
        {**ROW, "field": "after"},
        {
            "field": "source",
            "type": "struct",
            "name": "source",
            "fields": [
                *({**TEXT, "field": name} for name in ("connector", "name", "db", "table")),
                {"type": "int64", "field": "ts_ms"},
            ],
        },
        {**TEXT, "field": "op"},
    ],
}
KEY = {"type": "struct", "name": "my1.shop.Key", "fields": COLUMNS[:1]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def insert(table: str, seq: int) -> dict[str, object]:
    return {"before": None, "after": {"id": seq, "seq": seq}, "source": {**SOURCE, "table": table}, "op": "c"}


def test_what_needs_a_registry_that_is_down_waits_in_order_and_the_rest_goes_on(
    make_stage: MakeStage, registry: SchemaRegistry
) -> None:
    stage = make_stage(partitions=2)
    source, writer = stage.source(), AvroWriter(registry)
    keys, values = json.dumps(KEY).encode(), json.dumps(ENVELOPE).encode()
    registry.status = 503
    worker = stage.worker(format="debezium", schema_registry={"url": registry.url}).start()
    for seq in range(200):
        in_avro = writer.written(values, insert("orders", seq))
        source.send(in_avro, key=writer.written(keys, {"id": seq}), partition=0)
        source.send(json.dumps(insert("items", seq)).encode(), key=b'{"id":%d}' % seq, partition=1)
    source.flush()
    stage.wait_rows(200)

    eventually(lambda: worker.status()["partitions"][0]["paused_by"] == "schema_registry", what="it waits")
    assert worker.status()["partitions"][1]["paused_by"] is None
    eventually(
        lambda: worker.metric("binlane_target_up", handler="__schema_registry__") == 0, what="it tells"
    )
    [told] = worker.logged("schema_registry_down")
    assert "answers 503" in told["error"]
    assert worker.healthy()

    registry.status = 200
    stage.wait_rows(400)
    stage.wait_committed_to_the_end()
    assert worker.metric("binlane_target_up", handler="__schema_registry__") == 1
    rows = {f"shop.{table}": list(range(200)) for table in ("orders", "items")}
    stage.check(NothingLost(rows), TableOrder(), NothingTwice())
    assert worker.status()["partitions"][0]["paused_by"] is None
    assert registry.asked.count("/schemas/ids/1") <= 12, "each schema is asked for once, when it answers"
    assert worker.sigterm() == 0


def test_a_child_process_that_starts_while_the_registry_is_down_reads_on_with_known_schemas(
    make_stage: MakeStage, registry: SchemaRegistry
) -> None:
    stage = make_stage()
    source, writer = stage.source(), AvroWriter(registry)
    keys, values = json.dumps(KEY).encode(), json.dumps(ENVELOPE).encode()

    def send(seqs: range) -> None:
        for seq in seqs:
            in_avro = writer.written(values, insert("orders", seq))
            source.send(in_avro, key=writer.written(keys, {"id": seq}))
        source.flush()

    worker = stage.worker(
        format="debezium", schema_registry={"url": registry.url}, lanes={"processes": 1}
    ).start()
    send(range(5))
    stage.wait_rows(5)
    registry.status = 503
    [victim] = children(worker)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in children(worker))
    send(range(5, 10))
    stage.wait_rows(10)
    stage.wait_committed_to_the_end()
    stage.check(NothingLost({"shop.orders": list(range(10))}), TableOrder())
    told = [line for line in worker.log_lines() if line["event"].startswith("schema")]
    assert told == [], "it neither asks the registry, nor reads a schema again"
    assert worker.sigterm() == 0


def test_what_names_its_schema_in_a_header_waits_and_is_read_in_order(
    make_stage: MakeStage, registry: SchemaRegistry
) -> None:
    stage = make_stage()
    source, writer = stage.source(), AvroWriter(registry)
    values = json.dumps(ENVELOPE).encode()
    asked = {"url": registry.url, "ids_in": "header"}
    worker = stage.worker(format="debezium", schema_registry=asked).start()
    registry.status = 503
    for seq in range(99):
        written = writer.written(values, insert(f"t{seq % 3}", seq // 3))
        header = ("__value_schema_id", b"\1" + guid_of(int.from_bytes(written[1:5], "big")).bytes)
        source.producer.produce(stage.topic, written[5:], b'{"id":%d}' % seq, headers=[header])
    source.flush()
    eventually(lambda: worker.status()["partitions"][0]["paused_by"] == "schema_registry", what="it waits")
    registry.status = 200
    stage.wait_committed_to_the_end()
    rows = {f"shop.t{table}": list(range(33)) for table in range(3)}
    stage.check(NothingLost(rows), TableOrder(), NothingTwice())
    assert worker.sigterm() == 0


@pytest.mark.soak
def test_an_id_that_the_registry_does_not_know_is_a_dead_letter_of_its_own(
    make_stage: MakeStage, registry: SchemaRegistry, broker: Broker
) -> None:
    stage = make_stage()
    dead = broker.create_topic(f"{stage.topic}.dead")
    source, writer = stage.source(), AvroWriter(registry)
    values = json.dumps(ENVELOPE).encode()
    worker = stage.worker(
        format="debezium",
        schema_registry={"url": registry.url},
        dead_letter={"topic": dead},
    ).start()
    source.send(writer.written(values, insert("orders", 0)), key=b'{"id":0}')
    nearly_old = int((time.time() - 50) * 1000)  # a schema may come within a minute of its first record
    source.producer.produce(stage.topic, framed(77, b"\0\0\0"), b'{"id":1}', timestamp=nearly_old)
    source.send(writer.written(values, insert("orders", 2)), key=b'{"id":2}')
    source.flush()
    stage.wait_committed_to_the_end()
    assert stage.run.handled() == 2
    assert worker.metric("binlane_dead_letters_total", table="__undecodable__") == 1
    [told] = worker.logged("schema_refused")
    assert told["schema"] == 77
    assert worker.sigterm() == 0
