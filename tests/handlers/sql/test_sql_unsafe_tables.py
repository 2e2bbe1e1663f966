"""Tables made by hand whose rows a crash of the server takes, or that no transaction takes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sql_lab import SqlLab, orders
from structlog.testing import capture_logs

from handlers import HandlerContext, TargetUnavailable
from handlers.sql import SqlHandler

MakeLab = Callable[[str], SqlLab]


def unsafe(make_sql: MakeLab, kind: str, columns: str) -> SqlLab:
    lab = make_sql(kind)
    lab.make("shop.orders", columns)
    lab.run(f"ALTER TABLE shop.orders {'SET UNLOGGED' if kind == 'postgres' else 'ENGINE = MyISAM'}")
    return lab


@pytest.mark.parametrize(("kind", "because"), [("postgres", "UNLOGGED"), ("mariadb", "MyISAM")])
def test_such_a_table_is_told_at_once_and_by_check(make_sql: MakeLab, kind: str, because: str) -> None:
    def told(logs: list[Any]) -> list[bool]:
        return [because in log["because"] for log in logs if log["event"] == "target_table_not_safe"]

    lab = unsafe(make_sql, kind, "id int PRIMARY KEY")
    with lab.handler() as handler, capture_logs() as logs:
        handler.handle(orders({"id": 1}))
        handler.handle(orders({"id": 2}, offset=1))
    assert told(logs) == [True]
    with capture_logs() as logs:
        SqlHandler(url=lab.url).check(HandlerContext(worker="w", handler="SqlHandler", folder=lab.folder))
    assert told(logs) == [True]
    assert len(lab.rows()) == 2


def test_without_a_key_it_waits_for_an_engine_with_transactions(make_sql: MakeLab) -> None:
    """A batch that fails would leave rows, and bring them again."""
    lab = unsafe(make_sql, "mariadb", "id int, note varchar(3)")
    rows = {"id": 1, "note": "a"}, {"id": 2, "note": "b"}
    with lab.handler() as handler:
        with pytest.raises(TargetUnavailable, match="MyISAM has no transactions") as told:
            handler.handle(orders(*rows, key=None))
        assert told.value.others_go_on
        assert lab.rows() == []
        lab.run("ALTER TABLE shop.orders ENGINE = InnoDB")
        handler.handle(orders(*rows, key=None))
    assert lab.rows() == list(rows)
