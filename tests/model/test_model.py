"""Whatever a source does and whichever tool writes it down: a target holds what the records tell, or the
change is in an error. A failure prints the smallest example; `python -m tests.model` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checking import check
from .opening import TARGETS, opened_target
from .strategies import examples

_COUNTS = {"duckdb": 30, "clickhouse": 30, "mariadb": 30, "mariadb-own": 20, "postgres-own": 30}
"""Of slow targets."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_what_the_records_tell(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened_target(name, request.getfixturevalue, tmp_path) as target:
        check(target, examples(target), first=1, count=_COUNTS.get(name, 100))
