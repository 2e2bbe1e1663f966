"""What may be set for Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from handlers.spark import SparkHandler, SparkSection


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "replicas"}, "Input should be 'replica', 'history', 'changelog' or 'function'"),
        ({"mode": "replica", "format": "iceberg", "path": "{table}"}, "has a table in a catalog, not a path"),
        ({"mode": "replica", "format": "parquet"}, "format parquet is for mode changelog"),
        ({"mode": "changelog", "format": "parquet", "table": "{table}"}, "has a path, not a table"),
        ({"mode": "changelog", "path": "{table}", "table": "{table}"}, "give path or table, not both"),
        ({"mode": "replica", "function": "a:f"}, "mode function and the key function need each other"),
        ({"mode": "function"}, "mode function and the key function need each other"),
        ({"mode": "replica", "table": "a.b.c.{table}"}, "is not a catalog table"),
        ({}, "Field required"),
        ({"mode": "changelog", "pth": "x"}, "Extra inputs are not permitted"),
        (
            {"mode": "changelog", "path": "{tabel}"},
            r"{tabel} is unknown in a path; allowed: {database}, {table}",
        ),
        ({"mode": "replica", "partition_by": ["a.b"]}, "a column with . or ` in its name"),
        ({"mode": "replica", "partition_by": ["days(at)"]}, "'days(at)' is no partition"),
        ({"mode": "changelog", "partition_by": ["bucket(4, id)"]}, "(by a part of a value: a generated col"),
        ({"mode": "changelog", "partition_by": ["a", "A"]}, "'A' is no partition, or the second of its"),
        ({"mode": "replica", "cluster_by": ["a"], "partition_by": ["b"]}, "without partition_by"),
        ({"mode": "changelog", "format": "parquet", "cluster_by": ["a"]}, "is for tables of format delta"),
        ({"mode": "replica", "cluster_by": ["a", "b", "c", "d", "e"]}, "at most 4 items"),
        ({"mode": "changelog", "path": "all"}, r"a path needs {table}"),
        ({"mode": "changelog", "path": "{table"}, "is not a template"),
        (
            {"mode": "replica", "shared_segments": "1m"},
            "found 60 s; allowed: up to 5 s, because batches wait for it",
        ),
        (
            {"mode": "replica", "properties": {"delta.setTransactionRetentionDuration": "interval 7 days"}},
            "Delta would forget which segments a table has",
        ),
    ],
)
def test_an_unusable_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as told:
        SparkHandler(**options)
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ({"mastr": "local"}, ("mastr",), "Extra inputs"),
        ({"driver_memory": "2 GB"}, ("driver_memory",), "a size as Java writes it"),
        ({"conf": {"sql.ansi.enabled": True}}, ("conf",), "not a Spark property"),
        ({"conf": {"spark.master": "local"}}, ("conf",), "beside conf"),
        ({"concurrency": 0}, ("concurrency",), "greater than or equal to 1"),
        ({"remote": "sc://here", "master": "local"}, (), "with remote, master cannot be set here"),
    ],
)
def test_an_unusable_spark_section_is_refused(section: dict[str, Any], key: tuple[str], message: str) -> None:
    with pytest.raises(ValidationError) as told:
        SparkSection.model_validate(section)
    [fault] = told.value.errors()
    assert fault["loc"] == key
    assert message in fault["msg"]
