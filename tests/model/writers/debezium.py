"""Debezium's records of PostgreSQL and MySQL, as the JsonConverter writes them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import Format

from ..source import LARGE, Event, Row, key_of
from ..told import Empty, Move, One, Put, Remove, Told, Untold
from .writing import Names, Written, compact, is_more, moves

Identity = Literal["default", "full", "index", "nothing"]
IDENTITIES: tuple[Identity, ...] = ("default", "full", "index", "nothing")
_INDEXED = "region"
"""The column of the index that is the table's REPLICA IDENTITY."""

TIME_MS = 1_763_000_000_000
_UNAVAILABLE = "__debezium_unavailable_value"
_OPS = {"insert": "c", "update": "u", "delete": "d", "snapshot": "r", "truncate": "t"}
_SCHEMAS: dict[str, dict[str, Any]] = {
    "id": {"type": "int64", "optional": False},
    "region": {"type": "string", "optional": True},
    "amount": {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    },
    "note": {"type": "string", "optional": True},
    "doc": {"type": "string", "optional": True},
    "stage": {"type": "string", "optional": True},
    "weight": {"type": "int32", "optional": True},
    "memo": {"type": "string", "optional": True},
}


def _value(value: Any) -> Any:
    if not isinstance(value, Decimal):
        return value
    cents = int(value * 100)
    return base64.b64encode(cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True)).decode()


@dataclass(frozen=True)
class _Envelopes:
    """Of one connector and one table."""

    names: Names
    source: dict[str, Any]
    schemas: bool

    def record(
        self,
        event: Event,
        op: str,
        before: Row | None,
        after: Row | None,
        told: Sequence[Told],
        *headers: tuple[str, Row],
    ) -> Written:
        payload = {
            "before": None if before is None else {name: _value(value) for name, value in before.items()},
            "after": None if after is None else {name: _value(value) for name, value in after.items()},
            "source": {"ts_ms": TIME_MS, "snapshot": "false", "table": self.names.table, **self.source},
            "transaction": None,
            "op": _OPS[op],
            "ts_ms": TIME_MS + 20,
        }
        row = after or before
        key = None if row is None else self._key(row)
        named = tuple((name, self._key(old) or b"") for name, old in headers)
        return Written(told, compact(self._with_schema(event.columns, payload)), key, named)

    def tombstone(self, row: Row) -> Written:
        return Written([], None, self._key(row))

    def _key(self, row: Row) -> bytes | None:
        if not self.names.key:
            return None
        payload = self.names.of(row)
        if not self.schemas:
            return compact(payload)
        fields = [{**_SCHEMAS[name], "optional": False, "field": name} for name in self.names.key]
        schema = {"type": "struct", "fields": fields, "optional": False, "name": f"pg.{self.names.table}.Key"}
        return compact({"schema": schema, "payload": payload})

    def _with_schema(self, columns: Sequence[str], payload: dict[str, Any]) -> dict[str, Any]:
        if not self.schemas:
            return payload
        fields = [{**_SCHEMAS[name], "field": name} for name in columns]
        row = {"type": "struct", "fields": fields, "optional": True, "name": f"pg.{self.names.table}.Value"}
        parts = [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "struct", "fields": [], "name": "io.debezium.connector.Source", "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
        ]
        schema = {"type": "struct", "fields": parts, "name": f"pg.{self.names.table}.Envelope"}
        return {"schema": schema, "payload": payload}


