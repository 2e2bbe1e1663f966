"""Numbers in JSON are kept as they are, or the row is rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from sql_lab import SqlLab, orders
from sqlalchemy.dialects import mysql

from handlers.sql.types.driver_values import UnfitValue
from handlers.sql.types.mysql_values import as_kept

MakeLab = Callable[[str], SqlLab]
LONG = ["12345678901234567890123", "0.1234567890123456789", "-18446744073709551615", "1.00000000000000001"]


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("sqlite", "json"),
        ("postgres", "json"),
        ("postgres", "jsonb"),
        ("mariadb", "json"),
        ("duckdb", "json"),
    ],
)
def test_a_long_number_is_kept(make_sql: MakeLab, kind: str, of: str) -> None:
    sql = make_sql(kind)
    sql.make("shop.orders", f"id int PRIMARY KEY, n {of}")
    with sql.handler() as handler:
        given = f'{{"a": [{", ".join(LONG)}]}}'
        handler.handle(orders({"id": 1, "n": given}, types={"id": "int", "n": "json"}))
    [found] = sql.rows()
    kept = json.loads(found["n"], parse_float=Decimal)["a"]
    assert [Decimal(one) for one in kept] == [Decimal(one) for one in LONG]


# No server of MySQL runs here: its documentation says what its JSON keeps, and MariaDB's is a text.
@pytest.mark.parametrize("number", [*LONG, "1e400", "1e-400", "1e99999999999999999999", str(2**64 + 1)])
@pytest.mark.parametrize("form", ["{}", "[1,{}]", '{{"a\\"1": {}}}'])
def test_a_number_that_mysql_would_round_is_refused(number: str, form: str) -> None:
    keep = as_kept(mysql.JSON())
    assert keep is not None
    with pytest.raises(UnfitValue, match="MySQL would round the number"):
        keep(form.format(number))


@pytest.mark.parametrize(
    "value",
    [
        "[18446744073709551615,-9223372036854775808,0.1,1.50,1e2,-0,1E-7,0.30000000000000004]",
        '{"1234567890123456789012345": "0.1234567890123456789", "b": "\\\\", "c": "\\"1e400"}',
        '"12345678901234567890123"',
    ],
)
def test_what_mysql_keeps_is_taken(value: str) -> None:
    keep = as_kept(mysql.JSON())
    assert keep is not None
    assert keep(value) == value


def test_a_plain_value_that_mysql_would_round_is_refused() -> None:
    keep: Any = as_kept(mysql.JSON())
    assert keep({"a": 1}) == '{"a":1}'
    with pytest.raises(UnfitValue, match="123456789012345678901234"):
        keep([123456789012345678901234])
