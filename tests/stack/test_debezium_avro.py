"""MariaDB, Debezium, Apicurio's converter and registry give the changes of Debezium in JSON: `make soak`."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
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
from worker.formats.schema_registry.format import debezium_with, schemas_of
from worker.formats.schema_registry.settings import SchemaRegistrySettings
from worker.local.broker import Broker
from worker.local.broker_settings import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

CONVERTER = ("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",)
AVRO = "io.apicurio.registry.utils.converter.AvroConverter"
_OF_CONNECT = ("connect-api", "connect-json", "connect-transforms", *SHARED)

LAST = ".shop.pairs"
"""Its last record is the last of all."""
WORKLOAD = (Path(__file__).parent / "kinds.sql").read_text()


_SETTINGS: dict[str, dict[str, str]] = {
    "plain": {"": "org.apache.kafka.connect.json.JsonConverter", ".schemas.enable": "true"},
    "avro": {"": AVRO, ".apicurio.registry.auto-register": "true"},
    "value": {
        "": AVRO,
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.headers.enabled": "false",
    },
}
"""Connector -> what its converters are told: `avro` puts ids into headers, as is the default."""
READ: dict[str, dict[str, Any]] = {
    "avro": {"ids_in": "header"},
    "value": {"ids": "global", "id_bytes": 8},
}


class Connectors(Connect):
    """Of one source: JSON with schemas, and Avro that the registry has.

    No more of these at once: the registry's memory has locks, at which a connector fails."""

    def __init__(self, broker: Broker, source: Source, registry: ApicurioServer, avro: str) -> None:
        super().__init__(free_port(), broker.bootstrap_servers, source.port)
        self._registry = registry
        self._names = ("plain", avro)

    def prepare(self) -> None:
        super().prepare()
        folder = self.directory / "connect" / "apicurio"
        folder.mkdir()
        for jar in resolve(CONVERTER, kind="test", without=_OF_CONNECT):
            (folder / jar.name).symlink_to(jar)
        # Apicurio's own jar says nowhere that its converters are some.
        with zipfile.ZipFile(folder / "named.jar", "w") as named:
            named.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", AVRO)
        for number, name in enumerate(self._names):
            converter_of = settings = _SETTINGS[name]
            if name != "plain":
                converter_of = {**settings, ".apicurio.registry.url": self._registry.own_url}
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
        connectors = (str(self.directory / f"{name}.json") for name in self._names)
        return [*java, str(DEPLOY / "connect" / "connect.properties"), *connectors]

    def ping(self) -> bool:
        return all(self._runs(name) for name in self._names)

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


def captured(broker: Broker, name: str, topic: str) -> list[CapturedRecord]:
    """The topic of the connector `name`, as if `plain` had written it."""
    return [
        CapturedRecord(
            f"plain{topic}",
            found.partition(),
            found.offset(),
            0,
            found.key(),
            found.value(),
            found.headers() or [],
        )
        for found in messages(broker.bootstrap_servers, f"{name}{topic}")
    ]


@pytest.mark.parametrize("name", READ)
def test_what_debezium_writes_in_avro_gives_the_changes_of_what_it_writes_in_json(
    name: str, source: Source, registry: ApicurioServer
) -> None:
    with Broker() as broker:
        connectors = Connectors(broker, source, registry, name)
        try:
            connectors.start()
            run(name, broker, source)
        finally:
            connectors.close()
        compare(broker, name, SchemaRegistrySettings(url=registry.own_url, api="apicurio", **READ[name]))


def run(name: str, broker: Broker, source: Source) -> None:
    """The workload, to its end in both topics."""
    # What is there when a connector begins is in its snapshot, and no changes.
    for each in ("plain", name):
        eventually(lambda each=each: captured(broker, each, ".shop.stock"), within=240, what="its snapshot")
    login: dict[str, Any] = {"host": HOST, "port": source.port, "user": USER, "password": PASSWORD}
    with pymysql.connect(**login, charset="utf8mb4", autocommit=True) as connection:
        for statement in WORKLOAD.split(";\n"):
            if statement.strip():
                connection.cursor().execute(statement)
    for each in ("plain", name):
        eventually(
            lambda each=each: len(captured(broker, each, LAST)) == 5, within=240, what=f"{each} has all"
        )


def compare(broker: Broker, name: str, asked: SchemaRegistrySettings) -> None:
    settings = DebeziumSettings()
    of_json = Debezium(settings)
    of_avro = debezium_with(schemas_of(asked, Path(), patience=30), settings)
    count = 0
    for topic in (".shop.kinds", ".shop.keyless", LAST):
        one, other = captured(broker, "plain", topic), captured(broker, name, topic)
        assert len(one) == len(other) > 0, topic
        for plain, avro in zip(one, other, strict=True):
            assert avro.value_ is None or not avro.value_.startswith(b"{")
            expected, found = read(of_json, plain), read(of_avro, avro)
            if name == "avro":  # without its headers no value can be routed
                found = (*found[:-1], expected[-1])
            assert same(found, expected), plain
            count += 1
    assert count > 15
