"""What `binlane check` says of a usable configuration that will not do what is meant."""

from __future__ import annotations

import re
from typing import Any

import pytest
from configuration.shorthand import ANY_TABLE
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.options.matching import covers, table_matcher
from worker.configuration import Configuration
from worker.configuration.doubts import doubts

SPARK = {"type": "spark", "mode": "replica"}
KEEPS = [{"match": "shop.*", "handlers": [SPARK]}]


def found(**more: Any) -> list[str]:
    kafka = {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["t"], **more.pop("kafka", {})}
    return list(doubts(Configuration.model_validate({"kafka": kafka, "tables": ANY_TABLE, **more})))


def rules(*patterns: str) -> list[dict[str, Any]]:
    return [{"match": pattern, "handlers": [{"type": "log"}]} for pattern in patterns]


@pytest.mark.parametrize(
    "patterns",
    [
        ("*", "shop.orders"),
        ("shop.*", "shop.order_*"),
        ("shop.*", "crm.*", "shop.a?"),
        ("shop.orders", "shop.orders"),
        (r"/shop\.(orders|items)/", "shop.items"),
        ("/.*/", "/shop.*/"),
        ("shop.*_2", "shop.t[0-9]_2"),
    ],
)
def test_a_rule_behind_a_wider_one_is_told_with_both(patterns: tuple[str, ...]) -> None:
    [sentence] = found(tables=rules(*patterns))
    assert sentence.startswith(f"tables[{len(patterns) - 1}] ({patterns[-1]}) is never used")
    assert f"tables[0] ({patterns[0]}) matches all of its tables" in sentence


def test_a_pattern_of_sql_is_told() -> None:
    assert found(tables=rules("shop.%")) == [
        "tables[0].match (shop.%): in a glob, % is an ordinary character; use * for any characters"
    ]
    assert found(tables=rules("shop.*", "/crm.%/")) == []


@pytest.mark.parametrize(
    ("pattern", "is_told"),
    [("shop_1.*", True), ("shop_?.orders", True), ("shops.*", False), ("shop*.*", False), ("crm.*", False)],
)
def test_a_rule_for_tables_that_are_gathered_under_another_name_is_told(pattern: str, is_told: bool) -> None:
    told = "".join(found(tables=rules(pattern), databases={"shops": {"match": "shop*.*"}}))
    assert told.startswith(f"tables[0] ({pattern}) is never used: databases.shops (shop*.*) ") == is_told
    assert told.endswith("whose rules must match shops.TABLE") == is_told


@pytest.mark.parametrize(
    "patterns",
    [
        ("shop.orders", "shop.*"),
        ("shop.order_?", "shop.order_*"),
        ("shop.?", "shop.*"),
        ("/shop.o.*/", "shop.*"),
        ("shop.[a-f]*", "shop.[b-g]*"),
        ("shop_?.*", "shop.*"),
    ],
)
def test_a_rule_that_a_table_may_reach_is_not_told(patterns: tuple[str, ...]) -> None:
    assert found(tables=rules(*patterns)) == []


PIECES = st.lists(st.sampled_from(["a", "b", ".", "*", "?", "[ab]", "[!a]"]), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(PIECES, PIECES, st.lists(st.text("ab.", max_size=6), max_size=20))
def test_a_pattern_that_covers_another_takes_each_table_that_the_other_takes(
    wide: list[str], narrow: list[str], names: list[str]
) -> None:
    one, other = "".join(wide), "".join(narrow)
    if not re.search(r"[*?\[.]", one) or not re.search(r"[*?\[.]", other) or not covers(one, other):
        return
    takes_wide, takes_narrow = table_matcher(one), table_matcher(other)
    assert [name for name in names if takes_narrow(name) and not takes_wide(name)] == []


def test_a_section_of_a_format_that_no_topic_has_is_told() -> None:
    layout = {"database": "=shop", "table": "t"}
    for format_ in ("canal", {"t": "dts"}):
        [debezium, json] = found(format=format_, debezium={"binary": "hex"}, json=layout)
        assert debezium.startswith("debezium describes records of the format debezium")
        assert json.startswith("json describes records of the format json")
    assert found(format={"a": "debezium", "t": "json"}, debezium={"binary": "hex"}, json=layout) == []
    assert found(format="canal") == []


def test_handlers_of_one_name_in_a_rule_are_told() -> None:
    log, file = {"type": "log"}, {"type": "files", "directory": "out"}
    twins = [{"match": "*", "handlers": [log, {**file, "name": "log"}, file]}]
    [sentence] = found(tables=twins)
    assert sentence.startswith("tables[0]: 2 handlers are called log")
    assert found(tables=[{"match": "a.*", "handlers": [log]}, {"match": "b.*", "handlers": [log]}]) == []


def test_a_batch_that_is_larger_than_what_lanes_hold_is_told() -> None:
    assert found(lanes={"max_records": 500}, batch={"max_wait": 1}) == [
        "tables[0].batch.max_records (1000) is more than a lane can hold (lanes.max_records, 500): a batch "
        "never fills and waits for max_wait each time"
    ]
    assert found(lanes={"max_bytes": 2**20}) == [
        "tables[0].batch.max_bytes (16MiB) is more than all lanes can hold (lanes.max_bytes, 1MiB): a "
        "batch never fills"
    ]


@pytest.mark.parametrize(
    ("spark", "told"),
    [
        ({}, False),
        ({"master": "local[4]", "warehouse": "/data"}, False),
        ({"master": "spark://s:7077", "warehouse": "hdfs://n/lake"}, False),
        ({"master": "spark://s:7077"}, True),
        ({"master": "k8s://https://k", "warehouse": "file:///data"}, True),
        ({"remote": "sc://s:15002", "warehouse": "/data"}, True),
    ],
)
def test_a_local_warehouse_with_a_remote_spark_is_told(spark: dict[str, str], told: bool) -> None:
    sentences = found(tables=KEEPS, spark=spark)
    assert [sentence.startswith("spark.warehouse (") for sentence in sentences] == [True] * told
    assert found(tables=ANY_TABLE, spark=spark) == []


@pytest.mark.parametrize(
    "demand",
    [{"kafka": {"ddl_topics": ["cdc.ddl"]}}, {"tables": KEEPS, "spark": {"single_writer": True}}],
)
def test_a_configuration_for_one_worker_says_so(demand: dict[str, Any]) -> None:
    [sentence] = found(**demand)
    assert "never run two workers at once (in Kubernetes use a StatefulSet with one replica" in sentence


def test_a_comparison_with_null_is_told() -> None:
    rule = {"match": "*", "handlers": [{"type": "log"}]}
    filters = {"a = NULL OR b <> NULL": ["a = NULL", "b <> NULL"], "a IS NULL AND b IN (1, NULL)": []}
    for text, told in filters.items():
        assert found(tables=[{**rule, "filter": text}]) == [
            f"tables[0].filter: {each} is never true, as in SQL; write IS NULL or IS NOT NULL"
            for each in told
        ]
