"""The `redis` handler: stores each row as a hash or a JSON text, under a key made from its primary key.
Only the last state of each key in a batch is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field, field_validator
from structlog.stdlib import BoundLogger

from handlers.api import Batch, Handler, HandlerContext, Rejected, Row
from handlers.logs import get_logger
from handlers.mysql.ddl import TableName
from handlers.mysql.statement_of_change import WholeTables
from handlers.options.shared import Options
from handlers.options.templates import MissingValue, Template, place_of, text_of
from handlers.options.values import PositiveDuration, duration, not_allowed
from handlers.redis.target import Command, CommandRefused, RedisTarget, check_url
from handlers.rows import ValueUntold, check_told
from handlers.values.change_json import json_row

_KEYS_AT_ONCE = 500
"""Keys written in one transaction, which blocks other clients of the server for a few milliseconds."""

log = get_logger("handlers.redis")


class RedisOptions(Options):
    """The keys of a `type: redis` entry."""

    url: str
    """The server: redis://USER:PASSWORD@HOST:6379/0, or rediss://... for TLS."""
    key: str = "{database}:{table}:{key}"
    """The key of a row: {database}, {table}, {key} (its primary key) and columns in braces."""
    value: Literal["hash", "json"] = "hash"
    """A hash with a field for each column, or the row as a JSON text."""
    expire: PositiveDuration | None = None
    """How long a row is kept after its last change; null: permanently."""
    truncate: bool | None = None
    """Whether TRUNCATE and DROP TABLE remove the table's keys. null: if the keys begin with the table's name
    and a colon."""
    wait_replicas: int = Field(default=0, ge=0)
    """How many replicas must have a batch before it counts as written (WAIT)."""
    timeout: PositiveDuration = duration("10s")
    """The timeout for a connection, and for an answer."""

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        allowed = check_url(url)
        if allowed is not None:
            raise not_allowed(allowed)
        return url

    @field_validator("key")
    @classmethod
    def _key_tells_rows_apart(cls, key: str) -> str:
        template = Template(key)
        if not any(field.kind in ("key", "column") for field in template.fields):
            raise ValueError("every row would have the same key: add {key}, or a column in braces")
        return key

    @field_validator("truncate")
    @classmethod
    def _truncate_is_possible(cls, truncate: bool | None, info: Any) -> bool | None:
        key = info.data.get("key")
        if truncate and key is not None and Template(key).start("d", "t") is None:
            raise ValueError(
                "the table's keys cannot be distinguished from others: in key, {table} and a colon must "
                "precede {key} and columns"
            )
        return truncate


class RedisHandler(Handler):
    """Writes batches to Redis. A batch may be applied twice, so repeats after a crash do no harm."""

    options_model: ClassVar[type[RedisOptions]] = RedisOptions

    def __init__(self, **options: Any) -> None:
        self._options = RedisOptions.model_validate(options)
        self._template = Template(self._options.key)
        self._expire_ms = None if self._options.expire is None else max(1, round(self._options.expire * 1000))
        self._target = RedisTarget(self._options.url, self._options.timeout, self._options.wait_replicas)
        self._log = log
        self._whole_tables = _whole_tables(log, lambda _: True)

    def open(self, context: HandlerContext) -> None:
        """Prepare logs and rules. Redis is connected on first use, so a worker can start while it is down."""
        self._log = log.bind(handler=context.handler)
        self._whole_tables = _whole_tables(self._log, context.handles or (lambda _: True))

    def handle(self, batch: Batch) -> None:
        """Raises Rejected, TargetUnavailable, RefusedByRedis."""
        for change in batch.changes:
            for name in self._whole_tables.to_empty(change, batch):
                self._empty(name)
        states = last_states(batch, self._template)
        names = list(states)
        for start in range(0, len(names), _KEYS_AT_ONCE):
            self._write(batch, {name: states[name] for name in names[start : start + _KEYS_AT_ONCE]})

    def close(self) -> None:
        self._target.close()

    def check(self, context: HandlerContext) -> None:
        """Log in and ping. Raises TargetUnavailable, RefusedByRedis."""
        try:
            self._target.ping()
        finally:
            self._target.close()

    def _write(self, batch: Batch, states: dict[str, KeyState]) -> None:
        held: dict[str, bytes | None] = {}
        # Their JSON text must be read before it can be written.
        unfinished = [key for key, state in states.items() if state.fields is not None and not state.whole]
        if self._options.value == "json" and unfinished:
            # No other batch of these rows runs meanwhile, so the values stay current until the write.
            with _told_of(batch, [states[key].at for key in unfinished]):
                held = dict(zip(unfinished, self._target.values(unfinished), strict=True))
        commands: list[Command] = []
        places: list[int] = []
        for key, state in states.items():
            try:
                if self._options.value == "hash":
                    ours = hash_commands(key, state, self._expire_ms)
                else:
                    ours = json_commands(key, state, held.get(key), self._expire_ms)
            except TypeError as error:
                raise Rejected(_told(batch, state.at, error), at=state.at) from None
            commands += ours
            places += [state.at] * len(ours)
        with _told_of(batch, places):
            self._target.transaction(commands)

    def _empty(self, name: TableName) -> None:
        table = str(name)
        start = self._template.start(*name)
        if self._options.truncate is False or start is None:
            self._log.warning("truncate_ignored", table=table, key=self._options.key)
            return
        removed = self._target.remove(start)
        self._log.info("keys_removed", table=table, keys=removed, start=start)


def _whole_tables(log: BoundLogger, handles: Callable[[str], bool]) -> WholeTables:
    # The option `truncate` also covers DROP TABLE. `_empty` checks it, once the table's keys are known.
    return WholeTables(True, True, "keys of a renamed table stay under its former name", handles, log)


@contextmanager
def _told_of(batch: Batch, places: Sequence[int]) -> Iterator[None]:
    """Turn CommandRefused into Rejected. `places`: each command's change in the batch."""
    try:
        yield
    except CommandRefused as error:
        at = places[error.place]
        raise Rejected(_told(batch, at, error), at=at) from None


def _told(batch: Batch, at: int, error: Exception) -> str:
    return f"{place_of(batch.changes[at], batch.table)}: {error}"


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


def last_states(batch: Batch, template: Template) -> dict[str, KeyState]:
    """Return each key's state after the batch. DDL and truncates are ignored.

    Raises Rejected, with the place of the first change whose key or values are unknown."""
    states: dict[str, KeyState] = {}
    for at, change in enumerate(batch.changes):
        if change.op in ("ddl", "truncate"):
            continue
        try:
            if batch.shard is not None:
                _refuse_shared(template, change.key_columns)
            _apply(states, at, batch, template)
        except (MissingValue, TypeError, ValueUntold) as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
    return states


def _apply(states: dict[str, KeyState], at: int, batch: Batch, template: Template) -> None:
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
    known = states.get(key)
    if change.is_whole or known is None:
        states[key] = KeyState(row, change.is_whole, at)
    else:
        states[key] = KeyState({**(known.fields or {}), **row}, known.whole, at)


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
