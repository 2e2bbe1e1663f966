"""The same changes make the same rows in an Iceberg table and in a Delta table."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delta_reading import read_delta
from iceberg_lab import IcebergLake, change
from msgspec.structs import replace
from servers.spark_cluster import eventually
from spark_lake import Lake

from handlers import Change

pytestmark = pytest.mark.long

_SEED = int(os.environ.get("BINLANE_SEED") or time.time_ns())
_KINDS = {"n": "int NOT NULL DEFAULT 7", "t": "varchar(9)"}
"""Initial of a column -> its definition: one that is dropped comes back with the same type."""


class _Stream:
    """Changes of a table with few keys: updates without some columns, moved keys, a clock that is set back,
    rows that are sent again, statements and truncates."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._offset = 0
        self._types = {"id": "int", "name": "varchar(20)", "f": "double"}
        self._rows = dict[int, dict[str, Any]]()

    def batch(self) -> list[Change]:
        if self._chance.random() < 0.25:
            return [self._statement()]
        return [one for _ in range(self._chance.randint(1, 8)) for one in self._row()]

    def _timed(self, one: Change) -> Change:
        return replace(one, source_time_ms=one.source_time_ms + 1000 * self._chance.choice((0, 0, 0, -5, 5)))

    def _statement(self) -> Change:
        self._offset += 1
        if self._chance.random() < 0.2:
            self._rows.clear()
            return self._timed(change(self._offset, None, None, op="truncate"))
        own = [name for name in self._types if name[0] in _KINDS and name != "name"]
        what, old = self._chance.choice(("ADD", "DROP", "RENAME", "MODIFY")), self._chance.choice(own or [""])
        if what == "ADD" or not own:
            kind = self._chance.choice(list(_KINDS))
            free = [f"{kind}{n}" for n in range(3) if f"{kind}{n}" not in self._types]
            new = self._chance.choice([*free, f"{kind}{self._offset}"])
            sql = f"ADD COLUMN {new} {_KINDS[kind]}"
            self._types[new] = _KINDS[kind].split()[0]
            for row in self._rows.values():
                row[new] = 7 if kind == "n" else None
        elif what == "DROP":
            sql = f"DROP COLUMN {old}"
            del self._types[old]
            for row in self._rows.values():
                del row[old]
        elif what == "RENAME":
            new = f"{old[0]}{self._offset}"
            sql = f"RENAME COLUMN {old} TO {new}"
            self._types = {new if each == old else each: kind for each, kind in self._types.items()}
            for row in self._rows.values():
                row[new] = row.pop(old)
        else:
            self._types[old] = "bigint" if old[0] == "n" else "varchar(20)"
            sql = f"MODIFY {old} {self._types[old]}"
        return self._timed(change(self._offset, None, None, op="ddl", sql=f"ALTER TABLE orders {sql}"))

    def _value(self, kind: str) -> Any:
        if kind == "double":
            return self._chance.choice([0.0, -0.0, 1.5, None])
        return self._chance.choice(["", "a", "b", None] if "char" in kind else [1, 2, None])

    def _row(self) -> Iterator[Change]:
        self._offset += 1
        number, types = self._chance.randint(0, 5), dict(self._types)
        known = self._rows.get(number)
        new = {name: number if name == "id" else self._value(kind) for name, kind in types.items()}
        what = self._chance.random()
        if known is None:
            self._rows[number] = new
            op = self._chance.choice(("insert", "insert", "snapshot"))
            yield self._timed(change(self._offset, new, types, op=op))
        elif what < 0.2:
            before = self._rows.pop(number)
            yield self._timed(change(self._offset, None, types, op="delete", before=before))
        elif what < 0.3:
            yield self._timed(change(self._offset, dict(known), types, op="snapshot"))
        elif what < 0.5:
            told = {name: value for name, value in new.items() if name == "id" or self._chance.random() < 0.4}
            self._rows[number] = known | told
            one = change(self._offset, told, types, op="update", before={"id": number})
            yield self._timed(replace(one, lacks=None) if told.keys() < types.keys() else one)
        elif what < 0.6 and (other := number + 10) not in self._rows:
            moved = self._rows[other] = {**new, "id": other}
            before = self._rows.pop(number)
            gone = change(self._offset, None, types, op="delete", before=before)
            yield self._timed(replace(gone, moves_key=True))
            come = change(self._offset, moved, types)
            yield self._timed(replace(come, index=1, moves_key=True))
        else:
            self._rows[number] = new
            yield self._timed(change(self._offset, new, types, op="update", before=known))


@pytest.fixture
def both(tmp_path: Path, spark_keeper: Any) -> Iterator[Any]:
    made: list[Any] = []

    def make(mode: str) -> tuple[IcebergLake, Lake]:
        spark_keeper.get()
        places = tmp_path / "iceberg", tmp_path / "delta"
        for each in places:
            each.mkdir()
        made.append(IcebergLake(places[0], mode=mode, prefix="_"))
        made.append(Lake(places[1], mode=mode, merge={"max_age": "1h", "at_close": "60s"}))
        return made[0], made[1]

    yield make
    for each in made:
        each.close()


@pytest.mark.timeout(600)
@pytest.mark.soak  # the replays of streams compare both with their source
@pytest.mark.parametrize("mode", ["history", "replica"])
def test_the_rows_are_those_of_delta(both: Any, mode: str) -> None:
    iceberg, delta = both(mode)
    print(f"BINLANE_SEED={_SEED}")
    chance = random.Random(_SEED)
    stream = _Stream(chance)
    for number in range(24):
        batch = stream.batch()
        iceberg.take(*batch)
        delta.take(*batch)
        if merged := chance.random() < 0.3:
            iceberg.merge()
        if chance.random() < 0.1:
            iceberg.crash()
            if not merged:
                eventually(lambda: iceberg.status().get("waiting_seconds"), "it has found what waits")
        if number % 12 == 11:
            iceberg.merge()
            delta.merge()
            _compare(iceberg, delta)


def _compare(iceberg: IcebergLake, delta: Lake) -> None:
    there = read_delta(delta.folder / "lake/shop/orders", spark=lambda: delta.spark)
    assert _shown(iceberg.rows()) == _shown(there)


def _shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted((name, repr(value)) for name, value in row.items())) for row in rows)