@dataclass(frozen=True)
class PostgreSQL:
    """`identity`: the table's REPLICA IDENTITY; with `nothing` PostgreSQL refuses updates and deletes.
    `ordered`: of the configuration's section `debezium`."""

    schemas: bool
    identity: Identity
    ordered: bool
    tells_gaps = True
    moves_keys = True

    @property
    def tells_whole(self) -> bool:
        return self.identity in ("full", "nothing")

    @property
    def tells_old_rows(self) -> bool:
        return self.identity == "full" and not self.ordered

    def format(self, names: Names) -> Format:
        types = {} if self.schemas else {f"{names.database}.*": {"amount": "numeric(10,2)"}}
        return Debezium(DebeziumSettings.model_validate({"columns": types, "ordered": self.ordered}))

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        source = {"connector": "postgresql", "db": "shop", "schema": names.database, "lsn": 24_023_128}
        made = _Envelopes(names, source, self.schemas)
        for event in events:
            if event.op == "alter":
                continue  # the next row shows it
            if event.op == "truncate":
                yield made.record(event, "truncate", None, None, [Empty()])
            elif not names.key:
                whole = [One(event.before, event.after)]
                yield made.record(event, event.op, event.before, event.after, whole)
                if event.after is None:
                    yield made.tombstone({})
            elif event.op == "delete":
                assert event.before is not None
                if self.identity == "index":
                    old = self._indexed(names, event.before)
                    yield made.record(event, "delete", old, None, [Untold(key_of(event.before, names.key))])
                    yield made.tombstone(old)
                    continue
                gone = Remove(key_of(event.before, names.key), self._tells(names, event.before))
                yield made.record(event, "delete", self._old(names, event.before), None, [gone])
                yield made.tombstone(event.before)
            elif event.op == "update":
                yield from self._update(made, names, event)
            else:
                assert event.after is not None
                told = Put(key_of(event.after, names.key), event.after, replaces=True)
                yield made.record(event, event.op, None, event.after, [told])

    def _update(self, made: _Envelopes, names: Names, event: Event) -> Iterator[Written]:
        old, new = event.before or {}, event.after or {}
        after = dict(new)
        is_full = self.identity == "full"
        if LARGE not in event.changed and old[LARGE] is not None and not is_full:
            after[LARGE] = _UNAVAILABLE
        row = {name: value for name, value in after.items() if value != _UNAVAILABLE}
        key = key_of(new, names.key)
        if self.identity == "index" and _INDEXED in event.changed:
            # What the connector takes for the old key is another one.
            zero = self._indexed(names, old)
            whole = Put(key, new, replaces=True, in_parts=row.keys() != new.keys(), half=True)
            yield made.record(event, "delete", zero, None, [Untold(key_of(old, names.key))], (_NEW_KEY, new))
            yield made.tombstone(zero)
            yield made.record(event, "insert", None, after, [whole], (_OLD_KEY, zero))
            return
        # Of a key that is in no index of the identity the old one is told to nobody.
        if self.identity == "index" or not moves(names, event):
            before = old if is_full else None
            in_parts = row.keys() != new.keys()
            told = Put(key, row, replaces=False, in_parts=in_parts, tells_old=self._tells(names, old))
            yield made.record(event, "update", before, after, [told])
            return
        gone: Told = Remove(key_of(old, names.key), self._tells(names, old))
        # What the insert lacks is known to nobody who reads it alone.
        come: Told = Put(key, new, replaces=True, in_parts=row.keys() != new.keys(), half=True)
        if self.ordered:
            in_parts = row.keys() != new.keys()
            come = Move(key_of(old, names.key), key, row, in_parts=in_parts, tells_old=False)
        yield made.record(
            event,
            "delete",
            self._old(names, old),
            None,
            [] if self.ordered else [gone],
            (_NEW_KEY, new),
        )
        yield made.tombstone(old)
        yield made.record(event, "insert", None, after, [come], (_OLD_KEY, old))

    @staticmethod
    def _indexed(names: Names, row: Row) -> Row:
        """Of an old row: the index's column. The connector fills the others: with NULL, or with 0."""
        return dict.fromkeys(row) | dict.fromkeys(names.key, 0) | {_INDEXED: row[_INDEXED]}

    def _tells(self, names: Names, old: Row) -> bool:
        """Whether a record shows that it has all of the old row: a value that is no filler (NULL, '')."""
        return self.identity == "full" and any(value for name, value in old.items() if name not in names.key)

    def _old(self, names: Names, row: Row) -> Row:
        """Of a delete: what the log holds, and NULL for what it does not."""
        if self.identity == "full":
            return row
        return {name: value if name in names.key else None for name, value in row.items()}


_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


@dataclass(frozen=True)
class MySQL:
    """With whole rows, old and new."""

    schemas: bool
    tells_old_rows = True
    tells_gaps = True
    tells_whole = True
    moves_keys = True

    def format(self, names: Names) -> Format:
        types = {} if self.schemas else {f"{names.database}.*": {"amount": "decimal(10,2)"}}
        return Debezium(DebeziumSettings.model_validate({"columns": types}))

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        source = {"connector": "mysql", "db": names.database, "file": "mysql-bin.000003", "pos": 4, "row": 0}
        made = _Envelopes(names, source, self.schemas)
        for event in events:
            if event.op == "alter":
                continue  # the next row shows it
            if event.op == "truncate":
                yield made.record(event, "truncate", None, None, [Empty()])
                continue
            old, new = event.before, event.after
            if not names.key:
                yield made.record(event, event.op, old, new, [One(old, new)])
                if new is None:
                    yield made.tombstone({})
                continue
            if old is not None and (new is None or moves(names, event)):
                headers = () if new is None else ((_NEW_KEY, new),)
                gone = Remove(key_of(old, names.key), is_more(names, old))
                yield made.record(event, "delete", old, None, [gone], *headers)
                yield made.tombstone(old)
                if new is not None:
                    come = Put(key_of(new, names.key), new, replaces=True)
                    yield made.record(event, "insert", None, new, [come], (_OLD_KEY, old))
            elif new is not None:
                tells_old = old is None or is_more(names, old)
                told = Put(key_of(new, names.key), new, event.op != "update", tells_old=tells_old)
                yield made.record(event, event.op, old, new, [told])
