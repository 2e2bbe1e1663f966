"""Whatever a source does and whichever tool writes it down: a target holds what the records tell, or the
change is in an error. A failure prints the smallest example; `python -m tests.model` has more of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from .checking import check
from .drawing import Drawing
from .rules import Rules
from .run import Example, differences
from .source import Step
from .targets.opening import TARGETS, opened_target
from .writers import own_json
from .writers.maxwell import Maxwell
from .writers.writing import Writer

_COUNTS = {
    "clickhouse": 3,
    "duckdb": 4,
    "elasticsearch": 3,
    "files": 20,
    "kafka": 8,
    "kafka-after": 8,
    "mariadb": 10,
    "mariadb-own": 10,
    "parquet": 10,
    "postgres": 10,
    "postgres-own": 10,
    "spark": 0,
    "spark-changelog": 0,
    "spark-history": 0,
    "spark-small": 1,
}
"""Of slow targets. 0: `python -m tests.model` has them."""
_FAST = 40
_SEED, _AT_ONCE, _SIZE = 1, 2, 2
"""`_AT_ONCE`, `_SIZE`: the most of a target's `at_once` and `size`."""


@pytest.mark.parametrize("name", [name for name in TARGETS if _COUNTS.get(name) != 0])
def test_a_target_holds_what_the_records_tell(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened_target(name, request.getfixturevalue, tmp_path) as target:
        small = replace(target, at_once=min(target.at_once, _AT_ONCE), size=min(target.size, _SIZE))
        check(small, Drawing(small), first=_SEED, count=_COUNTS.get(name, _FAST))


_ROW = {"id": 1, "region": "north", "amount": None, "note": None, "doc": None}


@pytest.mark.parametrize(
    ("key", "writer", "rules", "steps"),
    [
        pytest.param(
            ("id",),
            Maxwell(knows_types=False),
            Rules(filters=True),
            [Step("put", row=_ROW), Step("change", row={"region": "south"})],
            id="the filter takes a row no more",
        ),
        pytest.param(
            ("id",),
            own_json.Changes(partial=True, old="all", all_types=True),
            Rules(),
            [Step("put", row=_ROW), Step("move", row={"id": 2})],
            id="a key moves, and the old row tells the rest",
        ),
        pytest.param(
            ("id", "region"),
            own_json.Changes(partial=True, old="key", all_types=True),
            Rules(filters=True, deletes="ignore"),
            [Step("put", row={**_ROW, "region": "south"}), Step("move", row={"id": 2, "note": "a"})],
            id="a key moves that the filter never took",
        ),
    ],
)
def test_a_change_that_went_wrong_once(
    key: tuple[str, ...], writer: Writer, rules: Rules, steps: list[Step], tmp_path: Path
) -> None:
    example = Example(key, writer, rules, steps, read_at_once=1, batch=1, again=False)
    for name in ("sqlite", "sqlite-own"):
        with opened_target(name, lambda _: None, tmp_path) as target:
            assert not differences([example], target)
