"""Places from which the `json` format reads: a path into the record's value, or another source.

op              the member of the value with this name
source.table    a member of a member; a backslash before a dot makes it part of the name
.               the whole value
=shop           this text, for every record
$topic          the topic's name; $topic.2 its part between the second dot and the third
$key, $key.id   the record's key, which is JSON, or a member of it
$header.name    a header"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from worker.formats.interface import Record, UndecodableRecord
from worker.formats.json_values import JSON_ERRORS, read_json

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
    """The value at `source`, or ABSENT. `value` is the record's value (ABSENT: the record has none)."""
    if isinstance(source, InValue):
        return member(value, source.path)
    if isinstance(source, Constant):
        return source.text
    if isinstance(source, InKey):
        return member(key_of(record), source.path)
    if isinstance(source, Topic):
        return source.of(record.topic())
    for name, content in reversed(record.headers() or ()):
        if name == source.name and content is not None:
            try:
                return content.decode()
            except UnicodeDecodeError:
                raise UndecodableRecord(f"the header {name[:40]!r} is not UTF-8") from None
    return ABSENT


def key_of(record: Record) -> Any:
    """The record's key as JSON, or else as text. ABSENT if it has none or is neither."""
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
