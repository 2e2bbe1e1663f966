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
from .writers.canal import Packets
from .writers.debezium import PostgreSQL
from .writers.maxwell import Maxwell
from .writers.writing import Writer

_COUNTS = {
    "clickhouse": 2,
    "duckdb": 3,
    "elasticsearch": 2,
    "files": 12,
    "iceberg": 4,
    "iceberg-changelog": 2,
    "iceberg-history": 2,
    "kafka": 5,
    "kafka-after": 5,
    "mariadb": 6,
    "mariadb-own": 4,
    "parquet": 6,
    "postgres": 6,
    "postgres-own": 4,
    "spark": 0,
    "spark-changelog": 0,
    "spark-history": 0,
    "spark-small": 1,
}
"""Of slow targets. 0: `python -m tests.model` has them."""
_FAST = 25
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
_SOUTH = _ROW | {"region": "south", "doc": "long one"}


def _once(key: tuple[str, ...], writer: Writer, rules: Rules, steps: list[Step]) -> Example:
    return Example(key, writer, rules, steps, read_at_once=1, batch=1, again=0)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            _once(
                ("id",),
                Maxwell(knows_types=False),
                Rules(filters=True),
                [Step("put", row=_ROW), Step("change", row={"region": "south"})],
            ),
            id="the filter takes a row no more",
        ),
        pytest.param(
            _once(
                ("id",),
                own_json.Changes(partial=True, old="all", all_types=True),
                Rules(),
                [Step("put", row=_ROW), Step("move", row={"id": 2})],
            ),
            id="a key moves, and the old row tells the rest",
        ),
        pytest.param(
            _once(
                ("id", "region"),
                own_json.Changes(partial=True, old="key", all_types=True),
                Rules(filters=True, deletes="ignore"),
                [Step("put", row={**_ROW, "region": "south"}), Step("move", row={"id": 2, "note": "a"})],
            ),
            id="a key moves that the filter never took",
        ),
        pytest.param(
            _once(
                ("id",),
                PostgreSQL(schemas=True, identity="default", ordered=False),
                Rules(filters=True),
                [Step("put", row=_SOUTH), Step("change", row={"region": "north"})],
            ),
            id="the filter takes a row without its large value",
        ),
        pytest.param(
            _once(
                ("id",),
                PostgreSQL(schemas=True, identity="default", ordered=True),
                Rules(filters=True),
                [Step("put", row=_SOUTH), Step("move", row={"id": 2, "region": "north"})],
            ),
            id="the filter takes a row under a new key without its large value",
        ),
        pytest.param(
            _once(
                ("id",),
                PostgreSQL(schemas=True, identity="default", ordered=False),
                Rules(),
                [
                    Step("put", row={**_ROW, "note": "a", "doc": "long one"}),
                    Step("change", row={"note": "b"}),
                ],
            ),
            id="a large value stays as it is",
        ),
        pytest.param(
            _once(
                ("id",),
                PostgreSQL(schemas=True, identity="default", ordered=False),
                Rules(),
                [Step("put", row={**_ROW, "doc": "long one"}), Step("move", row={"id": 2})],
            ),
            id="a key moves, and nothing tells the large value",
        ),
        pytest.param(
            _once(
                ("id",),
                PostgreSQL(schemas=True, identity="default", ordered=False),
                Rules(deletes="mark"),
                [Step("put", row={**_ROW, "note": "a"}), Step("delete")],
            ),
            id="a mark of a row of which the key is told",
        ),
        pytest.param(
            _once(
                ("id",),
                Packets("full"),
                Rules(),
                [Step("put", row=_ROW), Step("replace", row={**_ROW, "id": 2})],
            ),
            id="a delete and an insert of one packet",
        ),
        pytest.param(
            _once(
                ("id",),
                Maxwell(knows_types=False, image="minimal"),
                Rules(filters=True),
                [Step("put", row=_ROW), Step("change", row={"region": "south"})],
            ),
            id="the filter takes a row no more, and nothing tells that it did",
        ),
        pytest.param(
            _once(
                ("id",),
                own_json.Changes(partial=True, old="small", all_types=True),
                Rules(),
                [Step("put", row={**_ROW, "doc": "long one"}), Step("change", row={"region": "south"})],
            ),
            id="a part of a row under another key of the target",
        ),
        pytest.param(
            _once(
                (),
                Packets("full"),
                Rules(filters=True),
                [Step("put", row=_ROW), Step("put", row=_ROW), Step("change", row={"region": "south"})],
            ),
            id="the filter takes one of two equal rows no more",
        ),
    ],
)
def test_a_change_that_went_wrong_once(
    example: Example, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    names = ["sqlite", "files"]
    if example.key:
        names += ["sqlite-own", "redis"]
        names += ["redis-region"] if example.writer.tells_old_rows and example.rules == Rules() else []
    for name in names:
        with opened_target(name, request.getfixturevalue, tmp_path) as target:
            assert not differences([example], target), name
