"""A real registry, Apicurio's, by its own API and by Confluent's: `make soak`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from avro_records import AvroWriter, framed
from formats.test_registry_streams import STREAMS, WITH_SCHEMAS, compare
from formats.test_schema_registry import change, envelope, record, row
from serialized_records import SerializedWriter
from servers.apicurio_server import ApicurioServer
from servers.server_process import ProgramMissing

from worker.formats.decoding import explained
from worker.formats.interface import UndecodableRecord
from worker.formats.schema_registry import schemas as schemas_module
from worker.formats.schema_registry.client import Client, RegistryUnavailable
from worker.formats.schema_registry.format import DebeziumWithRegistry, schemas_of
from worker.formats.schema_registry.settings import SchemaRegistrySettings

pytestmark = pytest.mark.soak

Api = Literal["confluent", "apicurio"]


class OwnApi:
    """By which records name schemas by global ids, of eight bytes in Apicurio 2."""

    def __init__(self, server: ApicurioServer) -> None:
        self._server = server
        self.url = server.own_url

    def register(self, schema: Any) -> int:
        return self._server.create(f"schema-{uuid.uuid4()}", schema)[0]


OWN: dict[str, Any] = {"api": "apicurio", "ids": "global", "id_bytes": 8}


@pytest.fixture(scope="module")
def server() -> Iterator[ApicurioServer]:
    found = ApicurioServer()
    try:
        found.start()
    except ProgramMissing as missing:
        pytest.fail(str(missing))
    yield found
    found.close()


def reader(server: ApicurioServer, api: Api, **keys: Any) -> DebeziumWithRegistry:
    url = server.url if api == "confluent" else server.own_url
    asked = SchemaRegistrySettings(url=url, **{"api": api, **keys})
    return DebeziumWithRegistry(None, schemas_of(asked, Path(), patience=10))


# It takes a schema apart to answer; names as Debezium leaves them when it adjusts none are no Avro to Java.
@pytest.mark.parametrize("stream", ["debezium-strings", "debezium-unwrap"])
def test_a_stream_gives_the_changes_of_the_stream_in_json_by_confluents_api(
    stream: str, server: ApicurioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(stream, server, monkeypatch, most=4)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_gives_the_changes_of_the_stream_in_json_by_its_own_api(
    stream: str, server: ApicurioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnApi(server)
    compare(stream, own, monkeypatch, most=4, writer=AvroWriter(own, 8), **OWN)


@pytest.mark.parametrize("stream", WITH_SCHEMAS)
def test_what_serializers_write_gives_the_changes_of_the_stream_in_json(
    stream: str, server: ApicurioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In JSON Schema: as Avro it takes no names that Debezium was not told to adjust."""
    compare(stream, server, monkeypatch, most=2, writer=SerializedWriter(server, "JSON"))


def test_content_ids_are_those_of_its_own_api_too(server: ApicurioServer) -> None:
    written = AvroWriter(server).written(json.dumps(envelope()).encode(), row({"id": 4}))
    assert change(reader(server, "apicurio"), record(written)).after == {"id": 4}


@pytest.mark.parametrize("api", ["confluent", "apicurio"])
def test_an_id_that_it_does_not_have_is_undecodable(
    api: Api, server: ApicurioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas_module, "_LAG_SECONDS", 0.5)
    with pytest.raises(UndecodableRecord, match="knows none with this id"):
        explained(reader(server, api), record(framed(123_456, b"\0\0")))


@pytest.mark.parametrize("api", ["confluent", "apicurio"])
def test_it_is_reached(api: Api, server: ApicurioServer) -> None:
    url = server.url if api == "confluent" else server.own_url
    client = Client(SchemaRegistrySettings(url=url, api=api), Path())
    assert client.reach() == f"the API of {api}"
    client.close()


@pytest.mark.parametrize("api", ["confluent", "apicurio"])
def test_the_address_of_the_other_api_is_told(api: Api, server: ApicurioServer) -> None:
    url = server.own_url if api == "confluent" else server.url
    client = Client(SchemaRegistrySettings(url=url, api=api), Path())
    with pytest.raises(RegistryUnavailable, match=rf"the root of the REST API of {api}\?"):
        client.reach()
    client.close()
