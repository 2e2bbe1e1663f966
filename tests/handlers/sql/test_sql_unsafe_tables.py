"""Tables made by hand whose rows are not safe: from a crash, an error half way, or triggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sql_lab import SqlLab, orders
from structlog.testing import capture_logs

from handlers import HandlerContext, TargetUnavailable
from handlers.sql import SqlHandler

MakeLab = Callable[[str], SqlLab]


_FUNCTION = (
    "CREATE FUNCTION shop.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id = 7; RETURN NEW; END $$"
)
MADE_SO = {
    "UNLOGGED": ("postgres", ["ALTER TABLE shop.orders SET UNLOGGED"]),
    "tables inherit": ("postgres", ["CREATE TABLE shop.kid () INHERITS (shop.orders)"]),
    "MyISAM": ("mariadb", ["ALTER TABLE shop.orders ENGINE = MyISAM"]),
    "triggers": (
        "postgres",
        [
            _FUNCTION,
            "CREATE TRIGGER touch BEFORE UPDATE ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.touch()",
        ],
    ),
    "has triggers": (
        "mariadb",
        ["CREATE TRIGGER shop.touch BEFORE UPDATE ON shop.orders FOR EACH ROW SET NEW.id = 7"],
    ),
}


def unsafe(make_sql: MakeLab, because: str, columns: str) -> SqlLab:
    kind, statements = MADE_SO[because]
    lab = make_sql(kind)
    lab.make("shop.orders", columns)
    for statement in statements:
        lab.run(statement)
    return lab


@pytest.mark.parametrize("because", MADE_SO)
def test_such_a_table_is_told_at_once_and_by_check(make_sql: MakeLab, because: str) -> None:
    def told(logs: list[Any]) -> list[bool]:
        return [because in log["because"] for log in logs if log["event"] == "target_table_not_safe"]

    lab = unsafe(make_sql, because, "id int PRIMARY KEY")
    with lab.handler() as handler, capture_logs() as logs:
        handler.handle(orders({"id": 1}))
        handler.handle(orders({"id": 2}, offset=1))
    assert told(logs) == [True]
    with capture_logs() as logs:
        SqlHandler(url=lab.url).check(HandlerContext(worker="w", handler="SqlHandler", folder=lab.folder))
    assert told(logs) == [True]
    assert len(lab.rows()) == 2


@pytest.mark.parametrize("disable", ["DISABLE TRIGGER touch", "ENABLE REPLICA TRIGGER touch"])
def test_triggers_that_do_not_fire_are_not_told(make_sql: MakeLab, disable: str) -> None:
    lab = unsafe(make_sql, "triggers", "id int PRIMARY KEY")
    lab.run(f"ALTER TABLE shop.orders {disable}")
    with lab.handler() as handler, capture_logs() as logs:
        handler.handle(orders({"id": 1}))
    assert not [log for log in logs if log["event"] == "target_table_not_safe"]


def test_without_a_key_it_waits_for_an_engine_with_transactions(make_sql: MakeLab) -> None:
    """A batch that fails would leave rows, and bring them again."""
    lab = unsafe(make_sql, "MyISAM", "id int, note varchar(3)")
    rows = {"id": 1, "note": "a"}, {"id": 2, "note": "b"}
    with lab.handler() as handler:
        with pytest.raises(TargetUnavailable, match="MyISAM has no transactions") as told:
            handler.handle(orders(*rows, key=None))
        assert told.value.others_go_on
        assert lab.rows() == []
        lab.run("ALTER TABLE shop.orders ENGINE = InnoDB")
        handler.handle(orders(*rows, key=None))
    assert lab.rows() == list(rows)
