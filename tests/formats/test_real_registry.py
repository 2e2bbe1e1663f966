"""A real registry, Apicurio's, by its own API and by Confluent's: `make soak`."""

from __future__ import annotations

import json
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
        return self._server.create(f"a{abs(hash(json.dumps(schema))):x}", schema)[0]


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


@pytest.mark.parametrize("stream", STREAMS)
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


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
@pytest.mark.parametrize("stream", WITH_SCHEMAS)
def test_what_serializers_write_gives_the_changes_of_the_stream_in_json(
    stream: str, kind: Literal["AVRO", "JSON"], server: ApicurioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(stream, server, monkeypatch, most=2, writer=SerializedWriter(server, kind))


def test_content_ids_are_those_of_its_own_api_too(server: ApicurioServer) -> None:
    written = AvroWriter(server).written(json.dumps(envelope()).encode(), row({"id": 4}))
    assert change(reader(server, "apicurio"), record(written)).after == {"id": 4}


@pytest.mark.parametrize("api", ["confluent", "apicurio"])
def test_an_id_that_it_does_not_have_is_undecodable(
    api: Api, server: ApicurioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas_module, "_LAG_SECONDS", 0.5)
    with pytest.raises(UndecodableRecord, match="no such schema"):
        explained(reader(server, api), record(framed(123_456, b"\0\0")))


def test_references_are_followed(server: ApicurioServer) -> None:
    colour = {"type": "enum", "name": "a.Colour", "symbols": ["red", "blue"]}
    server.register(colour, subject="a.Colour")
    paint = {"type": "record", "name": "b.Paint", "fields": [{"name": "colour", "type": "a.Colour"}]}
    server.register(
        paint, subject="b.Paint", references=[{"name": "a.Colour", "subject": "a.Colour", "version": 1}]
    )
    whole = {"type": "record", "name": "W", "fields": [{"name": "p", "type": ["null", "b.Paint"]}]}
    number = server.register(
        whole, subject="W", references=[{"name": "b.Paint", "subject": "b.Paint", "version": 1}]
    )
    schemas = reader(server, "confluent")._schemas
    assert bytes(schemas.get(framed(number, b"")).split(framed(number, b"\2\2")).payload) == (
        b'{"p":{"colour":"blue"}}'
    )


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
