"""Which shard a change belongs to: the same for one row, wherever and whenever it is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import BeyondCalendar, Change, Operation
from handlers.rows import SHARDS, shard_of

KEYS: list[Any] = [
    0,
    -1,
    2**64,
    True,
    Decimal("1.50"),
    1.25,
    date(2026, 11, 21),
    datetime(2026, 11, 21, 10, 30, 0, 5),
    datetime(2026, 11, 21, 10, 30, tzinfo=UTC),
    timedelta(hours=-3),
    "Orders",
    "订单",
    ("a", "b"),
    b"\x00\xff",
    None,
]


FOUND = [33, 42, 32, 55, 38, 32, 23, 17, 61, 13, 46, 51, 6, 50, 49]


def change(key: Any, op: Operation = "insert", **fields: Any) -> Change:
    return of({"id": key, "v": 1}, op, **fields)


def of(
    row: dict[str, Any] | None, op: Operation = "insert", columns: tuple[str, ...] | None = ("id",)
) -> Change:
    before, after = (row, None) if op == "delete" else (None, row)
    return Change(op, before, after, columns, None, 0, "t", 0, 0, 0, None, None)


def shard(key: Any) -> int | None:
    return shard_of(change(key))


def test_every_kind_of_key_has_the_shard_that_it_always_had() -> None:
    """Written out: targets may remember shards, so a new version must not move rows."""
    assert [shard(key) for key in KEYS] == FOUND


def test_another_process_finds_the_same_shards() -> None:
    """Whatever the seed of its hashes."""
    code = "import test_sharding as t; print([t.shard(key) for key in t.KEYS])"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        out = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == str(FOUND)


def test_all_that_happens_to_a_row_is_of_one_shard() -> None:
    update = Change(
        "update", {"id": 7, "v": 1}, {"id": 7, "v": 2}, ("id",), None, 0, "t", 0, 5, 0, None, None
    )
    assert {shard_of(change(7)), shard_of(update), shard_of(change(7, "delete"))} == {shard(7)}


@pytest.mark.parametrize(
    "alike",
    [
        ["straße", "STRASSE", "Strasse  "],
        ["Café", "cafe", "CAFE\N{COMBINING ACUTE ACCENT}", "CAFÉ "],
        ["a", "A ", "Ａ"],
        [Decimal("1.50"), Decimal("1.5"), Decimal("1.500")],
        [Decimal("100"), Decimal("1E+2"), Decimal("100.00"), 100, 100.0],
        [Decimal("0.00"), Decimal("-0"), 0, -0.0, False],
        [b"\x01\x02", b"\x01\x02\x00\x00"],
    ],
)
def test_keys_that_a_database_may_take_for_the_same_are_of_one_shard(alike: list[Any]) -> None:
    assert len({shard(key) for key in alike}) == 1


@given(number=st.decimals(allow_nan=False, allow_infinity=False), zeros=st.integers(0, 20))
def test_zeros_at_the_end_do_not_move_a_number(number: Decimal, zeros: int) -> None:
    sign, digits, exponent = number.as_tuple()
    longer = Decimal((sign, (*digits, *[0] * zeros), int(exponent) - zeros))
    assert shard(number) == shard(longer)


@pytest.mark.parametrize(
    "keys",
    [
        range(6400),
        range(0, 6400 << 12, 1 << 12),
        range(10**18, 10**18 + 6400 * 1000, 1000),
        [str(n) for n in range(6400)],
        [f"customer-{n:08}" for n in range(6400)],
        [str(uuid.UUID(int=n * 2**64 + 7)) for n in range(6400)],
        [Decimal(n) / 4 for n in range(6400)],
    ],
    ids=["sequence", "stride 4096", "stride 1000", "digits", "names", "uuids", "decimals"],
)
def test_keys_are_spread_evenly(keys: Iterable[Any]) -> None:
    counts = Counter(shard(key) for key in keys)
    assert len(counts) == SHARDS
    assert max(counts.values()) < 2.2 * 100
    assert min(counts.values()) > 0.3 * 100


def test_all_columns_of_a_key_count() -> None:
    pairs = [(1, n) for n in range(200)] + [(n, 1) for n in range(200)]
    counts = Counter(shard_of(of({"a": a, "b": b}, columns=("a", "b"))) for a, b in pairs)
    assert len(counts) > SHARDS / 2


def test_a_table_without_a_key_has_one_shard() -> None:
    assert {shard_of(of({"v": n}, columns=columns)) for n in range(9) for columns in (None, ())} == {0}


def test_what_concerns_the_whole_table_has_no_shard() -> None:
    assert shard_of(of(None, "ddl", None)) is None
    assert shard_of(of(None, "truncate", None)) is None
    assert shard_of(of({"b": 1}, columns=("a", "b"))) is None, "a row without its whole key might be any"


@given(st.text(), st.binary(), st.floats())
def test_any_value_has_a_shard(text: str, binary: bytes, number: float) -> None:
    for key in (text, binary, number, [text], {"x": number}, text + "\ud800"):
        found = shard(key)
        assert found is not None
        assert 0 <= found < SHARDS


def test_infinity_is_of_the_shard_of_its_text() -> None:
    """Earlier releases gave keys the text: marks by shard stay right."""
    assert shard_of(change(BeyondCalendar("infinity"))) == shard_of(change("infinity"))
