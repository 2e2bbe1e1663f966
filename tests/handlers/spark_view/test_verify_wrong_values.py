"""`binlane verify` finds a wrong value of each type, even one that Python does not have."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from verify_lab import Stage, url
from view_lab import shape

YEAR_12000 = 3_663_479  # days since 1970
BEFORE_CHRIST = -719_529

WRONG = [
    ("DATE", pa.date32(), None, YEAR_12000),
    ("DATE", pa.date32(), "2024-01-01", BEFORE_CHRIST),
    ("DATE", pa.date32(), "2024-01-01", 0),
    ("TIMESTAMP", pa.timestamp("us"), None, YEAR_12000 * 86_400_000_000),
    ("DOUBLE", pa.float64(), None, float("nan")),
    ("DOUBLE", pa.float64(), 1.5, float("inf")),
    ("NUMERIC(9,2)", pa.decimal128(38, 2), 1.1, Decimal("1.12")),
    ("BIGINT", pa.int64(), 2**53, 2**53 + 1),
    ("TEXT", pa.string(), "", " "),
    ("TEXT", pa.string(), "", None),
    ("TEXT", pa.string(), "é", "e\u0301"),
    ("BLOB", pa.binary(), b"\0", b""),
    ("BOOLEAN", pa.bool_(), 0, True),
]


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_found(tmp_path: Path, shop: sa.Connection, case: Any) -> None:
    kind, type_, right, wrong = case
    shop.exec_driver_sql(f"CREATE TABLE t (id INTEGER PRIMARY KEY, value {kind})")
    shop.exec_driver_sql("INSERT INTO t VALUES (1, NULL), (2, ?)", (right,))
    of = shape(id=pa.int64(), value=type_)
    Stage(tmp_path, None).replicate("t", of, {"id": 1}, {"id": 2, "value": wrong})
    code, out, err = Stage(tmp_path, None).run("verify", "shop.t", "--against", url(shop), "--settle", "0s")
    assert code == 1
    assert "shop.t id=2" in out + err, (out, err)
