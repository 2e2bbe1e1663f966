"""The rows of Canal messages: text in JSON, decoded straight into typed values.

The types come with every message (`mysqlType`), and nearly always they are those of the message before. So
each shape (types and key columns, as the bytes they come in) has one `RowShape`, whose decoder reads a whole
message of that shape into typed values in one pass. What that decoder refuses (a zero date, a column without
a type) is read column by column from the text; only what is refused there too is undecodable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Generic, TypeVar, cast

import msgspec

from handlers.mysql.values import Converter, converter_of
from worker.formats.interface import UndecodableRecord
from worker.formats.row_struct import Row, RowStruct, StructColumn
from worker.formats.times import Milliseconds

__all__ = ["DECODE_ERRORS", "REFUSALS", "Message", "Row", "RowShape", "TiDB", "read_shape", "shortened"]

Rows = TypeVar("Rows")

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding can raise: bad JSON or a wrong type, bytes that are not UTF-8, too deep a nesting."""

REFUSALS = (*DECODE_ERRORS, ValueError, ArithmeticError)
"""What the decoder of a shape and `typed_rows` raise for a message that `read` may still know."""

_NULL = msgspec.Raw(b"null")
_SHOWN_CHARACTERS = 60
# A decoder of its own costs a shape 1 ms and 10-30 KiB: worth it from so many messages on.
_MESSAGES_BEFORE_DECODER = 64
# After a message that the shape's decoder refused: so many are read column by column before it is tried
# again, for a table with one zero date has more of them.
_MESSAGES_AFTER_REFUSAL = 10_000


class TiDB(msgspec.Struct, gc=False):
    """What TiCDC adds to a message with `enable-tidb-extension`, as far as it matters."""

    only_handle_key: bool = msgspec.field(name="onlyHandleKey", default=False)
    claim_check_location: str = msgspec.field(name="claimCheckLocation", default="")


class Message(msgspec.Struct, Generic[Rows], gc=False):
    """The fields that changes are made of; the others are never decoded."""

    type: str
    es: Milliseconds
    data: Rows | None = None
    old: msgspec.Raw = _NULL
    mysql_type: msgspec.Raw = msgspec.field(name="mysqlType", default=_NULL)
    primary_key: msgspec.Raw = msgspec.field(name="pkNames", default=_NULL)
    is_ddl: bool = msgspec.field(name="isDdl", default=False)
    sql: str | None = None
    gtid: str | None = None
    tidb: TiDB | None = msgspec.field(name="_tidb", default=None)


class _ShapeFields(msgspec.Struct, gc=False):
    mysql_type: msgspec.Raw = msgspec.field(name="mysqlType", default=_NULL)
    primary_key: msgspec.Raw = msgspec.field(name="pkNames", default=_NULL)


# Canal writes every value as text; other writers of its format also write numbers, which count as their text.
_read_text = msgspec.json.Decoder(Message[list[Row]], strict=False, float_hook=Decimal).decode
read_shape = msgspec.json.Decoder(_ShapeFields).decode
_read_types = msgspec.json.Decoder(dict[str, str] | None).decode
_read_key = msgspec.json.Decoder(list[str] | None).decode
_read_old: Callable[[msgspec.Raw], list[Row | None] | None] = msgspec.json.Decoder(
    list[Row | None] | None, float_hook=Decimal
).decode

_making = threading.Lock()


