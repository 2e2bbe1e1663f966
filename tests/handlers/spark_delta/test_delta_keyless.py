"""Replicas without a key: as many equal rows as the source has."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, shape

PLAIN = shape((), a=pa.int32(), b=pa.string(), step=pa.float64())


def inserted(a: Any, b: Any = None, step: Any = None) -> dict[str, Any]:
    return {"op": "insert", "a": a, "b": b, "step": step}


def deleted(a: Any, b: Any = None, step: Any = None) -> dict[str, Any]:
    return {"op": "delete", "a": a, "b": b, "step": step}


@pytest.mark.soak
def test_a_deleted_row_takes_one_of_its_equals(make_table: MakeTable) -> None:
    table = make_table()
    table.put(PLAIN, inserted(1), inserted(1), inserted(1), inserted(2, "x"), inserted(None), deleted(9))
    table.merge()
    assert table.rows("a, b") == [(1, None), (1, None), (1, None), (2, "x"), (None, None)]
    table.put(PLAIN, deleted(1), inserted(2, "x"), deleted(None), deleted(None), inserted(3), deleted(3))
    table.merge()
    assert table.rows("a, b") == [(1, None), (1, None), (2, "x"), (2, "x")]
    assert table.commits == 1


@pytest.mark.soak
def test_what_comes_after_a_delete_of_nothing_stays(make_table: MakeTable) -> None:
    table = make_table()
    table.put(PLAIN, deleted(1), inserted(1))
    table.merge()
    table.put(PLAIN, deleted(2), deleted(2), inserted(2), deleted(1), deleted(1), inserted(1), inserted(1))
    table.merge()
    assert table.rows("a") == [(1,), (1,), (2,)]


@pytest.mark.soak
def test_floats_that_are_no_numbers_equal_themselves(make_table: MakeTable) -> None:
    table = make_table()
    table.put(PLAIN, inserted(1, None, math.nan), inserted(2, None, -0.0), inserted(3, None, 0.1))
    table.merge()
    table.put(PLAIN, deleted(1, None, math.nan), deleted(2, None, 0.0), deleted(3, None, 0.2))
    table.merge()
    assert table.rows() == [(3, None, 0.1)]


@pytest.mark.soak
def test_columns_of_the_table_alone_stay(make_table: MakeTable) -> None:
    table = make_table()
    table.put(PLAIN, inserted(1), inserted(1), inserted(2))
    table.merge()
    table.sql("ALTER TABLE {t} ADD COLUMNS (mine string)")
    table.sql("UPDATE {t} SET mine = 'x'")
    table.put(PLAIN, deleted(1), inserted(3))
    table.merge()
    assert table.rows("a, mine") == [(1, "x"), (2, "x"), (3, None)]


@pytest.mark.parametrize(("seed", "merges"), [(1, 2), pytest.param(2, 8, marks=pytest.mark.soak)])
@pytest.mark.soak
def test_random_changes_come_to_what_a_model_says(make_table: MakeTable, seed: int, merges: int) -> None:
    chance = random.Random(seed)
    table, model = make_table(), Counter[tuple[Any, ...]]()
    for _ in range(merges):
        for _ in range(chance.randint(1, 3)):
            rows = []
            for _ in range(chance.randint(1, 60)):
                row = (chance.choice((None, 1, 2, 3)), chance.choice((None, "x")), chance.choice((None, 0.5)))
                if chance.random() < 0.45:
                    rows.append(deleted(*row))
                    model[row] = max(0, model[row] - 1)
                else:
                    rows.append(inserted(*row))
                    model[row] += 1
            table.put(PLAIN, *rows)
        table.merge()
        assert table.rows() == sorted(model.elements(), key=repr)
