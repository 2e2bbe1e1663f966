"""Spark tables that would share a place are told before a worker runs."""

from __future__ import annotations

import pytest
from configuration.shorthand import Faults, Load

from worker.configuration.spark_places import doubtful_places

REPLICA = "{type: spark, name: replica, mode: replica%s}"
CHANGES = "{type: spark, name: changes, mode: changelog%s}"


def rule(*handlers: str, match: str = "shop.*") -> str:
    return f"tables: [{{match: '{match}', handlers: [{', '.join(handlers)}]}}]"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", ""),
        ("", ", path: 'lake/{database}/{table}'"),
        ("", ", format: parquet, path: './lake/{database}//{table}/'"),
        (", table: 'main.{database}.{table}'", ", table: 'main.{database}.{table}'"),
    ],
)
def test_two_handlers_of_one_rule_in_one_place_are_refused(faults: Faults, first: str, second: str) -> None:
    [told] = faults(rule(REPLICA % first, CHANGES % second))
    assert told.startswith(
        "shop.yaml:5: tables[0].handlers[1]: tables[0].handlers[0] keeps its tables in the same place, "
    )
    assert told.endswith("give one of them a path of its own, such as lake/changes/{database}/{table}")


def test_handlers_with_places_of_their_own_are_taken(read: Load) -> None:
    own = CHANGES % ", path: 'lake/changes/{database}/{table}'"
    assert list(doubtful_places(read(rule(REPLICA % "", own, match="*")))) == []
    of_two_rules = f"{{match: a.*, handlers: [{REPLICA % ''}]}}, {{match: b.*, handlers: [{CHANGES % ''}]}}"
    assert list(doubtful_places(read(f"tables: [{of_two_rules}]"))) == []


@pytest.mark.parametrize(
    ("match", "is_told"),
    [
        ("*", True),
        ("shop_*.orders", True),
        ("/.*/", True),
        ("/(shop|archive)\\.orders/", True),
        ("shop.*", False),
        ("shop.orders", False),
        ("/shop\\.(orders|items)/", False),
    ],
)
def test_a_place_without_the_database_is_told_where_several_may_be_met(
    read: Load, match: str, is_told: bool
) -> None:
    found = list(doubtful_places(read(rule(REPLICA % ", path: 'lake/{table}'", match=match))))
    assert bool(found) is is_told
    for told in found:
        assert told.startswith("tables[0].handlers[0]: lake/{table} does not hold {database}, ")
