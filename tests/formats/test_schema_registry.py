"""The schemas of a registry: asked for once, waited for, refused; and what their records become."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from avro_records import AvroWriter, framed
from captured import CapturedRecord
from servers.schema_registry import SchemaRegistry, schema_registry
from structlog.testing import capture_logs

from handlers import Change
from worker.formats import json_rows
from worker.formats.debezium.format import Debezium
from worker.formats.decoding import decoded, explained
from worker.formats.interface import Skip, UndecodableRecord
from worker.formats.schema_registry.client import Client, Registered, RegistryUnavailable, UnknownSchema
from worker.formats.schema_registry.format import DebeziumWithRegistry, schemas_of
from worker.formats.schema_registry.ids import SchemaId
from worker.formats.schema_registry.registered import MEMORY_OF_TEXT
from worker.formats.schema_registry.schemas import Schemas, StillUnknown
from worker.formats.schema_registry.settings import SchemaRegistrySettings

SOURCE = {"connector": "mysql", "name": "my1", "db": "shop", "table": "orders", "ts_ms": 1_795_000_000_000}
TEXT = {"type": "string"}


def envelope(*columns: dict[str, Any]) -> dict[str, Any]:
    """A schema of Connect's JSON, of rows with an id and these columns."""
    row = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, *columns], "optional": True}
    source = {
        "type": "struct",
        "name": "source",
        "fields": [
            *({**TEXT, "field": name} for name in ("connector", "name", "db", "table")),
            {"type": "int64", "field": "ts_ms"},
        ],
    }
    return {
        "type": "struct",
        "name": "my1.shop.orders.Envelope",
        "fields": [
            {**row, "name": "Value", "field": "before"},
            {**row, "name": "Value", "field": "after"},
            {**source, "field": "source"},
            {**TEXT, "field": "op"},
        ],
    }


def row(after: dict[str, Any], before: dict[str, Any] | None = None, **source: Any) -> dict[str, Any]:
    op = "c" if before is None else "u"
    return {"before": before, "after": after, "source": {**SOURCE, **source}, "op": op}


def record(value: bytes | None, key: bytes | None = b'{"id":1}', offset: int = 0) -> CapturedRecord:
    return CapturedRecord("my1.shop.orders", 0, offset, 1_795_000_000_000, key, value, [])


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def settings(registry: SchemaRegistry, **keys: Any) -> SchemaRegistrySettings:
    return SchemaRegistrySettings(url=registry.url, **keys)


@pytest.fixture
def reader(registry: SchemaRegistry) -> DebeziumWithRegistry:
    return DebeziumWithRegistry(None, schemas_of(settings(registry), Path(), patience=10))


def change(format_: Debezium, one: CapturedRecord) -> Change:
    changes: list[Change] = []
    assert not isinstance(explained(format_, one), Skip)
    decoded(format_, one, changes)
    [found] = changes
    return found


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 5
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.002)


# ---- what is asked for, and when


