"""Whatever a source does and whichever tool writes it down: a target holds what the records tell, or the
change is in an error. A failure prints the smallest example; `python -m tests.model` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checking import check
from .opening import TARGETS, opened_target
from .strategies import examples

_COUNTS = {"clickhouse": 12, "duckdb": 20, "mariadb": 25, "mariadb-own": 25}
"""Of slow targets."""
_WHOLE_ROWS = ("debezium-mysql", "maxwell", "dts")


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_what_the_records_tell(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened_target(name, request.getfixturevalue, tmp_path) as target:
        check(target, examples(target, tools=_WHOLE_ROWS), first=1, count=_COUNTS.get(name, 50))


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="formats do not say yet what a change lacks, or what moves"
)
@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("sqlite-own", "json"),
        ("sqlite-own", "canal"),
        ("redis", "json"),
        ("redis", "debezium-postgres"),
    ],
)
def test_rows_that_are_told_in_part(
    name: str, tool: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened_target(name, request.getfixturevalue, tmp_path) as target:
        check(target, examples(target, tools=[tool]), first=3, count=100)


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="Canal's reader takes a row without its blobs for a whole one"
)
def test_rows_that_mysql_logs_without_their_blobs(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened_target("redis", request.getfixturevalue, tmp_path) as target:
        check(target, examples(target, tools=["canal-noblob"]), first=1, count=100)
