"""Templates of keys, topics and addresses: `{database}:{table}:{key}`.

`{database}`, `{table}` and `{key}` are the table's two names and the row's primary key. Any other name in
braces is a column. `{column:NAME}` is also a column, for columns with one of those three names. Write `{{`
and `}}` for braces."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from handlers.api import Change, Row
from handlers.options.faults import nearest
from handlers.values.change_json import json_value

_PART = re.compile(r"(\{\{|\}\})|\{([^{}]*)\}|([{}])")
_NAMES = ("database", "table")
_KEY = "key"


class TemplateError(ValueError):
    """The template cannot be used. The message says why, and repeats only names in braces."""


class MissingValue(ValueError):
    """The row lacks a value that the template needs."""


class Field(msgspec.Struct, frozen=True):
    kind: str
    """database, table, key or column."""
    column: str = ""


def text_of(value: Any) -> str:
    """Format a value for use in a key: as in JSON, without quotes; bytes as hexadecimal digits.

    Raises TypeError for a type without a defined format.

    >>> text_of("a"), text_of(5), text_of(True), text_of(b"\\x00\\xff"), text_of(("a", "b"))
    ('a', '5', 'true', '00ff', 'a,b')
    """
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]  # checked above
    if kind is int:
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    if isinstance(value, tuple):
        return ",".join(text_of(item) for item in value)
    plain = json_value(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def escaped(text: str) -> str:
    """Percent-encode `%` and `:`, because colons separate the parts of a key.

    >>> escaped("a:b")
    'a%3Ab'
    """
    return text.replace("%", "%25").replace(":", "%3A")


def literal(text: str) -> str:
    """Escape text for a template."""
    return text.replace("{", "{{").replace("}", "}}")


def place_of(change: Change, table: str) -> str:
    """Describe where a change was read, for error messages.

    >>> # shop.orders, topic[partition] offset n
    """
    row = f" row {change.index}" if change.index else ""
    return f"{table}, {change.topic}[{change.partition}] offset {change.offset}{row}"


class Template:
    def __init__(self, text: str, *, row: bool = True) -> None:
        """Parse `text`. `row`: whether it may name the key and columns. Raises TemplateError."""
        self.text = text
        self.parts: tuple[str | Field, ...] = tuple(_parse(text, row))
        self.fields = tuple(part for part in self.parts if isinstance(part, Field))

    def only_the_key(self, key_columns: Collection[str] | None) -> bool:
        """Whether the template uses only the table's names and the primary key, which updates keep."""
        return all(field.kind != "column" or field.column in (key_columns or ()) for field in self.fields)

    def of_table(self, database: str, table: str, *, encode: Callable[[str], str] = str) -> str:
        """Render the text for a table. The template must have been parsed with `row=False`."""
        names = {"database": database, "table": table}
        return "".join(part if isinstance(part, str) else encode(names[part.kind]) for part in self.parts)

    def start(self, database: str, table: str) -> str | None:
        """Return the prefix of all keys of this table, if no other table's keys share it.

        None unless `{table}:` precedes every field of the row. (Names contain no colon once escaped.)"""
        names = {"database": escaped(database), "table": escaped(table)}
        start, named = "", False
        for part, following in zip(self.parts, (*self.parts[1:], ""), strict=True):
            if isinstance(part, str):
                start += part
            elif part.kind in names:
                start += names[part.kind]
                named = named or (
                    part.kind == "table" and isinstance(following, str) and following.startswith(":")
                )
            else:
                break
        return start if named else None

    def key(self, database: str, table: str, row: Row, key_columns: tuple[str, ...] | None) -> str:
        """Render the text for a row.

        Raises MissingValue if the table has no primary key, or if a column is missing or NULL. Raises
        TypeError for a value without a defined format."""
        texts = []
        for part in self.parts:
            if isinstance(part, str):
                texts.append(part)
            elif part.kind == "column":
                texts.append(_value(row, part.column))
            elif part.kind == _KEY:
                texts.append(_key(row, key_columns))
            else:
                texts.append(escaped(database if part.kind == "database" else table))
        return "".join(texts)


def template_of_table(text: str) -> str:
    """Return the text if it is a template of a table's names. Raises TemplateError."""
    return Template(text, row=False).text


def _parse(text: str, row: bool) -> list[str | Field]:
    parts: list[str | Field] = []
    literal, end = "", 0
    for found in _PART.finditer(text):
        literal += text[end : found.start()]
        end = found.end()
        brace, name, single = found.groups()
        if single:
            raise TemplateError(f"a single {single} in a template; write {single * 2} for the brace itself")
        if brace:
            literal += brace[0]
            continue
        if literal:
            parts.append(literal)
        literal = ""
        parts.append(_field(name, row))
    literal += text[end:]
    return [*parts, literal] if literal else parts


def _field(name: str, row: bool) -> Field:
    if not name:
        raise TemplateError("{} in a template has no name")
    if name in _NAMES:
        return Field(name)
    if not row:
        near = nearest(name, _NAMES)
        hint = f"; nearest: {{{near}}}" if near else ""
        raise TemplateError(f"{{{name}}} is not allowed here; allowed: {{database}}, {{table}}{hint}")
    return Field(_KEY) if name == _KEY else Field("column", name.removeprefix("column:"))


def _value(row: Mapping[str, Any], column: str) -> str:
    if column not in row:
        raise MissingValue(f"the row has no column {column}, which the key template names")
    if row[column] is None:
        raise MissingValue(f"{column} is NULL, but the key template uses it")
    return text_of(row[column])


def _key(row: Mapping[str, Any], key_columns: tuple[str, ...] | None) -> str:
    if not key_columns:
        raise MissingValue("the table has no primary key; name columns in the key template instead of {key}")
    if len(key_columns) == 1:
        return _value(row, key_columns[0])
    return ":".join([escaped(_value(row, column)) for column in key_columns])
