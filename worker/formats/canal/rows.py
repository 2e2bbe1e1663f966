"""The rows of Canal messages: text in JSON, decoded directly into typed values.

Every message contains its types (`mysqlType`), and the next message nearly always has the same ones. So each
shape (the bytes of types and key columns) has one `RowShape`. Its decoder reads a whole message into typed
values in one pass. If that decoder refuses a message (a zero date, a column without a type), its text is read
column by column. The message is undecodable only if that fails too."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Generic, TypeVar, cast

import msgspec

from handlers.mysql.values import Converter, compact_json, converter_of
from worker.formats.images import check_key
from worker.formats.interface import Milliseconds, UndecodableRecord, shortened, wrong_value
from worker.formats.json_rows import DECODE_ERRORS, Practice, Row, RowStruct, spelled

Rows = TypeVar("Rows")

REFUSALS = (*DECODE_ERRORS, ValueError, ArithmeticError)
"""Exceptions of a shape's decoder for a message that `RowShape.read` may still be able to read."""

_NULL = msgspec.Raw(b"null")
_TEXT = Converter(str, str)


class TiDB(msgspec.Struct, gc=False):
    """The fields of TiCDC's `enable-tidb-extension` that are used here."""

    only_handle_key: bool = msgspec.field(name="onlyHandleKey", default=False)
    claim_check_location: str = msgspec.field(name="claimCheckLocation", default="")


class _ShapeFields(msgspec.Struct, gc=False):
    mysql_type: msgspec.Raw = msgspec.field(name="mysqlType", default=_NULL)
    primary_key: msgspec.Raw = msgspec.field(name="pkNames", default=_NULL)


class Message(_ShapeFields, Generic[Rows], gc=False, kw_only=True):
    """The fields that become changes. Other fields are never decoded."""

    type: str
    es: Milliseconds
    data: Rows | None = None
    old: msgspec.Raw = _NULL
    is_ddl: bool = msgspec.field(name="isDdl", default=False)
    sql: str | None = None
    gtid: str | None = None
    tidb: TiDB | None = msgspec.field(name="_tidb", default=None)


# Canal writes every value as text. Other tools that write this format also write numbers: read them as text.
_read_text = msgspec.json.Decoder(Message[list[Row]], strict=False, float_hook=Decimal).decode
read_shape = msgspec.json.Decoder(_ShapeFields).decode
_read_types = msgspec.json.Decoder(dict[str, str] | None).decode
_read_key = msgspec.json.Decoder(list[str] | None).decode
_read_old: Callable[[msgspec.Raw], list[Row | None] | None] = msgspec.json.Decoder(
    list[Row | None] | None, float_hook=Decimal
).decode