class RowShape:
    """How the rows of one shape are read.

    Threads share it without a lock: what they change are a counter, where a lost count does no harm, and the
    decoder, which is made once.
    """

    __slots__ = (
        "_has_decoder",
        "_patience",
        "converters",
        "decode",
        "key_columns",
        "mysql_type",
        "primary_key",
        "read_row",
        "types",
    )

    def __init__(self, mysql_type: msgspec.Raw, primary_key: msgspec.Raw) -> None:
        """Raises UndecodableRecord when the two are no types and no key columns."""
        try:
            types, key_columns = _read_types(mysql_type), _read_key(primary_key)
        except DECODE_ERRORS as error:
            raise UndecodableRecord(f"no Canal message: `mysqlType` or `pkNames`: {error}") from None
        # Copies: a view would keep the whole message it came in.
        self.mysql_type = msgspec.Raw(bytes(mysql_type))
        self.primary_key = msgspec.Raw(bytes(primary_key))
        self.types = types
        self.key_columns = _as_columns(key_columns, types or ()) if key_columns else None
        self.converters: dict[str, Converter] = {}
        for column, type_text in (types or {}).items():
            converter = converter_of(type_text)
            if converter is not None:
                self.converters[column] = converter
        self.decode: Callable[[bytes], Message[Any]] = _read_text
        """Reads whole messages; the shape's own decoder once there is one."""
        self._has_decoder = False
        self.read_row: Callable[[Any, bytes], Row] | None = None
        self._patience = _MESSAGES_BEFORE_DECODER

    @property
    def is_fast(self) -> bool:
        """Whether `decode` is the shape's own decoder, and did not refuse a message lately."""
        return self._has_decoder and self._patience <= 0

    def typed_rows(self, data: list[Any] | None, text: bytes) -> list[Row] | None:
        """The rows of a message that `decode` read from `text`. Raises one of REFUSALS."""
        if data is None:
            return None
        read = self.read_row
        assert read is not None  # there is one before anything is read with it
        return [read(data[0], text)] if len(data) == 1 else [read(row, text) for row in data]

    def read(self, value: bytes) -> tuple[Message[Any], list[Row] | None]:
        """A message of this shape and its rows, by whichever way reads them.

        Raises one of DECODE_ERRORS for what is no message, UndecodableRecord for a value that is not of its
        type.
        """
        if self._patience > 0:
            self._patience -= 1
        elif self.types:
            try:
                if not self._has_decoder:
                    with _making:
                        self._make_decoder(self.types)  # ValueError: a name that no decoder takes
                typed = self.decode(value)
                return typed, self.typed_rows(typed.data, value)
            except REFUSALS:
                self._patience = _MESSAGES_AFTER_REFUSAL
        message = _read_text(value)
        for row in message.data or ():
            self._read_columns(row)
            key = self.key_columns
            if key and self.types is None and _as_columns(key, row) != key:
                raise UndecodableRecord(
                    f"no Canal message: the key of `pkNames`, {list(key)}, is spelled otherwise in a row"
                )
        return message, message.data

    def read_old(self, old: msgspec.Raw) -> list[Row | None] | None:
        """The rows of `old`: only the columns that changed. Raises as `read` does."""
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
                    type_text = shortened((self.types or {})[column])
                    raise UndecodableRecord(
                        f"column {column!r} of type {type_text} holds {shortened(repr(text))}: {error}"
                    ) from None
            elif text is not value:
                row[column] = text

    def _make_decoder(self, types: dict[str, str]) -> None:
        if self._has_decoder:  # another thread's
            return
        columns = []
        for name in types:
            converter = self.converters.get(name)
            if converter is None:
                columns.append(StructColumn(name, str))
            elif converter.json_type is Decimal:
                # The text: msgspec reads `1_000`, too, and digits of all scripts.
                columns.append(StructColumn(name, str, converter.read))
            else:
                columns.append(
                    StructColumn(name, converter.json_type, converter.finish, converter.is_finished)
                )
        struct: Any = RowStruct(columns)
        self.read_row = struct.reader(_refuse_null)
        self.decode = msgspec.json.Decoder(cast(Any, Message)[list[struct.type]], strict=False).decode
        # Last, for another thread uses the rest as soon as it sees this.
        self._has_decoder = True


def _as_columns(key: Iterable[str], columns: Iterable[str]) -> tuple[str, ...]:
    """The key's columns as the row spells them: MySQL's names know no case, and dicts do.

    One that no column has stays as it is: a row may lack a part of its key, and says so.
    """
    known = set(columns)
    folded = {name.casefold(): name for name in known}
    return tuple(name if name in known else folded.get(name.casefold(), name) for name in key)


def _refuse_null(text: bytes) -> None:
    # msgspec reads the text "null", in whichever case, as None where a number or a date is expected.
    if b'"null"' in text.lower():
        raise ValueError("a text that the decoder takes for NULL")


def _text_of(column: str, value: object) -> str:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(value)
    raise UndecodableRecord(f"column {column!r} holds {shortened(repr(value))}, not text")


def shortened(text: str) -> str:
    """For an error."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
