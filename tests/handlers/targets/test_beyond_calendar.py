"""Times that only PostgreSQL has: each target holds them, or rejects the row and says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from target_kinds import Target
from test_targets import process

from handlers import Batch, BeyondCalendar, Rejected
from handlers.sql.target.engine import make_engine
from handlers.testing import make_batch

TYPES = {"id": "bigint", "day": "date", "at": "datetime(6)", "moment": "timestamp(6)", "n": "double"}
ROWS: dict[int, dict[str, str | None]] = {
    1: {"day": "infinity", "at": "infinity", "moment": "-infinity"},
    2: {"day": "-infinity", "at": "-infinity", "moment": "infinity"},
    3: {
        "day": "0044-03-15 BC",
        "at": "0044-03-15 12:00:00.000001 BC",
        "moment": "0044-03-15 12:00:00+00 BC",
    },
    4: {"day": "20000-01-01", "at": "20000-01-01 00:00:00", "moment": "20000-12-31 23:59:59.5+00"},
    5: {"day": None, "at": None, "moment": None},
}


def orders(*ids: int, offset: int = 0, **more: Any) -> Batch:
    """`more`: other values of all rows."""
    rows = [
        {"id": one, **{name: text and BeyondCalendar(text) for name, text in ROWS[one].items()}, **more}
        for one in ids
    ]
    return make_batch("shop.orders", [{"after": row} for row in rows], key="id", types=TYPES, offset=offset)


def kept(target: Target, folder: Path) -> dict[int, dict[str, str | None]]:
    """The target's times as text: drivers cannot read them otherwise."""
    if target.entry["type"] == "redis":
        found = target.rows("shop.orders")
        return {int(key): {name: row.get(name) for name in ROWS[5]} for key, row in found.items()}
    engine = make_engine(
        sa.make_url(target.entry["url"].replace("duckdb:", "duckdb+binlane:")),
        folder=folder,
        pool_size=1,
        timeout=30,
    )
    try:
        with engine.connect() as connection:
            table = {"sqlite": '"shop.orders"', "duckdb": "shop.shop.orders"}.get(
                engine.dialect.name, "shop.orders"
            )
            texts = ", ".join(f'CAST("{name}" AS varchar(99)) AS "{name}"' for name in ROWS[5])
            rows = connection.exec_driver_sql(f"SELECT id, {texts} FROM {table}").mappings().all()
    finally:
        engine.dispose()
    return {row["id"]: {name: _as_postgresql(row[name]) for name in ROWS[5]} for row in rows}


def _as_postgresql(text: str | None) -> str | None:
    return f"{text.replace(' (BC)', '')} BC" if text and " (BC)" in text else text


def holds(target: Target) -> bool:
    kind = target.entry["type"]
    return kind == "redis" or (
        kind == "sql" and target.entry["url"].startswith(("sqlite", "postgres", "duckdb"))
    )


def test_a_target_holds_a_time_beyond_the_calendar_or_rejects_its_row(target: Target, tmp_path: Path) -> None:
    with process(target, tmp_path) as handler:
        handler.handle(orders(5))
        if holds(target):
            handler.handle(orders(1, 2, 3, 4, offset=1))
        else:
            for number in (1, 2, 3, 4):
                with pytest.raises(Rejected, match=r"infinity|44|20000"):
                    handler.handle(orders(number, offset=number))
    if holds(target):
        assert kept(target, tmp_path) == ROWS
    else:
        assert target.rows("shop.orders").keys() == {"5"}


def test_no_number_is_made_of_infinity(target: Target, tmp_path: Path) -> None:
    """PostgreSQL reads the same text into a column of floats."""
    with process(target, tmp_path) as handler:
        handler.handle(orders(5, n=1.5))
        if target.entry["type"] != "redis":
            with pytest.raises(Rejected):
                handler.handle(orders(5, n=BeyondCalendar("infinity"), offset=1))
