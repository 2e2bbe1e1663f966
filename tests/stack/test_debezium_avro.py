"""MariaDB, Debezium, Apicurio's converter and registry give the changes of Debezium in JSON: `make soak`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pymysql
import pytest
from captured import CapturedRecord
from formats.test_registry_streams import read, same
from integration.process import eventually
from servers.apicurio_server import ApicurioServer
from servers.server_process import HOST, PASSWORD, USER
from stack.jars import SHARED
from stack.parts import DEPLOY, Connect, Source
from topic_messages import messages

from handlers.spark.runtime.jars import resolve
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.schema_registry.format import DebeziumWithRegistry, schemas_of
from worker.formats.schema_registry.settings import SchemaRegistrySettings
from worker.local.broker import Broker
from worker.local.broker_settings import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

CONVERTER = ("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",)
_OF_CONNECT = ("connect-api", "connect-json", "connect-transforms", *SHARED)

WORKLOAD = (Path(__file__).parent / "kinds.sql").read_text()


class TwoConnectors(Connect):
    """Two of one source: `plain` writes JSON with schemas, `avro` Avro that the registry has."""

    def __init__(self, broker: Broker, source: Source, registry: ApicurioServer) -> None:
        super().__init__(free_port(), broker.bootstrap_servers, source.port)
        self._registry = registry

    def prepare(self) -> None:
        super().prepare()
        converter = resolve(CONVERTER, kind="test", without=_OF_CONNECT)
        (self.directory / "connect" / "apicurio").symlink_to(converter[0].parent)
        # Apicurio's converters say nowhere that they are some: they are looked for.
        settings = (DEPLOY / "connect" / "connect.properties").read_text()
        self.write("connect.properties", settings.replace("service_load", "hybrid_warn"))
        for number, (name, converter_of) in enumerate(
            {
                "plain": {"": "org.apache.kafka.connect.json.JsonConverter", ".schemas.enable": "true"},
                "avro": {
                    "": "io.apicurio.registry.utils.converter.AvroConverter",
                    ".apicurio.registry.url": self._registry.own_url,
                    ".apicurio.registry.auto-register": "true",
                },
            }.items()
        ):
            told: dict[str, Any] = json.loads((DEPLOY / "connect" / "shop.json").read_text())
            told["name"] = name
            told["config"] |= {
                "topic.prefix": name,
                "database.server.id": str(5500 + number),
                "schema.history.internal.kafka.topic": f"schema-history.{name}",
                "schema.name.adjustment.mode": "avro",
                "field.name.adjustment.mode": "avro",
                **{
                    f"{part}.converter{key}": value
                    for part in ("key", "value")
                    for key, value in converter_of.items()
                },
            }
            self.write(f"{name}.json", json.dumps(told))

    def command(self) -> list[str]:
        *java, _, _ = super().command()
        return [
            *java,
            *(str(self.directory / name) for name in ("connect.properties", "plain.json", "avro.json")),
        ]

    def ping(self) -> bool:
        return all(self._runs(name) for name in ("plain", "avro"))

    def _runs(self, name: str) -> bool:
        answer = httpx.get(f"{self.url}/connectors/{name}/status", timeout=2, trust_env=False)
        told = answer.json()
        each = [told["connector"], *told["tasks"]] if answer.status_code == 200 else []
        for one in each:
            if one["state"] == "FAILED":
                raise RuntimeError(one.get("trace", "failed")[:2000])
        return len(each) == 2 and all(one["state"] == "RUNNING" for one in each)


@pytest.fixture
def source() -> Iterator[Source]:
    found = Source()
    found.start()
    yield found
    found.close()


@pytest.fixture
def registry() -> Iterator[ApicurioServer]:
    found = ApicurioServer()
    found.start()
    yield found
    found.close()


@pytest.fixture
def connect(broker: Broker, source: Source, registry: ApicurioServer) -> Iterator[TwoConnectors]:
    found = TwoConnectors(broker, source, registry)
    found.start()
    yield found
    found.close()


def captured(broker: Broker, topic: str) -> list[CapturedRecord]:
    """The topic, as one of the connector `plain`."""
    return [
        CapturedRecord(
            topic.replace("avro", "plain", 1),
            found.partition(),
            found.offset(),
            found.timestamp()[1],
            found.key(),
            found.value(),
            found.headers() or [],
        )
        for found in messages(broker.bootstrap_servers, topic)
    ]


def without_name(told: object) -> object:
    """Read of a record, in which the connector's own name stands here and there."""
    return json.loads(json.dumps(told, default=repr).replace("avro", "plain"))


@pytest.mark.usefixtures("connect")
def test_what_debezium_writes_in_avro_gives_the_changes_of_what_it_writes_in_json(
    broker: Broker, source: Source, registry: ApicurioServer
) -> None:
    login: dict[str, Any] = {"host": HOST, "port": source.port, "user": USER, "password": PASSWORD}
    with pymysql.connect(**login, charset="utf8mb4", autocommit=True) as connection:
        for statement in WORKLOAD.split(";\n"):
            if statement.strip():
                connection.cursor().execute(statement)
    topics = ("shop.kinds", "shop.keyless", "shop.pairs")
    for name in ("plain", "avro"):
        last = f"{name}.shop.pairs"
        eventually(lambda last=last: len(captured(broker, last)) == 5, within=120, what=f"{last} has all")
    asked = SchemaRegistrySettings(url=registry.own_url, api="apicurio", ids="global", id_bytes=8)
    settings = DebeziumSettings()
    of_json = Debezium(settings)
    of_avro = DebeziumWithRegistry(settings, schemas_of(asked, Path(), patience=30))
    count = 0
    for topic in (*(f"{{}}.{name}" for name in topics), "{}"):
        one, other = (captured(broker, topic.format(name)) for name in ("plain", "avro"))
        assert len(one) == len(other) > 0, topic
        for plain, avro in zip(one, other, strict=True):
            assert avro.value_ is None or avro.value_[:1] == b"\0", "it is in Avro"
            of_json.learn(plain)
            again = replace(avro, timestamp_ms=plain.timestamp_ms)
            of_avro.learn(again)
            expected, found = read(of_json, plain), read(of_avro, again)
            assert same(found, expected) or same(without_name(found), without_name(expected)), plain
            count += 1
    assert count > 25
