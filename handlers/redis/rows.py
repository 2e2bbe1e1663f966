"""The last state of each key in a batch, and the commands that write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from handlers.api import Batch, Rejected, Row
from handlers.options.templates import MissingValue, Template, place_of, text_of
from handlers.redis.target import Command
from handlers.rows import ValueUntold, check_told
from handlers.values.change_json import json_row

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict).decode


class KeyState(msgspec.Struct):
    """The state of one key after a batch."""

    fields: Row | None
    """Column -> value; None: the key is removed."""
    whole: bool
    """Whether `fields` has all columns. If not, the key's other fields stay."""
    at: int
    """The place of the last change of the key in `batch.changes`."""


def last_states(batch: Batch, template: Template, chosen: Callable[[Row], Row]) -> dict[str, KeyState]:
    """Return each key's state after the batch. DDL and truncates are ignored.

    Raises Rejected, with the place of the first change whose key or values are unknown."""
    states: dict[str, KeyState] = {}
    for at, change in enumerate(batch.changes):
        if change.op in ("ddl", "truncate"):
            continue
        try:
            if batch.shard is not None:
                _refuse_shared(template, change.key_columns)
            _apply(states, at, batch, template, chosen)
        except (MissingValue, TypeError, ValueUntold) as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
    return states


def _apply(
    states: dict[str, KeyState], at: int, batch: Batch, template: Template, chosen: Callable[[Row], Row]
) -> None:
    change = batch.changes[at]
    database, table, key_columns = batch.database, batch.name, change.key_columns
    if change.after is None:
        gone = template.key(database, table, change.before or {}, key_columns)
        states[gone] = KeyState(None, True, at)
        return
    check_told(change)
    row = change.after
    key = template.key(database, table, row, key_columns)
    if change.op == "update" and not template.only_the_key(key_columns):
        # Columns besides the primary key may have changed, and with them the Redis key.
        old = template.key(database, table, change.before or {}, key_columns)
        if old != key:
            check_told(change, moves=True)
            states[old] = KeyState(None, True, at)
    fields, known = chosen(row), states.get(key)
    if change.is_whole or known is None:
        states[key] = KeyState(fields, change.is_whole, at)
    else:
        states[key] = KeyState({**(known.fields or {}), **fields}, known.whole, at)


def _refuse_shared(template: Template, key_columns: tuple[str, ...] | None) -> None:
    """Raise MissingValue if two rows may have the same key in turn, because their order is not kept."""
    if any(field.kind == "key" for field in template.fields):
        return
    if not {field.column for field in template.fields}.issuperset(key_columns or ()):
        raise MissingValue(
            f"the key {template.text} does not contain the primary key, so two rows may share it. With "
            "order_by: row their order is not kept: set order_by: table, or put {key} into the template"
        )


def hash_commands(key: str, state: KeyState, expire_ms: int | None) -> list[Command]:
    """Return the commands that write a hash. It has no field for a NULL."""
    if state.fields is None:
        return [("UNLINK", key)]
    present: list[Any] = []
    absent: list[str] = []
    for column, value in state.fields.items():
        if value is None:
            absent.append(column)
        else:
            present += (column, _hash_value(value))
    commands: list[Command] = []
    if state.whole:
        # This also removes fields of columns that the table no longer has.
        commands.append(("UNLINK", key))
    elif absent:
        commands.append(("HDEL", key, *absent))
    if present:
        commands.append(("HSET", key, *present))
    if expire_ms is not None:
        commands.append(("PEXPIRE", key, expire_ms))
    return commands


def to_complete(states: dict[str, KeyState]) -> list[str]:
    """Return the keys whose JSON text must be read before it can be written."""
    return [key for key, state in states.items() if state.fields is not None and not state.whole]


def json_commands(key: str, state: KeyState, held: bytes | None, expire_ms: int | None) -> list[Command]:
    """`held`: the key's current value, for a state that is not whole. Raises TypeError."""
    if state.fields is None:
        return [("UNLINK", key)]
    row = json_row(state.fields)
    if not state.whole and held is not None:
        try:
            row = {**_decode(held), **(row or {})}
        except msgspec.DecodeError:
            raise TypeError(
                "the row lacks columns, and its key has no JSON object to take them from"
            ) from None
    command: Command = ("SET", key, _encode(row))
    return [command if expire_ms is None else (*command, "PX", expire_ms)]


def _hash_value(value: Any) -> Any:
    if type(value) in (str, int, bytes):
        return value
    return bytes(value) if isinstance(value, bytearray | memoryview) else text_of(value)
