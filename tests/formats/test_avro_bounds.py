"""What values in Avro may take: a few bytes, with a schema made for it, would be gigabytes."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from avro_bytes import HEAD, PREFIX, array, envelope, long, record_type, registered

from worker.formats.debezium.connect.schema import Split
from worker.formats.debezium.connect.values import Reader
from worker.formats.interface import UndecodableRecord
from worker.formats.schema_registry.avro import schema as weights
from worker.formats.schema_registry.avro.code import Code
from worker.formats.schema_registry.avro.schema import SchemaError, parse
from worker.formats.schema_registry.avro.values import READ_ERRORS, reader_of
from worker.formats.schema_registry.client import Registered
from worker.formats.schema_registry.registered import read

ANY = Reader(Any, None)


def nulls(name: str) -> dict[str, Any]:
    """A record of no bytes that becomes 100,000."""
    return record_type(name, **{"f" * 1000 + str(number): "null" for number in range(100)})


def split(schema: Any, avro: bytes) -> Split:
    return registered(schema).split(PREFIX + avro)


def doubling(levels: int) -> dict[str, Any]:
    """Each level has the next one twice."""
    made: Any = record_type(f"R{levels}", x="null")
    for level in reversed(range(levels)):
        made = record_type(f"R{level}", a=made, b=f"R{level + 1}")
    return made


BOMBS = {
    "records of no bytes in records of no bytes": (
        array(record_type("A", b=nulls("B"))),
        long(100_000) + b"\0",
    ),
    "arrays of arrays of nothing": (array(array("null")), long(100) + (long(600_000) + b"\0") * 100 + b"\0"),
    "maps of arrays of nothing": (
        {"type": "map", "values": array("null")},
        long(100) + b"".join(b"\2" + bytes([n]) + long(600_000) + b"\0" for n in range(100)) + b"\0",
    ),
    "a map in blocks of one item": (
        {"type": "map", "values": nulls("B")},
        b"".join(b"\2\4" + b"%02d" % (n % 100) for n in range(1000)) + b"\0",
    ),
    "an array in blocks of one item": (array(nulls("B")), b"\2" * 1000 + b"\0"),
    "records in unions": (array(["null", nulls("B")]), long(1000) + b"\2" * 1000 + b"\0"),
    "a long symbol": (
        array({"type": "enum", "name": "e", "symbols": ["x" * 100_000]}),
        long(1000) + bytes(1000) + b"\0",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_record_whose_values_would_take_more_than_their_budget_is_undecodable(bomb: str) -> None:
    with pytest.raises(UndecodableRecord, match="would take more than 64 MiB"):
        split(*BOMBS[bomb])


@pytest.mark.parametrize("wanted", [{}, {"x": "x"}], ids=["skipped", "read"])
def test_what_generated_code_meets_has_the_same_budget(wanted: dict[str, str]) -> None:
    for schema, avro in BOMBS.values():
        code = Code()
        code.fields(parse(json.dumps(envelope(x=schema))), wanted)
        code.line("return p")
        with pytest.raises(ValueError, match="would take more than 64 MiB"):
            code.made()(HEAD + avro, 0)


def test_the_records_that_generated_code_reads_count_together() -> None:
    names = [f"c{number}" for number in range(700)]
    columns = {name: ["null", "B" if number else nulls("B")] for number, name in enumerate(names)}
    made = registered(envelope(columns)).envelope
    assert made is not None
    rows = made.rows(dict.fromkeys(("id", *names), ANY))
    assert rows is not None
    few, all_ = (b"\0\2\2" + b"\2" * n + b"\0" * (700 - n) + b"\2a" * 5 for n in (100, 700))
    assert rows(PREFIX + few, len(PREFIX))[0].op == "a"
    with pytest.raises(ValueError, match="would take more than 64 MiB"):
        rows(PREFIX + all_, len(PREFIX))


def test_each_record_has_its_own_budget_in_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_MOST", 100_000)
    schema = parse(json.dumps(array("null")))
    reader, avro = reader_of(schema), long(700) + b"\0"
    code = Code()
    code.skip(schema)
    code.line("return p")
    passed = code.made()
    found: list[int] = []

    def read_some() -> None:
        for _ in range(20):
            found.extend((len(reader(avro, 0)[0]), passed(avro, 0)))

    threads = [threading.Thread(target=read_some) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [len(avro)] * 60 + [700] * 60


def test_large_arrays_of_two_rows_are_read() -> None:
    """PostgreSQL has them."""
    avro = long(100_000) + b"\2" * 100_000 + b"\0"
    found = split(record_type("r", before=array("int"), after=array("int")), avro * 2)
    assert bytes(found.payload).count(b"1") == 200_000


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (doubling(60), "would take more than 64 MiB"),
        (["null", doubling(60)], "would take more than 64 MiB"),
        (array(doubling(60)), "would take more than 64 MiB"),
        (envelope(x=["null", doubling(60)]), "would take more than 64 MiB"),
        (record_type("r", r="r"), "has itself as a required field"),
        (
            record_type("r", s=["null", record_type("s", r=record_type("t", s="s"))]),
            "has itself as a required field",
        ),
    ],
    ids=range(6),
)
def test_a_schema_no_value_of_which_could_be_read_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        registered(schema)


def test_a_record_that_may_have_itself_is_read() -> None:
    schema = record_type("r", x="int", r=["null", "r"], s=array("r"))
    assert bytes(split(schema, b"\2\2\4\0\0\0").payload) == b'{"x":1,"r":{"x":2,"r":null,"s":[]},"s":[]}'


def test_a_schema_too_deep_by_its_names_is_refused() -> None:
    links = [record_type("R0", x="int"), *(record_type(f"R{n}", x=f"R{n - 1}") for n in range(1, 5000))]
    with pytest.raises(SchemaError, match="nested types"):
        read(Registered("AVRO", '"R4999"', (json.dumps(links),), ("R",)), PREFIX)


# ---- the code that is made of a schema


def lines_of(schema: Any) -> int:
    code = Code()
    code.skip(parse(json.dumps(schema)))
    return len(code.lines)


def wide(name: str, item: Any, count: int) -> dict[str, Any]:
    """A record with the same type many times."""
    fields = {f"f{number}": item if number == 0 else item.get("name", item) for number in range(count)}
    return record_type(name, **fields)


def test_records_that_would_become_too_many_lines_are_read_whole() -> None:
    many = wide("A", wide("B", wide("C", record_type("D", x="int"), 20), 20), 200)
    assert lines_of(many) < 100
    assert lines_of(envelope(x=many, y="C")) < 400


def test_a_record_of_many_lines_is_passed_over_as_it_is_read() -> None:
    many = parse(json.dumps(wide("A", wide("B", record_type("C", x="int", s="string"), 20), 1000)))
    code = Code()
    code.skip(many)
    code.line("return p")
    avro = b"\2\2a" * 20_000
    assert code.made()(avro, 0) == len(avro) == reader_of(many)(avro, 0)[1]
    with pytest.raises(READ_ERRORS):
        code.made()(avro[:-2], 0)


def test_an_envelope_of_very_many_fields_gets_no_code() -> None:
    extra = {f"f{number}": "int" for number in range(3000)}
    assert registered(envelope()).envelope is not None
    assert registered(envelope(**extra)).envelope is None


def test_unions_in_unions_become_no_blocks_in_each_other() -> None:
    """Avro has none; Python has at most 100 blocks nested types."""
    inner: Any = "int"
    records = []
    for name in "ABC":
        for _ in range(50):
            inner = ["null", inner]
        records.append(record_type(name, x=inner))
        inner = name
    made = registered(envelope(t=record_type("T", u=records, c="C")))
    assert made.envelope is not None
    assert made.envelope.route(PREFIX + HEAD + b"\0" * 3, len(PREFIX)) == ("a", None, "a", "a")


def test_a_type_is_made_ready_once_however_often_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    original = weights.Weights.of
    monkeypatch.setattr(weights.Weights, "of", lambda self, schema: made.append(1) or original(self, schema))
    item = array(record_type("I", **{f"f{number}": "int" for number in range(200)}))
    holder = record_type("H", x=item)
    fields = {f"f{number}": holder if number == 0 else "H" for number in range(500)}
    code = Code()
    code.fields(parse(json.dumps(record_type("R", **fields))), {})
    assert sum(made) < 5000
