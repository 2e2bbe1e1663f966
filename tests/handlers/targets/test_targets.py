"""What every target has to stand, the same for all: doubled batches, other cuts, poison, DDL, an outage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from target_kinds import Rows, Target

from handlers import Batch, Handler, PartialFailure, Rejected, TargetUnavailable
from handlers.loading.registry import Entry, create
from handlers.spark.log.stores import object_stores
from handlers.testing import make_batch, opened

TYPES = {"id": "bigint", "name": "varchar(40)", "total": "decimal(6,2)"}
NOON_MS = 1_763_035_200_000


class _Entry:
    def __init__(self, entry: Any) -> None:
        self.type = entry["type"]
        self.options = {key: value for key, value in entry.items() if key != "type"}


@contextmanager
def process(target: Target, folder: Path) -> Iterator[Handler]:
    """Another one is another process of the worker."""
    entry: Entry = _Entry(target.entry)  # type: ignore[assignment]  # it has what is asked for
    with opened(create(entry, folder), folder, worker="w") as handler:
        yield handler


def row(number: int, name: str = "row", **more: Any) -> dict[str, Any]:
    return {"id": number, "name": f"{name} {number}", **more}


def batch(*changes: dict[str, Any], types: Any = None, offset: int = 0) -> Batch:
    timed = [{"source_time_ms": NOON_MS + 600_000 * place, **one} for place, one in enumerate(changes)]
    return make_batch("shop.orders", timed, key="id", types=types or TYPES, topic="cdc", offset=offset)


def part(whole: Batch, start: int, stop: int) -> Batch:
    return Batch(whole.table, whole.changes[start:stop], database=whole.database, name=whole.name)


def life() -> tuple[Batch, Rows]:
    """120 changes of 30 rows, and what they come to."""
    random, rows, changes = Random(7), dict[int, dict[str, Any]](), list[dict[str, Any]]()
    for number in range(120):
        key = random.randrange(30)
        before = rows.get(key)
        if before is not None and random.random() < 0.3:
            del rows[key]
            changes.append({"before": before, "op": "delete"})
        else:
            rows[key] = row(key, f"v{number}", total=Decimal("1.50"))
            changes.append({"before": before, "after": rows[key]})
    return batch(*changes), {
        str(key): {name: str(value) for name, value in one.items()} for key, one in rows.items()
    }


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_what_comes_again_in_other_pieces_is_there_once(target: Target, tmp_path: Path, seed: int) -> None:
    """A process ends anywhere, and the next one is given an earlier position: never a later one."""
    random, (whole, expected) = Random(seed), life()
    done = 0
    while done < len(whole.changes):
        with process(target, tmp_path) as handler:
            position = random.randint(max(0, done - 40), done)
            for _ in range(random.randint(1, 6)):
                end = min(len(whole.changes), position + random.randint(1, 30))
                for _ in range(random.randint(1, 2)):
                    handler.handle(part(whole, position, end))
                position, done = end, max(done, end)
                if end == len(whole.changes):
                    break
    assert target.rows("shop.orders") == expected


def test_what_does_not_fit_is_rejected_alone(target_that_refuses: Target, tmp_path: Path) -> None:
    target = target_that_refuses
    rows = [
        {"after": row(number, total=Decimal("99999999.99" if number == 3 else "1.50"))} for number in range(6)
    ]
    whole = batch(*rows)
    with process(target, tmp_path) as handler:
        with pytest.raises((Rejected, PartialFailure)) as told:
            handler.handle(whole)
        assert isinstance(told.value, Rejected)
        assert told.value.at == 3
        # As the worker goes on: what is before it, then what is after it.
        handler.handle(part(whole, 0, 3))
        handler.handle(part(whole, 4, 6))
    assert sorted(target.rows("shop.orders")) == ["0", "1", "2", "4", "5"]


def test_columns_come_and_go(target: Target, tmp_path: Path) -> None:
    first = batch({"after": row(1, total=Decimal("1.50"))})
    added = batch({"sql": "ALTER TABLE orders ADD COLUMN note varchar(20) DEFAULT 'new'"}, offset=1)
    more = {**TYPES, "note": "varchar(20)"}
    second = batch({"after": row(2, total=Decimal("2.50"), note="own")}, types=more, offset=2)
    dropped = batch({"sql": "ALTER TABLE orders DROP COLUMN total"}, offset=3)
    less = {name: text for name, text in more.items() if name != "total"}
    third = batch({"after": row(3, note="last")}, types=less, offset=4)
    with process(target, tmp_path) as handler:
        for one in (first, added, second, dropped, third):
            handler.handle(one)
    with process(target, tmp_path) as handler:
        for one in (second, dropped, third):
            handler.handle(one)
    found = target.rows("shop.orders")
    assert found["3"] == {"id": "3", "name": "row 3", "note": "last"}
    if target.follows_ddl:
        assert found["1"] == {"id": "1", "name": "row 1", "note": "new"}
        assert found["2"] == {"id": "2", "name": "row 2", "note": "own"}
    else:
        assert found["2"]["note"] == "own"


def test_while_it_is_down_it_is_waited_for_and_nothing_is_there_twice(
    target_with_server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_stores, "_TRIES_SECONDS", 0.3)
    target, (whole, expected) = target_with_server, life()
    assert target.down is not None
    with process(target, tmp_path) as handler:
        handler.handle(part(whole, 0, 60))
        with target.down():
            for _ in range(2):
                with pytest.raises(TargetUnavailable):
                    handler.handle(part(whole, 30, 90))
        handler.handle(part(whole, 30, 90))
        handler.handle(part(whole, 90, 120))
    assert target.rows("shop.orders") == expected


def test_a_row_under_a_new_key_that_lacks_values_is_rejected(target: Target, tmp_path: Path) -> None:
    """The two halves of the update are two records: what the new row lacks may be gone."""
    gone: dict[str, Any] = {"before": {"id": 1}, "after": None, "moves_key": True, "offset": 1}
    made = {"before": None, "after": row(2), "moves_key": True, "lacks": frozenset({"total"}), "offset": 2}
    is_rejected = target.entry["type"] != "files" or target.entry["format"] == "parquet"
    with process(target, tmp_path) as handler:
        handler.handle(batch(row(1, total=Decimal(5))))
        with pytest.raises(Rejected, match="its key changed") if is_rejected else nullcontext() as told:
            handler.handle(batch(gone, made))
        assert told is None or told.value.at == 1
