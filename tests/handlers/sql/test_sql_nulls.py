"""NULL for a column that has none is an error, never a value that the database thinks of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from reload_lab import PLACE, reloading
from sql_lab import SqlLab, orders

from handlers import Rejected
from handlers.reloading import Differs

MakeLab = Callable[[str], SqlLab]
AT = datetime(2026, 5, 5, 12)


@pytest.mark.parametrize(
    "definition",
    ["timestamp NOT NULL DEFAULT '2000-01-01'", "timestamp NOT NULL DEFAULT current_timestamp()"],
)
def test_null_never_becomes_the_current_time(make_sql: MakeLab, definition: str) -> None:
    """A source's zero timestamp is NULL."""
    lab = make_sql("mariadb")
    lab.make("shop.orders", f"id int PRIMARY KEY, ended {definition}")
    with lab.handler() as handler:
        with pytest.raises(Rejected, match=r"column ended: .* the current time.* column nullable") as told:
            handler.handle(orders({"id": 1, "ended": AT}, {"id": 2, "ended": None}, {"id": 3, "ended": AT}))
        assert told.value.at == 1
        handler.handle(orders({"id": 1, "ended": AT}))
        with pytest.raises(Rejected, match="the current time"):
            handler.handle(orders({"before": {"id": 1}, "after": {"id": 1, "ended": None}}, offset=3))
        lab.run("ALTER TABLE shop.orders MODIFY ended timestamp NULL")
        handler.handle(orders({"id": 2, "ended": None}, offset=4))
    assert [row["ended"] for row in lab.rows()] == [AT, None]


def test_null_never_becomes_the_next_number(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "id int PRIMARY KEY, number bigint NOT NULL AUTO_INCREMENT, KEY (number)")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "number": 0}))
        with pytest.raises(Rejected, match=r"column number: .* the next number"):
            handler.handle(orders({"id": 2, "number": None}, offset=1))
    assert lab.rows() == [{"id": 1, "number": 0}]


def test_null_never_becomes_sqlites_rowid(make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    lab.make("shop.orders", "number INTEGER PRIMARY KEY, id int UNIQUE")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "number": 7}))
        with pytest.raises(Rejected, match=r"column number: .* the next number"):
            handler.handle(orders({"id": 2, "number": None}, offset=1))
    assert lab.rows() == [{"id": 1, "number": 7}]


def test_a_reload_makes_no_value_of_null_either(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    lab.make("shop.orders", "id int PRIMARY KEY, ended timestamp NOT NULL")
    types = {"id": "int", "ended": "timestamp"}
    with lab.handler() as worker:
        worker.handle(orders({"id": 1, "ended": AT}, types=types))
        with reloading(lab) as reload:
            reload.apply(orders({"id": 1, "ended": AT}, {"id": 2, "ended": None}, types=types))
            with pytest.raises(Differs, match=r"ended of shop\.orders is NULL in some row"):
                reload.take_over({PLACE: 2})
    assert lab.rows() == [{"id": 1, "ended": AT}]
