"""Places from which the `json` format reads: a path into the record's value, or another source. The
route to a record's table has a decoder that reads nothing else.

- `op`: the member of the value with this name
- `source.table`: a member of a member; a backslash before a dot makes it part of the name
- `.`: the whole value
- `=shop`: this text, for every record
- `$topic`: the topic's name; `$topic.2`: its part between the second dot and the third
- `$key`, `$key.id`: the record's key, which is JSON, or a member of the key
- `$header.name`: a header"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from worker.formats.interface import Record, Route, UndecodableRecord, known_headers
from worker.formats.json_rows import JSON_ERRORS, read_json

ABSENT: Any = object()
"""Marks a missing value, as opposed to null."""

Path = tuple[str, ...]
_NAME = re.compile(r"((?:[^.\\]|\\.)+)(?:\.(?=.)|\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FORMS = "a path such as source.table, =constant, $topic, $topic.1, $key.name or $header.name"


@dataclass(frozen=True, slots=True)
class InValue:
    """A member of the record's value. The empty path is the value itself."""

    path: Path


@dataclass(frozen=True, slots=True)
class InKey:
    """A member of the record's key, which is JSON. The empty path is the key itself."""

    path: Path


@dataclass(frozen=True, slots=True)
class Constant:
    """The same text for every record."""

    text: str


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic's name, or one of its parts between dots, counted from 0 (from the end: from -1)."""

    part: int | None

    def of(self, topic: str) -> Any:
        if self.part is None:
            return topic
        try:
            return topic.split(".")[self.part]
        except IndexError:
            return ABSENT


@dataclass(frozen=True, slots=True)
class Header:
    """The text of the last header of this name."""

    name: str


Source = InValue | InKey | Constant | Topic | Header


def read_source(text: str) -> Source:
    """Parse a place in the configuration. Raises ValueError, which says what is allowed."""
    if text.startswith("="):
        if len(text) > 1:
            return Constant(text[1:])
    elif not text.startswith("$"):
        return InValue(_path(text))
    else:
        name, dot, rest = text.partition(".")
        if name == "$topic" and not dot:
            return Topic(None)
        if name == "$topic" and re.fullmatch(r"-?\d{1,3}", rest, re.ASCII):
            return Topic(int(rest))
        if name == "$key":
            return InKey(_path(rest) if dot else ())
        if name == "$header" and rest:
            return Header(rest)
    raise ValueError(_FORMS)


def _path(text: str) -> Path:
    if text == ".":
        return ()
    names: list[str] = []
    at = 0
    while at < len(text):
        found = _NAME.match(text, at)
        if found is None:
            raise ValueError(_FORMS)
        names.append(_ESCAPED.sub(r"\1", found[1]))
        at = found.end()
    if not names:
        raise ValueError(_FORMS)
    return tuple(names)


def found_in(source: Source, value: Any, record: Record) -> Any:
    """The value at `source`, or ABSENT. `value` is the record's value (ABSENT: the record has no value)."""
    if isinstance(source, InValue):
        return member(value, source.path)
    if isinstance(source, Constant):
        return source.text
    if isinstance(source, InKey):
        return member(key_of(record), source.path)
    if isinstance(source, Topic):
        return source.of(record.topic())
    for name, content in reversed(known_headers(record)):
        if name == source.name and content is not None:
            try:
                return content.decode()
            except UnicodeDecodeError:
                raise UndecodableRecord(f"the header {name[:40]!r} is not UTF-8") from None
    return ABSENT


def key_of(record: Record) -> Any:
    """The record's key as JSON, or else as text. ABSENT if there is no key or it is neither."""
    key = record.key()
    if key is None:
        return ABSENT
    try:
        return read_json(key)
    except JSON_ERRORS:
        try:
            return key.decode()
        except UnicodeDecodeError:
            return ABSENT


def member(value: Any, path: Path) -> Any:
    """The value at the path, or ABSENT."""
    for name in path:
        if type(value) is not dict or name not in value:
            return ABSENT
        value = value[name]
    return value


def route_of(database: Source, table: Source) -> Callable[[bytes], Route]:
    """Make a function value -> route. It refuses every value if the route needs more than the value."""
    return _reader(("database", database), ("table", table)) or _refuse


def _refuse(_value: bytes) -> Route:
    raise LookupError("the value does not tell; the slow path does")


def _reader(*sources: tuple[str, Source]) -> Callable[[bytes], Route] | None:
    """Make a decoder of nested structs with only these fields. The outermost struct is a Route."""
    namespace: dict[str, Any] = {"alone": False}
    tree: dict[str, Any] = {}
    for attribute, source in sources:
        if isinstance(source, Constant):
            namespace[attribute] = source.text
        elif isinstance(source, InValue) and source.path:
            fields = _plant(tree, source.path)
            if fields is None:
                return None
            namespace[attribute] = property(_getter(fields))
        else:
            return None
    decode: Callable[[bytes], Route] = msgspec.json.Decoder(_struct(tree, namespace)).decode
    return decode


def _plant(tree: dict[str, Any], path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Add a path to the tree. Returns its fields, outermost first, or None if it conflicts with another."""
    fields: list[str] = []
    for place, name in enumerate(path):
        last = place == len(path) - 1
        child = tree.setdefault(name, str if last else {})
        if (child is str) != last:
            return None
        fields.append(f"field{list(tree).index(name)}")
        tree = child
    return tuple(fields)


def _getter(fields: tuple[str, ...]) -> Callable[[Any], str]:
    def get(found: Any) -> str:
        for field in fields:
            found = getattr(found, field)
        text: str = found
        return text

    return get


def _struct(tree: dict[str, Any], namespace: dict[str, Any]) -> Any:
    return msgspec.defstruct(
        "JsonRecord",
        [
            (f"field{place}", str if child is str else _struct(child, {}))
            for place, child in enumerate(tree.values())
        ],
        rename={f"field{place}": name for place, name in enumerate(tree)},
        namespace=namespace,
        gc=False,
    )
