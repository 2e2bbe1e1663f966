"""Spark tables that would share a place are told before a worker runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration.shorthand import Faults, Load

from handlers import Rejected
from handlers.spark.locations import Locations
from handlers.spark.options import SparkOptions, SparkSection
from worker.configuration.agreement import doubtful_locations

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
        (", format: iceberg", ", format: iceberg, table: '{database}.{table}'"),
    ],
)
def test_two_handlers_of_one_rule_in_one_place_are_refused(faults: Faults, first: str, second: str) -> None:
    [told] = faults(rule(REPLICA % first, CHANGES % second))
    assert told.startswith(
        "shop.yaml:5: tables[0].handlers[1]: tables[0].handlers[0] keeps its tables in the same place, "
    )
    assert told.endswith("give one of them its own path, such as lake/changes/{database}/{table}")


def test_a_table_may_be_kept_in_delta_and_in_iceberg(read: Load) -> None:
    read(rule(REPLICA % "", CHANGES % ", format: iceberg"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", ", path: 'lake/{database}/{table}/changes'"),
        (", path: 'lake/{database}/{table}/rows'", ", format: parquet, path: 'lake/{database}/{table}'"),
    ],
)
def test_a_table_within_another_is_refused(faults: Faults, first: str, second: str) -> None:
    [told] = faults(rule(REPLICA % first, CHANGES % second))
    assert "so one table would be inside the other, whose VACUUM removes its files: give one of them" in told


@pytest.mark.parametrize(
    ("match", "second", "met"),
    [
        ("shop.orders", "lake/shop/{table}/changes", "lake/shop/orders, so one table would be inside"),
        ("shop.*", "lake/shop/{table}/changes", "lake/shop/{table}, so one table would be inside"),
        ("shop.*", "lake/shop/{table}", "the same place, lake/shop/{table},"),
        ("shop*", "lake/{database}/{table}/changes", "lake/{database}/{table}, so one table would be inside"),
    ],
)
def test_a_place_is_what_its_template_is_for_the_names_of_the_rule(
    faults: Faults, match: str, second: str, met: str
) -> None:
    [told] = faults(rule(REPLICA % "", CHANGES % f", path: '{second}'", match=match))
    assert f"keeps its tables in {met}" in told


@pytest.mark.parametrize("beside", ["_changes", "/_changes", "/.changes/{table}"])
def test_a_table_beside_another_or_hidden_from_it_is_taken(read: Load, beside: str) -> None:
    own = CHANGES % f", path: 'lake/{{database}}/{{table}}{beside}'"
    assert read(rule(REPLICA % "", own))


def test_handlers_with_places_of_their_own_are_taken(read: Load) -> None:
    own = CHANGES % ", path: 'lake/changes/{database}/{table}'"
    assert list(doubtful_locations(read(rule(REPLICA % "", own, match="*")))) == []
    of_two_rules = f"{{match: a.*, handlers: [{REPLICA % ''}]}}, {{match: b.*, handlers: [{CHANGES % ''}]}}"
    assert list(doubtful_locations(read(f"tables: [{of_two_rules}]"))) == []


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
    found = list(doubtful_locations(read(rule(REPLICA % ", path: 'lake/{table}'", match=match))))
    assert bool(found) is is_told
    for told in found:
        assert told.startswith("tables[0].handlers[0]: lake/{table} does not contain {database}, ")


@pytest.mark.parametrize(
    ("match", "options", "is_refused"),
    [
        ("_binlane.orders", "", True),
        ("_binlane.*", ", path: 'tables/{database}/x/{table}'", True),
        ("shop._binlane", ", path: 'tables/{table}'", True),
        ("*._binlane", ", path: 'tables/{table}'", True),
        ("_binlane.orders", ", path: 'tables/of/{table}/{database}'", False),
        ("_binlane.orders", ", path: 'tables/{database}_{table}'", False),
        ("_binlane.orders", ", table: 'main.{database}.{table}'", False),
        ("_binlane_.orders", "", False),
        ("*.orders", "", False),
    ],
)
def test_tables_that_would_be_kept_among_the_logs_are_refused(
    read: Load, faults: Faults, match: str, options: str, is_refused: bool
) -> None:
    text = rule(REPLICA % options, match=match)
    if not is_refused:
        read(text)
        return
    [told] = faults(text)
    assert f"tables[0].match: found {match}; the handler replica would keep these tables in " in told
    assert "/_binlane, which binlane uses for its own files: set table to a path such as " in told


def test_a_table_that_comes_and_would_be_kept_among_the_logs_is_rejected(tmp_path: Path) -> None:
    section = SparkSection.model_validate({"warehouse": "lake"})
    locations = Locations(SparkOptions(mode="replica"), section, tmp_path)
    with pytest.raises(
        Rejected, match=r"_binlane\.orders would be kept in .*/lake/_binlane/orders, but binlane uses "
    ):
        locations.ref_to_write("_binlane", "orders")
    assert locations.ref_to_write("shop", "_binlane").path == f"{tmp_path}/lake/shop/_binlane"
    own = Locations(SparkOptions(mode="replica", path="lake/{table}"), section, tmp_path)
    with pytest.raises(Rejected, match="another path for it"):
        own.ref_to_write("shop", "_binlane")
