"""Debezium's envelopes in Avro. Code generated for each schema reads a record's route, its position in the
source's log, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, get_args

import msgspec

from worker.formats.debezium.connect.values import Reader
from worker.formats.debezium.rows import Message, Transaction
from worker.formats.debezium.source import Row, Source
from worker.formats.interface import FIRST_MS, LAST_MS
from worker.formats.schema_registry.avro.code import Code, branches_of
from worker.formats.schema_registry.avro.schema import AvroField, AvroSchema

_SOURCE = {
    field.name: "string" if str in (field.type, *get_args(field.type)) else "number"
    for field in msgspec.structs.fields(Source)
}
"""The fields of `Source`, in its order, and their required kinds."""
_STEADY = frozenset(
    ("version", "connector", "name", "snapshot", "db", "schema", "table", "server_id", "file")
)
_REQUIRED = ("name", "connector")
"""The fields of `Source` that are never None."""
_KINDS = {"string": "string", "int": "number", "long": "number"}
_MOST_COLUMNS = 1_000
"""Code for more columns would take too long to generate. Such rows are read through JSON."""
_MOST_FIELDS = 1_000
"""The same limit for the fields of an envelope, its source and its transaction."""
_NATIVE: Mapping[Any, tuple[str, ...]] = {
    int: ("int", "long"),
    int | str: ("int", "long", "string"),
    bool: ("boolean",),
    float: ("float", "double"),
    str: ("string", "enum"),
    bytes: ("bytes", "fixed"),
    Any: ("int", "long", "boolean", "string", "enum"),
}
"""JSON type of a column's reader -> Avro kinds that already have this type."""
_EXACT = frozenset(("boolean", "int", "long", "bytes", "string", "enum", "fixed"))
"""Kinds whose equal values are identical. Other numbers have a negative zero, also in arrays."""


class Placed(NamedTuple):
    """A row's record without its rows."""

    source: Source
    op: str
    ts_ms: int | None
    transaction: Transaction | None


RowsReader = Callable[[bytes, int], tuple[Message[Row], Row | None, Row | None]]
"""(value, start of its Avro) -> (message, `before`, `after`). Raises one of READ_ERRORS or REFUSALS."""


class AvroEnvelope:
    """A schema of rows in envelopes. Threads share it without a lock."""

    def __init__(self, schema: AvroSchema, row: AvroSchema) -> None:
        self._schema = schema
        self._row = row
        self.route: Callable[[bytes, int], tuple[str | None, str | None, str | None, str]] = self._route()
        """(value, start of its Avro) -> (db, schema, table, op)."""
        self._place: Callable[[bytes, int], Placed] | None = None

    def placed(self, value: bytes, start: int) -> Placed:
        """Read a record without its rows. Raises one of READ_ERRORS."""
        if self._place is None:
            self._place = self._placed()
        return self._place(value, start)

    def _route(self) -> Callable[..., Any]:
        code = Code()
        code.line("schema = None")
        self._parts(code, {"db": "db", "schema": "schema", "table": "table"}, {"op": "op"})
        code.line("return db, schema, table, op")
        return code.made()

    def _placed(self) -> Callable[..., Any]:
        code = Code()
        self._head(code)
        code.line(f"return {code.bind(Placed)}(source, op, ts_ms, transaction)")
        return code.made()

    def rows(self, readers: Mapping[str, Reader]) -> RowsReader | None:
        """Generate the reader of rows. `readers`: column -> reader. None if there are too many columns."""
        columns = self._row.fields
        if len(columns) > _MOST_COLUMNS:
            return None
        code = Code()
        code.line("before = after = None")
        self._head(code, {"before": "x", "after": "y"})
        finishes = [_finish(field, readers.get(field.name)) for field in columns]
        names = [code.bind(finish) if finish is not None else "" for finish in finishes]
        for row, prefix in (("before", "x"), ("after", "y")):
            code.block(f"if {row}:", partial(self._finished, code, row, prefix, names))
        message = code.bind(Message)
        code.line(f"return {message}(op, source, None, None, transaction, ts_ms), before, after")
        return code.made()

    def _finished(self, code: Code, row: str, prefix: str, finishes: list[str]) -> None:
        items = []
        for place, (field, finish) in enumerate(zip(self._row.fields, finishes, strict=True)):
            raw = f"{prefix}{place}"
            if finish:
                self._finish(code, row, place, finish, field)
                raw = f"{prefix}f{place}"
            items.append(f"{field.name!r}: {raw}")
        code.line(f"{row} = {{{', '.join(items)}}}")

    @staticmethod
    def _finish(code: Code, row: str, place: int, finish: str, field: AvroField) -> None:
        raw, done = (f"x{place}", f"xf{place}") if row == "before" else (f"y{place}", f"yf{place}")
        shares = row == "after" and field.type.value.kind in _EXACT
        head = "if"
        if field.type.kind == "union":
            code.block(f"if {raw} is None:", f"{done} = None")
            head = "elif"
        if shares:  # most values of an update do not change
            code.block(f"{head} before and {raw} == x{place}:", f"{done} = xf{place}")
            head = "elif"
        if head == "if":
            code.line(f"{done} = {finish}({raw})")
        else:
            code.block("else:", f"{done} = {finish}({raw})")

    def _head(self, code: Code, rows: Mapping[str, str] | None = None) -> None:
        """Read all parts and check the end. `rows`: row -> prefix of the variables of its columns."""
        for name in _SOURCE:
            code.line(f"s_{name} = {'' if name in _REQUIRED else None!r}")
        code.line("transaction = ts_ms = None")
        self._parts(code, {name: f"s_{name}" for name in _SOURCE}, {"op": "op", "ts_ms": "ts_ms"}, rows or {})
        code.line(f"if {' is None or '.join(f's_{name}' for name in _REQUIRED)} is None: raise ValueError")
        code.line("if p != len(b): raise ValueError(f'its end is at byte {p} of {len(b)}')")
        for name in ("s_ts_ms", "ts_ms"):
            bounds = f"{FIRST_MS} <= {name} <= {LAST_MS}"
            code.line(f"if {name} is not None and not {bounds}: raise ValueError('not a time')")
        code.line(f"source = {code.bind(Source)}({', '.join(f's_{name}' for name in _SOURCE)})")

    def _parts(
        self,
        code: Code,
        source: dict[str, str],
        fields: dict[str, str],
        rows: Mapping[str, str] | None = None,
    ) -> None:
        for field in self._schema.fields:
            prefix = (rows or {}).get(field.name)
            if prefix is not None:
                self._row_read(code, field, prefix)
            elif field.name == "source":
                code.steady(field.type.value, source, _STEADY)
            elif field.name == "transaction" and rows is not None:
                self._transaction(code, field.type)
            elif field.name in fields:
                code.read(field.type, fields[field.name])
            else:
                code.skip(field.type)

    def _row_read(self, code: Code, field: AvroField, prefix: str) -> None:
        def columns(row: AvroSchema) -> None:
            for place, column in enumerate(row.fields):
                code.read(column.type, f"{prefix}{place}")
            code.line(f"{field.name} = True")

        code.nullable(field.type, columns, lambda: None)

    @staticmethod
    def _transaction(code: Code, schema: AvroSchema) -> None:
        def known(block: AvroSchema) -> None:
            code.line("t_id = None")
            code.fields(block, {"id": "t_id"})
            code.line(f"transaction = {code.bind(Transaction)}(t_id)")

        code.nullable(schema, known, lambda: None)