def test_a_schema_is_asked_for_once_however_many_ask(registry: SchemaRegistry) -> None:
    number = registry.register({"type": "string"})
    schemas = schemas_of(settings(registry), Path(), patience=10)
    head = framed(number, b"")
    askers = [threading.Thread(target=schemas.get, args=(head,)) for _ in range(20)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert schemas.get(head).number == number
    assert registry.asked == [f"/schemas/ids/{number}"]


def test_what_was_made_ready_and_let_go_is_not_asked_for_again(registry: SchemaRegistry) -> None:
    schemas = schemas_of(settings(registry, max_memory="1KiB"), Path(), patience=10)
    numbers = [registry.register({"type": "fixed", "name": f"n{size}", "size": size}) for size in range(20)]
    for number in numbers * 2:
        assert schemas.get(framed(number, b"")).number == number
    assert len(registry.asked) == len(numbers)


def test_a_few_schemas_more_than_there_is_room_for_leave_most_of_them_ready(registry: SchemaRegistry) -> None:
    """Tables write in turn: the schema that is let go must not always be the one that comes next."""
    numbers = [
        registry.register({"type": "fixed", "name": f"n{size}", "size": size}) for size in range(10, 60)
    ]
    heads = [framed(number, b"") for number in numbers]
    made: list[int] = []
    with capture_logs() as logs:
        asked = settings(registry, max_memory=memory_of(40, registry, numbers[0]))
        schemas = schemas_of(asked, Path(), patience=10, rebuilt=lambda: made.append(1))
        for head in heads:
            schemas.get(head)
        assert not made, "the first time is no second one"
        for head in heads * 20:
            schemas.get(head)
    assert 10 * 20 <= len(made) < len(heads) * 20 * 0.6
    [told] = [line for line in logs if line["event"] == "schemas_rebuilt"]
    assert "schema_registry.max_memory" in told["hint"]


def memory_of(count: int, registry: SchemaRegistry, number: int) -> str:
    """As much as so many schemas like this one take."""
    one = schemas_of(settings(registry), Path(), patience=10).get(framed(number, b""))
    return f"{one.weight * MEMORY_OF_TEXT * count}B"


def test_what_is_in_use_stays_ready_when_more_schemas_come(registry: SchemaRegistry) -> None:
    numbers = [
        registry.register({"type": "fixed", "name": f"n{size}", "size": size}) for size in range(10, 31)
    ]
    asked = settings(registry, max_memory=memory_of(20, registry, numbers[0]))
    schemas = schemas_of(asked, Path(), patience=10)
    first = [schemas.get(framed(number, b"")) for number in numbers[:20]]
    schemas.get(framed(numbers[20], b""))
    again = [schemas.get(framed(number, b"")) for number in numbers[:20]]
    assert sum(one is other for one, other in zip(first, again, strict=True)) >= 1


def test_an_id_of_a_young_record_is_waited_for_longer(registry: SchemaRegistry) -> None:
    """A registry that was restarted, or one of several that is behind, knows it some seconds later."""
    now = [1_795_000_000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] - 1_795_000_000 > 40 and 5 not in registry.schemas:
            registry.register({"type": "string"}, number=5)

    found = settings(registry)
    schemas = Schemas(
        lambda: Client(found, Path()), sleep=sleep, clock=lambda: now[0], now=lambda: now[0], patience=None
    )
    reader = DebeziumWithRegistry(None, schemas)
    young, old = record(framed(5, b"\0"), key=None), record(framed(6, b"\0"), key=None)
    old = dataclasses.replace(old, timestamp_ms=old.timestamp_ms - 3_600_000)
    until(lambda: reader.ready([old]) == 1)
    assert now[0] - 1_795_000_000 < 6, "an old record's id is not waited for"
    until(lambda: reader.ready([young]) == 1)
    assert schemas.get(framed(5, b"")).number == 5


def test_records_are_ready_up_to_the_first_whose_schema_is_not_known(
    registry: SchemaRegistry, reader: DebeziumWithRegistry
) -> None:
    writer = AvroWriter(registry)
    known = writer.written(json.dumps(envelope()).encode(), row({"id": 1}))
    change(reader, record(known))
    registry.status = 503
    key = framed(99, b"\2")
    told = threading.Event()
    reader._schemas.told = lambda reason: told.set() if reason else None
    assert reader.ready([record(known), record(b'{"a":1}'), record(None, key=None)]) == 3
    assert reader.ready([record(known), record(known, key), record(known)]) == 1, "keys have schemas, too"
    assert reader.ready([record(framed(98, b"\0"))]) == 0
    assert told.wait(10)


def test_a_row_names_its_transaction(registry: SchemaRegistry, reader: DebeziumWithRegistry) -> None:
    schema, writer = envelope(), AvroWriter(registry)
    schema["fields"][2]["fields"].append({"type": "int64", "field": "txId"})
    values = [writer.written(json.dumps(schema).encode(), row({"id": 1}, txId=number)) for number in (7, 8)]
    assert [reader.transactions(record(value)) for value in values] == [("7", "7"), ("8", "8")]


def test_a_registry_that_is_down_is_told_once_and_asked_again_until_it_answers(
    registry: SchemaRegistry,
) -> None:
    number = registry.register({"type": "string"})
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            registry.status = 200

    found = settings(registry)
    schemas = Schemas(lambda: Client(found, Path()), sleep=sleep, patience=30)
    told: list[str | None] = []
    schemas.told = told.append
    registry.status = 500
    with capture_logs() as logs:
        assert schemas.get(framed(number, b"")).number == number
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [line["event"] for line in logs if line["log_level"] != "debug"] == [
        "schema_registry_down",
        "schema_registry_up",
    ]
    assert [reason is None for reason in told] == [False] * 8 + [True]


def test_an_unknown_id_is_asked_for_again_for_a_moment_then_refused_then_asked_for_again(
    registry: SchemaRegistry,
) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    found = settings(registry)
    schemas = Schemas(lambda: Client(found, Path()), sleep=sleep, clock=lambda: now[0], patience=None)
    with pytest.raises(UndecodableRecord, match="schema 5: the schema registry knows none with this id"):
        schemas.get(framed(5, b""))
    assert len(registry.asked) == 11, "twice a second for five seconds"
    with pytest.raises(UndecodableRecord):
        schemas.get(framed(5, b""))
    assert len(registry.asked) == 11
    now[0] += 61
    registry.register({"type": "string"}, number=5)
    assert not schemas.settled(framed(5, b""))
    schemas.want({framed(5, b""): 0})
    until(lambda: schemas.settled(framed(5, b"")))
    assert schemas.get(framed(5, b"")).number == 5


def test_a_number_that_is_no_id_is_refused_at_once(registry: SchemaRegistry) -> None:
    """Bytes of another writer may begin like a record. Confluent answers as for a path that it does not have,
    which would count as a registry that is down."""
    schemas = schemas_of(settings(registry), Path(), patience=0.5)
    registry.answer = lambda _path: (404, {"error_code": 404, "message": "HTTP 404 Not Found"})  # type: ignore[method-assign]
    with pytest.raises(
        UndecodableRecord, match=r"schema 2147483648: the schema cannot be used: .*2147483647"
    ):
        schemas.get(framed(2**31, b""))
    assert not registry.asked


def test_schemas_are_asked_for_in_the_order_of_their_records(
    registry: SchemaRegistry, reader: DebeziumWithRegistry
) -> None:
    """What is next goes on first, however slow the registry is."""
    numbers = [registry.register({"type": "fixed", "name": "n", "size": size}) for size in range(1, 21)]
    waiting = [record(framed(number, b"\0"), key=None) for number in reversed(numbers)]
    assert reader.ready(waiting) == 0
    until(lambda: reader.ready(waiting) == len(waiting))
    assert registry.asked == [f"/schemas/ids/{number}" for number in reversed(numbers)]


def test_several_unknown_ids_are_each_asked_for_as_often_as_one(registry: SchemaRegistry) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    found = settings(registry)
    schemas = Schemas(lambda: Client(found, Path()), sleep=sleep, clock=lambda: now[0], patience=None)
    heads = [framed(number, b"") for number in (5, 6, 7)]
    schemas.want(dict.fromkeys(heads, 0))
    try:
        until(lambda: all(map(schemas.settled, heads)))
        assert len(registry.asked) <= 36
    finally:
        now[0] += 10


def test_who_reads_a_record_whose_schema_was_refused_waits_for_nothing_however_long_ago_that_was(
    registry: SchemaRegistry,
) -> None:
    """Records are held back for a while behind the gate, in source order, say."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        threading.Event().wait(0.001)

    found = settings(registry)
    schemas = Schemas(lambda: Client(found, Path()), sleep=sleep, clock=lambda: now[0], patience=None)
    reader = DebeziumWithRegistry(None, schemas)
    one = record(framed(5, b"\0"))
    until(lambda: reader.ready([one]) == 1)
    now[0] += 61
    registry.status = 503
    told: list[Exception] = []

    def read() -> None:
        try:
            explained(reader, one)
        except UndecodableRecord as error:
            told.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(5)
    registry.status = 200  # else it would ask on
    assert not thread.is_alive()
    assert "knows none with this id" in str(told[0])


def test_a_schema_that_the_registry_does_not_give_keeps_no_other_waiting(registry: SchemaRegistry) -> None:
    """Some answer 403 for a subject that the user may not read, or 500 for one that is broken."""
    forbidden, readable, later = (
        registry.register({"type": "fixed", "name": "n", "size": size}) for size in (1, 2, 3)
    )
    answer, refused = registry.answer, [True]

    def answer_some(path: str) -> tuple[int, Any]:
        if path == f"/schemas/ids/{forbidden}" and refused[0]:
            return 403, {"error_code": 403, "message": "User is denied"}
        return answer(path)

    registry.answer = answer_some  # type: ignore[method-assign]
    found = settings(registry)
    schemas = Schemas(
        lambda: Client(found, Path()), sleep=lambda _seconds: threading.Event().wait(0.001), patience=None
    )
    try:
        schemas.want({framed(forbidden, b""): 0})
        schemas.want({framed(readable, b""): 0})
        until(lambda: schemas.settled(framed(readable, b"")))
        schemas.want({framed(later, b""): 0})
        until(lambda: schemas.settled(framed(later, b"")))
        assert not schemas.settled(framed(forbidden, b"")), "it waits: the registry may give it yet"
    finally:
        refused[0] = False
    until(lambda: schemas.settled(framed(forbidden, b"")))


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "see schema_registry.basic_auth"),
        (302, "redirects are not followed"),
        (404, "the root of the REST API"),
    ],
)
def test_an_answer_of_others_is_no_answer_about_the_schema(
    registry: SchemaRegistry, status: int, told: str
) -> None:
    registry.status = status
    registry.headers = {"Location": "/elsewhere"}
    schemas = schemas_of(settings(registry), Path(), patience=0.2)
    asked = threading.Event()
    schemas.told = lambda _reason: asked.set()
    schemas.want({framed(1, b""): 0})
    assert asked.wait(10)
    with pytest.raises(StillUnknown, match=told):
        schemas.get(framed(1, b""))
    assert "/elsewhere" not in registry.asked


def test_a_page_in_place_of_an_answer_is_waited_out(registry: SchemaRegistry) -> None:
    registry.register({"type": "string"})
    large = b"<html>" * (2 << 20)
    pages = [(200, b"<html>log in</html>"), (200, b'{"schema": 5}'), (200, b"\xff"), (502, large)]
    answer = registry.answer
    registry.answer = lambda path: pages.pop() if pages else answer(path)  # type: ignore[method-assign]
    found = settings(registry)
    pauses: list[float] = []
    schemas = Schemas(lambda: Client(found, Path()), sleep=pauses.append, patience=10)
    assert schemas.get(framed(1, b"")).number == 1
    assert len(pauses) == 4


def test_the_user_and_the_token_are_sent(registry: SchemaRegistry) -> None:
    user = {"username": "u", "password": "hunter22"}
    for needs, keys in (
        ("Basic dTpodW50ZXIyMg==", {"basic_auth": user}),
        ("Bearer abc", {"bearer_token": "abc"}),
    ):
        registry.needs = needs
        assert Client(SchemaRegistrySettings.model_validate({"url": registry.url, **keys}), Path()).reach()
    with pytest.raises(RegistryUnavailable, match="answers 401"):
        Client(settings(registry), Path()).reach()


@pytest.mark.parametrize(
    "keys", [{"basic_auth": {"username": "u", "password": "hunter22"}}, {"bearer_token": "hunter22"}]
)
def test_an_answer_that_repeats_what_was_sent_brings_no_secret_into_an_error(
    registry: SchemaRegistry, keys: dict[str, Any]
) -> None:
    registry.answer = lambda _: (403, "hunter22 dTpodW50ZXIyMg== may not")  # type: ignore[method-assign]
    client = Client(SchemaRegistrySettings.model_validate({"url": registry.url, **keys}), Path())
    with pytest.raises(RegistryUnavailable, match="may not") as found:
        client.reach()
    assert "hunter22" not in str(found.value)
    if "basic_auth" in keys:
        assert "dTpodW50ZXIyMg==" not in str(found.value)


@pytest.mark.parametrize("password", ["error_code", "40403", "schema", "1"])
def test_a_password_that_is_a_word_of_the_api_hides_no_answer(
    registry: SchemaRegistry, password: str
) -> None:
    """Else an id that the registry does not know would be asked for without end."""
    told = {"error_code": 40403, "message": "Schema 1 not found"}
    registry.answer = lambda _: (404, told)  # type: ignore[method-assign]
    keys = {"url": registry.url, "basic_auth": {"username": "u", "password": password}}
    client = Client(SchemaRegistrySettings.model_validate(keys), Path())
    with pytest.raises(UnknownSchema) as found:
        client.schema(SchemaId("number", "1"))
    assert password not in str(found.value)


def test_the_proxies_of_the_environment_are_used_as_targets_use_them(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = registry.answer
    registry.answer = lambda path: answer(path.removeprefix("http://registry.invalid"))  # type: ignore[method-assign]
    number = registry.register({"type": "string"})
    monkeypatch.setenv("HTTP_PROXY", registry.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    client = Client(SchemaRegistrySettings(url="http://registry.invalid"), Path())
    assert client.schema(SchemaId("number", str(number))).kind == "AVRO"
    assert registry.asked == [f"http://registry.invalid/schemas/ids/{number}"]
    monkeypatch.setenv("NO_PROXY", "registry.invalid")
    client = Client(SchemaRegistrySettings(url="http://registry.invalid"), Path())
    with pytest.raises(RegistryUnavailable, match="ConnectError"):
        client.schema(SchemaId("number", str(number)))


# ---- schemas


def test_references_are_followed(registry: SchemaRegistry, reader: DebeziumWithRegistry) -> None:
    registry.register({"type": "enum", "name": "a.Colour", "symbols": ["red", "blue"]}, subject="a.Colour")
    colour = {"name": "a.Colour", "subject": "a.Colour", "version": 1}
    paint = {"type": "record", "name": "b.Paint", "fields": [{"name": "colour", "type": "a.Colour"}]}
    registry.register(paint, subject="b/Paint", references=[colour])
    whole = {"type": "record", "name": "W", "fields": [{"name": "p", "type": ["null", "b.Paint"]}]}
    reference = {"name": "b.Paint", "subject": "b%2FPaint", "version": 1}
    registry.subjects["b%252FPaint", 1] = registry.subjects["b/Paint", 1]
    number = registry.register(whole, references=[reference])
    assert bytes(reader._schemas.get(framed(number, b"")).split(framed(number, b"\2\2")).payload) == (
        b'{"p":{"colour":"blue"}}'
    )


def test_references_in_a_circle_are_refused(registry: SchemaRegistry) -> None:
    circle = {"name": "a", "subject": "a", "version": 1}
    registry.register({"type": "string"}, subject="a", references=[circle])
    with pytest.raises(UndecodableRecord, match="form a circle"):
        schemas_of(settings(registry), Path()).get(framed(1, b""))


DEEP: Any = "int"
for _ in range(100):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    "schema",
    [
        "no json",
        "[" * 100_000,
        json.dumps(DEEP),
        json.dumps({"type": "record", "name": "a", "fields": 5}),
        json.dumps({"type": "fixed", "name": "a", "size": 1 << 40}),
        json.dumps({"type": "a.Missing"}),
        json.dumps([]),
        json.dumps({"type": "string", "doc": "x" * (9 << 20)}),
    ],
    ids=range(8),
)
def test_a_schema_that_cannot_be_is_refused_and_the_next_is_read(
    registry: SchemaRegistry, schema: str
) -> None:
    schemas = schemas_of(settings(registry), Path())
    bad, good = registry.register(schema), registry.register({"type": "string"})
    with pytest.raises(UndecodableRecord, match=f"schema {bad}: the schema cannot be used"):
        schemas.get(framed(bad, b""))
    assert schemas.get(framed(good, b"")).number == good


@pytest.mark.parametrize(
    ("schema", "avro"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ({"type": "map", "values": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("string", b"\1"),
        ("long", b"\xff" * 20),
        ("boolean", b"\7"),
        (["null", "long"], b"\4"),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, b"\1"),
        ("string", b"\2ab"),
        ("bytes", b"\4a"),
        ({"type": "record", "name": "r", "fields": [{"name": "r", "type": ["null", "r"]}]}, b"\2" * 100_000),
    ],
)
def test_bytes_that_are_not_of_their_schema_are_undecodable_and_take_no_memory(
    registry: SchemaRegistry, reader: DebeziumWithRegistry, schema: Any, avro: bytes
) -> None:
    number = registry.register(json.dumps(schema))
    with pytest.raises(UndecodableRecord, match=f"the bytes do not match their schema \\({number}\\)"):
        explained(reader, record(framed(number, avro)))


def test_a_record_without_a_registry_says_what_to_set() -> None:
    with pytest.raises(UndecodableRecord, match=r"schema 7.*set schema_registry.url to its address"):
        explained(Debezium(), record(framed(7, b"\0\0\0")))


# ---- rows


def test_rows_are_read_by_the_schema_that_they_were_written_with(
    registry: SchemaRegistry, reader: DebeziumWithRegistry
) -> None:
    writer = AvroWriter(registry)
    old = json.dumps(envelope({"field": "note", "type": "string", "optional": True})).encode()
    new = json.dumps(envelope({"field": "total", "type": "int32", "optional": True})).encode()
    for _ in range(3):
        assert change(reader, record(writer.written(old, row({"id": 1, "note": "x"})))).after == {
            "id": 1,
            "note": "x",
        }
        assert change(reader, record(writer.written(new, row({"id": 1, "total": None})))).after == {
            "id": 1,
            "total": None,
        }


def test_one_schema_of_several_tables_gives_each_its_own(
    registry: SchemaRegistry, reader: DebeziumWithRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_rows, "_MET_BEFORE", 2)
    writer, schema = AvroWriter(registry), json.dumps(envelope()).encode()
    for number in range(12):
        for table in ("orders_1", "orders_2"):
            one = record(writer.written(schema, row({"id": number}, table=table)))
            found = reader.route(one.value())
            assert (found.database, found.table) == ("shop", table)
            assert change(reader, one).after == {"id": number}


def test_code_for_a_schema_reads_each_value_as_the_long_way_does(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [
        {"field": "big", "type": "int64", "optional": True},
        {"field": "text", "type": "string", "optional": True},
        {"field": "flag", "type": "boolean"},
        {"field": "at", "type": "string", "name": "io.debezium.time.ZonedTimestamp", "optional": True},
        {"field": "'\"\\\n; raise", "type": "bytes", "optional": True},
    ]
    writer, schema = AvroWriter(registry), json.dumps(envelope(*columns)).encode()
    numbers = [
        0,
        1,
        -1,
        63,
        64,
        -64,
        -65,
        8191,
        8192,
        -8192,
        -8193,
        2**31,
        -(2**31),
        2**63 - 1,
        -(2**63),
        None,
    ]
    readers = []
    for before_code in (1, 1_000_000):
        monkeypatch.setattr(json_rows, "_MET_BEFORE", before_code)
        readers.append(DebeziumWithRegistry(None, schemas_of(settings(registry), Path(), patience=10)))
        change(readers[-1], record(writer.written(schema, row({"id": 0, "flag": True}))))
    quick, slow = readers
    for big in numbers:
        for text in ("", "x" * 63, "x" * 64, "é" * 5000, '"\\', None):
            values = {"id": 1, "big": big, "text": text, "flag": False, "at": None, "'\"\\\n; raise": "AAE="}
            other = {**values, "at": "2025-01-01T00:00:00.5Z", "'\"\\\n; raise": None}
            one = record(writer.written(schema, row(values, other)))
            assert change(quick, one) == change(slow, one)
    finer = record(writer.written(schema, row({"id": 1, "flag": True, "at": "2025-01-01T00:00:00.1234567Z"})))
    for each in readers:
        with pytest.raises(UndecodableRecord, match="finer than microseconds"):
            change(each, finer)
    assert quick._latest
    assert not slow._latest


def test_json_behind_the_id_of_a_json_schema_is_read_with_its_types(
    registry: SchemaRegistry, reader: DebeziumWithRegistry
) -> None:
    def nullable(told: dict[str, Any], index: int) -> dict[str, Any]:
        return {"connect.index": index, "oneOf": [{"type": "null"}, told]}

    date = {"type": "integer", "title": "io.debezium.time.Date", "connect.type": "int32"}
    scale = {"scale": "2", "connect.decimal.precision": "5"}
    decimal = {
        "type": "number",
        "title": "org.apache.kafka.connect.data.Decimal",
        "connect.type": "bytes",
        "connect.parameters": scale,
    }
    identity = {"type": "integer", "connect.type": "int64", "connect.index": 0}
    value = {
        "type": "object",
        "title": "Value",
        "properties": {"id": identity, "on": nullable(date, 1), "total": nullable(decimal, 2)},
    }
    schema = {
        "type": "object",
        "title": "my1.shop.orders.Envelope",
        "properties": {
            "before": nullable(value, 0),
            "after": nullable(value, 1),
            "source": {"type": "object", "connect.index": 2},
            "op": {"type": "string", "connect.index": 3},
        },
    }
    number = registry.register(schema, "JSON")
    text = json.dumps(row({"id": 1, "on": 1, "total": "AIY="})).encode()
    for _ in range(70):
        found = change(reader, record(framed(number, text)))
        assert found.after is not None
        assert repr(found.after) == "{'id': 1, 'on': datetime.date(1970, 1, 2), 'total': Decimal('1.34')}"
    assert found.types == {"id": "bigint", "on": "date", "total": "decimal(5,2)"}


def test_another_language_is_refused_by_name(registry: SchemaRegistry, reader: DebeziumWithRegistry) -> None:
    number = registry.register("<schema/>", "XSD")
    with pytest.raises(
        UndecodableRecord, match="a schema of kind XSD: only Avro, JSON Schema and Protobuf are read"
    ):
        explained(reader, record(framed(number, b"\0\0")))


def test_ids_of_eight_bytes_are_asked_for_in_apicurios_own_api(registry: SchemaRegistry) -> None:
    answers: dict[str, Any] = {
        "/ids/globalIds/1": envelope_avro(),
        "/ids/globalIds/1/references": [],
    }
    registry.answer = lambda path: (200, answers[path])  # type: ignore[method-assign]
    asked = settings(registry, api="apicurio", ids="global", id_bytes=8)
    format_ = DebeziumWithRegistry(None, schemas_of(asked, Path(), patience=10))
    written = AvroWriter(registry, 8).written(json.dumps(envelope()).encode(), row({"id": 4}))
    assert change(format_, record(written)).after == {"id": 4}


NO_RESOURCE = {
    "message": "RESTEASY003210: Could not find ...",
    "error_code": 404,
    "name": "NotFoundException",
}


def test_a_path_that_apicurio_does_not_have_says_something_of_the_address_alone(
    registry: SchemaRegistry,
) -> None:
    client = Client(settings(registry, api="apicurio"), Path())
    registry.answer = lambda _path: (404, NO_RESOURCE)  # type: ignore[method-assign]
    with pytest.raises(RegistryUnavailable, match="the root of the REST API of apicurio"):
        client.schema(SchemaId("global", "1"))
    client.close()


def test_a_number_that_apicurio_takes_for_no_id_is_unknown(registry: SchemaRegistry) -> None:
    client = Client(settings(registry, api="apicurio"), Path())
    answers: dict[str, Any] = {"/system/info": (200, {"name": "Apicurio Registry"})}
    registry.answer = lambda path: answers.get(path, (404, NO_RESOURCE))  # type: ignore[method-assign]
    with pytest.raises(UnknownSchema):
        client.schema(SchemaId("global", str(2**63)))
    client.close()


def test_an_apicurio_without_references_has_none(registry: SchemaRegistry) -> None:
    client = Client(settings(registry, api="apicurio"), Path())
    answers: dict[str, Any] = {"/ids/globalIds/1": (200, {"type": "string"})}
    registry.answer = lambda path: answers.get(path, (404, NO_RESOURCE))  # type: ignore[method-assign]
    assert client.schema(SchemaId("global", "1")) == Registered("AVRO", '{"type": "string"}')
    client.close()


def envelope_avro() -> Any:
    from avro_records import avro_schema

    return avro_schema(envelope())


def test_references_are_followed_in_apicurios_own_api(registry: SchemaRegistry) -> None:
    paint = {"name": "paint", "groupId": "g", "artifactId": "b/Paint", "version": "2"}
    colour = {"name": "colour", "groupId": None, "artifactId": "Colour", "version": "1"}
    answers: dict[str, Any] = {
        "/ids/contentIds/7": "whole",
        "/ids/contentIds/7/references": [paint, colour],
        "/groups/g/artifacts/b%2FPaint/versions/2/content": "paint",
        "/groups/g/artifacts/b%2FPaint/versions/2/references": [colour],
        "/groups/default/artifacts/Colour/versions/1/content": "colour",
        "/groups/default/artifacts/Colour/versions/1/references": [],
    }
    registry.answer = lambda path: (200, answers[path])  # type: ignore[method-assign]
    client = Client(settings(registry, api="apicurio"), Path())
    found = client.schema(SchemaId("content", "7"))
    assert found.text == '"whole"'
    assert found.references == ('"colour"', '"paint"'), "each after those that it refers to itself"
    assert found.names == ("colour", "paint")
    assert len(registry.asked) == len(answers), "each is asked for once"
