"""What a registered schema is to Kafka Connect: types that it names again and again, and those of others."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from avro_bytes import PREFIX, record_type, registered

from worker.formats.schema_registry.avro.schema import SchemaError
from worker.formats.schema_registry.client import Registered
from worker.formats.schema_registry.registered import RegisteredSchema, read

DATE = {"type": "integer", "title": "io.debezium.time.Date", "connect.type": "int32"}


def multiplied_avro(width: int) -> dict[str, Any]:
    """Each of some records has the next one `width` times, or NULL."""
    made: Any = {"type": "int", "connect.name": "io.debezium.time.Date"}
    for level in range(5):
        types = [made, *[f"R{level - 1}" if level else "int"] * (width - 1)]
        made = record_type(f"R{level}", **{f"f{n}": ["null", each] for n, each in enumerate(types)})
    return made


def multiplied_json(width: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {"0": DATE}
    for level in range(1, 6):
        properties = {f"f{n}": {"$ref": f"#/definitions/{level - 1}"} for n in range(width)}
        definitions[str(level)] = {"type": "object", "properties": properties}
    return {"$ref": "#/definitions/5", "definitions": definitions}


@pytest.mark.parametrize("width", [12, 60])
@pytest.mark.parametrize(("kind", "multiplied"), [("AVRO", multiplied_avro), ("JSON", multiplied_json)])
def test_a_schema_of_too_many_fields_by_the_types_it_names_is_refused_at_once(
    kind: str, multiplied: Any, width: int
) -> None:
    begin = time.process_time()
    with pytest.raises(SchemaError, match="more than 20,000 fields"):
        read(Registered(kind, json.dumps(multiplied(width))), PREFIX)
    assert time.process_time() - begin < 5


def test_a_schema_whose_names_become_too_many_bytes_is_refused() -> None:
    parameters = {"a": "x" * 10_000}
    told = {**DATE, "connect.parameters": parameters}
    definitions = {"d": told, "o": {"type": "object", "properties": {}}}
    definitions["o"]["properties"] = {f"f{n}": {"$ref": "#/definitions/d"} for n in range(5000)}
    with pytest.raises(SchemaError, match="or 16 MiB"):
        read(Registered("JSON", json.dumps({"$ref": "#/definitions/o", "definitions": definitions})), PREFIX)


def test_a_wide_table_is_read() -> None:
    columns = [{"name": f"c{n}", "type": ["null", {"type": "array", "items": "int"}]} for n in range(4096)]
    row = {"type": "record", "name": "V", "fields": columns, "connect.name": "V"}
    told = record_type("E", before=["null", row], after=["null", "V"], op="string")
    assert registered(told).head.schema.count(b'"c4095"') == 2


def test_what_is_kept_of_a_schema_counts_with_its_head_and_its_references() -> None:
    small = {"type": "object", "properties": {"a": DATE}}
    alone = read(Registered("JSON", json.dumps(small)), PREFIX).weight
    more = read(Registered("JSON", json.dumps(small), ("{}" + " " * 1000,), ("other",)), PREFIX).weight
    assert more == alone + 1002
    for kind, told in (("AVRO", multiplied_avro(5)), ("JSON", multiplied_json(5))):
        made = read(Registered(kind, json.dumps(told)), PREFIX)
        assert 10 * made.weight > len(made.head.schema) > 30_000


# ---- references of JSON Schemas


def head(root: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Keyed by the columns' names."""
    made = json_schema(root, **others)
    told = msgspec.json.decode(made.head.schema)
    return {field["field"]: field for field in told["fields"]}


def json_schema(root: dict[str, Any], **others: Any) -> RegisteredSchema:
    names = tuple(f"{name}.json" for name in others)
    texts = tuple(map(json.dumps, others.values()))
    return read(Registered("JSON", json.dumps(root), texts, names), PREFIX)


def row(**columns: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"$ref": told} for name, told in columns.items()}}


def test_references_to_other_json_schemas_are_followed() -> None:
    more = {"definitions": {"day": DATE, "again": {"$ref": "#/definitions/day"}, "a/b": DATE}}
    found = head(
        row(whole="date.json", part="more.json#/definitions/again", escaped="more.json#/definitions/a~1b"),
        date=DATE,
        more=more,
    )
    assert {name: (field["type"], field["name"]) for name, field in found.items()} == dict.fromkeys(
        ("whole", "part", "escaped"), ("int32", "io.debezium.time.Date")
    )


def test_a_reference_within_a_reference_leads_from_where_it_stands() -> None:
    outer = {"$ref": "#/definitions/r", "definitions": {"r": row(day="#/definitions/day"), "day": DATE}}
    found = head({**row(a="outer.json"), "definitions": {"day": {"type": "string"}}}, outer=outer)
    assert found["a"]["fields"][0]["name"] == "io.debezium.time.Date"


def test_a_schema_may_refer_to_itself_by_its_id_and_by_places_in_lists() -> None:
    root = {
        **row(a="http://x/y#/definitions/day", b="#/definitions/either/oneOf/1"),
        "$id": "http://x/y",
        "definitions": {"day": DATE, "either": {"oneOf": [{"type": "null"}, DATE]}},
    }
    assert {field["type"] for field in head(root).values()} == {"int32"}


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("other.json", "'other.json', which names none of its references"),
        ("date.json#/definitions/x", "which does not exist"),
        ("#/definitions/x", "which does not exist"),
        ("#anchor", "which does not exist"),
        ("#/properties/a", "references form a circle"),
    ],
)
def test_a_reference_that_leads_nowhere_is_a_schema_that_cannot_be_read(reference: str, told: str) -> None:
    """The types would be lost, and nobody told."""
    with pytest.raises(SchemaError, match=told):
        json_schema(row(a=reference), date=DATE)


def test_two_references_of_one_name_are_refused() -> None:
    texts = json.dumps(DATE), '{"type":"string"}'
    with pytest.raises(SchemaError, match="two of its references are called 'a'"):
        read(Registered("JSON", json.dumps(row(a="a")), texts, ("a", "a")), PREFIX)


def test_a_json_schema_without_connects_types_is_read_whatever_it_refers_to() -> None:
    assert json_schema(row(a="other.json")).head.schema == b"null"