def envelope_of(schema: AvroSchema) -> AvroEnvelope | None:
    """The envelope of a schema, or None for a schema of other records."""
    fields = {field.name: field.type for field in schema.fields}
    if schema.kind != "record" or not {"before", "after", "source", "op"} <= fields.keys():
        return None
    row, before = fields["after"].value, fields["before"].value
    source, op = fields["source"], fields["op"]
    transaction = fields.get("transaction")
    block = None if transaction is None else transaction.value
    if (
        row.kind != "record"
        or before is not row
        or branches_of(fields["after"]) is None
        or branches_of(fields["before"]) is None
        or source.kind != "record"
        or op.value.kind != "string"
        or not _is_source(source)
        or ("ts_ms" in fields and _KINDS.get(fields["ts_ms"].value.kind) != "number")
        or (block is not None and not _is_transaction(block))
        or any(len(part.fields) > _MOST_FIELDS for part in (schema, source, block) if part is not None)
    ):
        return None
    return AvroEnvelope(schema, row)


def _is_source(source: AvroSchema) -> bool:
    found = {field.name: field.type for field in source.fields}
    return {"db", "table"} <= found.keys() and all(
        _KINDS.get(found[name].value.kind) == kind
        and (found[name].kind != "union" or branches_of(found[name]))
        for name, kind in _SOURCE.items()
        if name in found
    )


def _is_transaction(block: AvroSchema) -> bool:
    return block.kind == "record" and all(
        field.type.value.kind == "string" for field in block.fields if field.name == "id"
    )


def _finish(field: AvroField, reader: Reader | None) -> Callable[[Any], Any] | None:
    """The conversion of a value other than None. None: the value stays unchanged."""
    kind = field.type.value.kind
    if reader is None:
        return None if kind in _NATIVE[Any] else _refused
    try:
        native = _NATIVE.get(reader.json_type, ())
    except TypeError:  # a type that has no hash
        native = ()
    if kind in native:
        return reader.finish
    if reader.json_type is Any and kind not in ("array", "map", "record"):
        return _refused
    return reader.read


def _refused(_value: object) -> Any:
    """Refuse bytes and numbers whose form in JSON differs. Such records are read through JSON."""
    raise ValueError("not a value of its column's type")