class RowShape:
    """The decoders for rows of one shape. Threads share it."""

    __slots__ = ("converters", "key_columns", "mysql_type", "practice", "primary_key", "types")

    def __init__(self, mysql_type: msgspec.Raw, primary_key: msgspec.Raw) -> None:
        """Raises UndecodableRecord if the arguments are not types and key columns."""
        try:
            types, key_columns = _read_types(mysql_type), _read_key(primary_key)
        except DECODE_ERRORS as error:
            raise UndecodableRecord(f"not a Canal message: `mysqlType` or `pkNames`: {error}") from None
        # Copies, because a view would keep the whole message in memory.
        self.mysql_type = msgspec.Raw(bytes(mysql_type))
        self.primary_key = msgspec.Raw(bytes(primary_key))
        self.types = types
        self.key_columns = None
        if key_columns:
            self.key_columns = tuple(key_columns) if types is None else spelled(key_columns, types)
            check_key(self.key_columns, types or self.key_columns)
        self.converters: dict[str, Converter] = {}
        for column, type_text in (types or {}).items():
            converter = converter_for(column, type_text)
            if converter is not None:
                self.converters[column] = converter
        self.practice = Practice(self._decoder)

    def read(self, value: bytes) -> tuple[Message[Any], list[Row] | None]:
        """Read a message of this shape and its rows: in one pass if possible, else column by column.

        Raises one of DECODE_ERRORS if the value is not a message, UndecodableRecord if a column's value does
        not fit its type."""
        decoder = self.practice.decoder
        if decoder is not None:
            try:
                typed = decoder.decode(value)
                return typed, decoder.rows(typed.data, value)
            except REFUSALS:
                self.practice.refused()
        message = _read_text(value)
        for row in message.data or ():
            self._read_columns(row)
            check_key(self.key_columns or (), row)
        if self.types:
            self.practice.met(tuple(self.types))
        return message, message.data

    def read_old(self, old: msgspec.Raw) -> list[Row | None] | None:
        """The rows of `old`, with only the columns that changed. Raises the same errors as `read`."""
        rows = _read_old(old)
        for row in rows or ():
            if row is not None:
                self._read_columns(row)
        return rows

    def _read_columns(self, row: Row) -> None:
        converter_of_column = self.converters.get
        for column, value in row.items():
            if value is None:
                continue
            text = value if type(value) is str else _text_of(column, value)
            converter = converter_of_column(column)
            if converter is not None:
                try:
                    row[column] = converter.read(text)
                except (ValueError, ArithmeticError) as error:
                    raise wrong_value(column, (self.types or {})[column], repr(text), error) from None
            elif text is not value:
                row[column] = text

    def _decoder(self, names: tuple[str, ...]) -> RowsDecoder:
        columns = {name: self.converters.get(name, _TEXT) for name in names}
        for name, converter in columns.items():
            if converter.json_type is Decimal:
                # Decode as text, because msgspec also accepts `1_000` and digits of all scripts.
                columns[name] = Converter(str, converter.read, converter.read)
        return RowsDecoder(self, RowStruct(columns))


class RowsDecoder:
    """Reads messages of one shape in one pass. Immutable."""

    __slots__ = ("decode", "mysql_type", "primary_key", "row", "shape")

    def __init__(self, shape: RowShape, struct: Any) -> None:
        self.shape = shape
        self.mysql_type, self.primary_key = shape.mysql_type, shape.primary_key
        self.row: Callable[[Any, bytes], Row] = struct.reader(_refuse_null)
        """Makes a row from the value that `decode` read from a text. Raises one of REFUSALS."""
        self.decode: Callable[[bytes], Message[Any]] = msgspec.json.Decoder(
            cast(Any, Message)[list[struct.type]], strict=False
        ).decode
        """Raises one of REFUSALS for a message that `RowShape.read` may still be able to read."""

    def rows(self, data: list[Any] | None, text: bytes) -> list[Row] | None:
        """The rows of a message that `decode` read from `text`. Raises one of REFUSALS."""
        return None if data is None else [self.row(row, text) for row in data]


def converter_for(column: str, type_text: str) -> Converter | None:
    """As `converter_of`, but refuse partial JSON: Canal writes an in-place change as a function call."""
    converter = converter_of(type_text)
    if converter is None or converter.read is not compact_json:
        return converter

    def whole(text: str) -> str:
        if text.startswith("JSON_") or (text == column and not _is_json(text)):
            raise ValueError("only part of the document: set binlog_row_value_options='' at the source")
        return compact_json(text)

    return Converter(str, whole, finish=whole)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except DECODE_ERRORS:
        return False
    return True


def refuse_sql(what: str, sql: str | None) -> None:
    """Raise UndecodableRecord for an insert, update or delete with a statement instead of rows."""
    if sql and sql.strip():
        raise UndecodableRecord(
            f"a {what} with a statement instead of rows: set binlog_format=ROW at the source"
        )


def refuse_statement(what: str, *, has_rows: bool, is_empty: bool) -> None:
    """Raise UndecodableRecord for a statement with rows, or without its required text."""
    if has_rows or is_empty:
        held = "rows" if has_rows else "no `sql`"
        raise UndecodableRecord(f"not a {what}: `isDdl` is true, but it has {held}")


def _refuse_null(text: bytes) -> None:
    # If msgspec expects a number or a date, it reads the text "null", in upper or lower case, as None.
    if b'"null"' in text.lower():
        raise ValueError("a text that the decoder reads as NULL")


def _text_of(column: str, value: object) -> str:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(value)
    raise UndecodableRecord(f"column {column!r} holds {shortened(repr(value))}, not text")
