"""The primary key of JSON records: named by the configuration, or found in the record."""

from __future__ import annotations

from typing import Any

from worker.formats.interface import Record, UndecodableRecord
from worker.formats.own_json.paths import ABSENT, InKey, InValue, found_in, key_of, member, read_source
from worker.formats.own_json.rows import KeyRule, Row


def key_rule(key: str | list[str] | None) -> KeyRule:
    """What `json.key` means."""
    if isinstance(key, str):
        source = read_source(key)
        return source if isinstance(source, InValue | InKey) else None
    return tuple(key) if key else None


def key_columns(key: KeyRule, document: Any, record: Record) -> tuple[tuple[str, ...] | None, Row]:
    """The key's columns, and their values where they stand beside the row. Raises UndecodableRecord."""
    if key is None or isinstance(key, tuple):
        return key, {}
    found = found_in(key, document, record)
    if found is None or found is ABSENT:
        return None, {}
    if isinstance(found, dict):
        return tuple(found) or None, found
    if isinstance(found, list) and all(isinstance(name, str) for name in found):
        return tuple(found) or None, {}
    raise UndecodableRecord(f"json.key holds {found!r:.60}: no object and no list of column names")


def with_key(columns: tuple[str, ...] | None, members: Row, record: Record) -> Row:
    """The row with the key's columns, which may stand in the record's key alone. Raises UndecodableRecord."""
    if columns is None or all(map(members.__contains__, columns)):
        return members
    beside = key_of(record)
    whole = {**beside, **members} if isinstance(beside, dict) else members
    for column in columns:
        if column not in whole:
            raise UndecodableRecord(f"key column {column!r} is not in the row")
    return {name: value for name, value in whole.items() if name in members or name in columns}


def key_of_tombstone(key: KeyRule, record: Record) -> Row | None:
    """The key of the row that a record without a value deletes; None where the record does not tell it."""
    if key is None or isinstance(key, InValue):
        return None
    found = key_of(record)
    if isinstance(key, InKey):
        found = member(found, key.path)
        return dict(found) if isinstance(found, dict) and found else None
    if isinstance(found, dict):
        return {column: found[column] for column in key} if found.keys() >= set(key) else None
    if len(key) > 1 or found is None or found is ABSENT or isinstance(found, list):
        return None
    return {key[0]: found}
