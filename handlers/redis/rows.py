"""From a batch to what Redis is to hold: the last state of each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from handlers.api import Batch, Rejected, Row
from handlers.change_json import json_row
from handlers.options.templates import MissingValue, Template, place_of, text_of
from handlers.redis.target import Command
from handlers.rows import ValueUntold, check_told, is_move

__all__ = ["KeyState", "carry", "hash_commands", "json_commands", "last_states", "read_json", "to_complete"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class KeyState(msgspec.Struct):
    """What a batch leaves at one key."""

    fields: Row | None
    """Column -> value; None: the key is removed."""
    whole: bool
    """Whether `fields` are all there is; else what the key holds beside them stays."""
    at: int
    """The place of the last change of the key in `batch.changes`."""
    held_at: str | None = None
    """The former key of a row that is not whole and has moved: Redis holds the rest of it there."""


def last_states(batch: Batch, template: Template, chosen: Callable[[Row], Row]) -> dict[str, KeyState]:
    """Key -> what the batch leaves there. DDL and truncates are not looked at.

    Raises Rejected, with the place of the first change whose key cannot be told.
    """
    states: dict[str, KeyState] = {}
    for at, change in enumerate(batch.changes):
        if change.op in ("ddl", "truncate"):
            continue
        try:
            _apply(states, at, batch, template, chosen)
        except (MissingValue, TypeError, ValueUntold) as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
    return states


def _apply(
    states: dict[str, KeyState],
    at: int,
    batch: Batch,
    template: Template,
    chosen: Callable[[Row], Row],
) -> None:
    change = batch.changes[at]

    def key_of(row: Row | None) -> str:
        return template.key(batch.database, batch.name, row or {}, change.key_columns)

    made = batch.changes[at + 1] if at + 1 < len(batch.changes) else None
    if is_move(change, made) and (change.after is None or change.after == change.key):
        return  # nothing but a half of what comes next
    if change.after is None:
        states[key_of(change.before)] = KeyState(None, True, at)
        return
    key, old = key_of(change.after), None
    gone = batch.changes[at - 1] if at else None
    if gone is not None and is_move(gone, change):
        old = key_of(gone.before)
    elif change.op == "update" and not template.only_the_key:
        # Columns beside the primary key may have changed, and with them the key.
        old = key_of(change.before)
    else:
        check_told(change)
    known = states.get(key)
    if old is not None and old != key:
        known = msgspec.structs.replace(states.get(old, KeyState({}, False, at)))
        if not known.whole and known.held_at is None:
            known.held_at = old
        if change.op == "update" or (gone is not None and gone.op == "delete"):  # else it stays, marked
            states[old] = KeyState(None, True, at)
    fields = chosen(change.after)
    if change.is_whole:
        states[key] = KeyState(fields, True, at)
    elif known is None:
        states[key] = KeyState(fields, False, at)
    else:
        states[key] = KeyState({**(known.fields or {}), **fields}, known.whole, at, known.held_at)


def carry(states: dict[str, KeyState], held: Callable[[Sequence[str]], Sequence[Row | None]]) -> list[str]:
    """Complete the rows that moved by what Redis holds at their former keys.

    Returns all keys, in the order in which they are written: rows that moved go before their former keys.
    """
    moved = {key: state.held_at for key, state in states.items() if state.held_at is not None}
    rows = held(list(moved.values())) if moved else ()
    for key, row in zip(moved, rows, strict=True):
        if row is not None:  # else this batch, or a part of it, was written before
            states[key].fields = {**row, **(states[key].fields or {})}
            states[key].whole = True
    return [*moved, *(key for key in states if key not in moved)]


def hash_commands(key: str, state: KeyState, expire_ms: int | None) -> list[Command]:
    """NULL has no form in a hash: such a field is not there."""
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
        # Fields of columns that the table no longer has go, too.
        commands.append(("UNLINK", key))
    elif absent:
        commands.append(("HDEL", key, *absent))
    if present:
        commands.append(("HSET", key, *present))
    if expire_ms is not None:
        commands.append(("PEXPIRE", key, expire_ms))
    return commands


def to_complete(states: dict[str, KeyState]) -> list[str]:
    """The keys whose JSON text must be read before it can be written."""
    return [key for key, state in states.items() if state.fields is not None and not state.whole]


def json_commands(key: str, state: KeyState, held: bytes | None, expire_ms: int | None) -> list[Command]:
    """`held`: what the key holds now, for a state that is not whole. Raises TypeError."""
    if state.fields is None:
        return [("UNLINK", key)]
    row = json_row(state.fields)
    if not state.whole and held is not None:
        known = read_json(held)
        if known is not None and row is not None:
            row = {**known, **row}
    command: Command = ("SET", key, _encode(row))
    return [command if expire_ms is None else (*command, "PX", expire_ms)]


def read_json(held: bytes | None) -> Row | None:
    """What a key holds in JSON; None: no object, so that it was not written by this handler."""
    try:
        known = None if held is None else _decode(held)
    except msgspec.DecodeError:
        return None
    return known if isinstance(known, dict) else None


def _hash_value(value: Any) -> Any:
    if type(value) in (str, int, bytes):
        return value
    return bytes(value) if isinstance(value, bytearray | memoryview) else text_of(value)
