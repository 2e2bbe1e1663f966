"""Batches for tests of handlers are what the worker would make."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import handlers.testing
from handlers import Batch, Handler, HandlerContext, StopWorker
from handlers.testing import make_batch, opened

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "handlers.md"
SAMPLE = Path(__file__).parents[2] / "examples" / "formats" / "samples" / "canal.jsonl"
OF_THE_SHOP = f"""
def test_statements_are_no_dead_letters(play):
    played = play("mirror.yaml", {str(SAMPLE)!r})
    assert (played.letters, played.halted) == ([], {{}})
    assert len(played.handlers["mirror"].into) == 4
"""


def test_the_example_of_the_docstring_is_true() -> None:
    assert doctest.testmod(handlers.testing) == (0, 1 + 1)


def test_rows_are_inserts_and_changes_are_what_they_say() -> None:
    batch = make_batch(
        "shop.orders",
        [
            {"id": 1},
            {"before": {"id": 1}, "after": {"id": 1, "n": 2}},
            {"before": {"id": 1}, "after": None},
            {"op": "snapshot", "after": {"id": 3}},
            {"sql": "ALTER TABLE orders ADD n int"},
            {"op": "truncate", "sql": "TRUNCATE orders"},
        ],
        key="id",
        offset=10,
    )
    assert [change.op for change in batch.changes] == [
        "insert",
        "update",
        "delete",
        "snapshot",
        "ddl",
        "truncate",
    ]
    assert [change.offset for change in batch.changes] == [10, 11, 12, 13, 14, 15]
    assert batch.positions == {("test", 0): (10, 15)}
    assert batch.records == 6
    assert (batch.table, batch.database, batch.name) == ("shop.orders", "shop", "orders")


def test_a_row_with_a_column_called_before_is_a_row() -> None:
    batch = make_batch("shop.rules", [{"before": "noon", "id": 1}], key="id")
    assert batch.changes[0].after == {"before": "noon", "id": 1}


def test_several_changes_of_one_record_share_its_offset() -> None:
    batch = make_batch(
        "shop.orders", [{"after": {"id": 1}, "offset": 5}, {"after": {"id": 2}, "offset": 5, "index": 1}]
    )
    assert batch.records == 1
    assert batch.changes[1].key is None


def test_a_name_without_a_database_is_refused() -> None:
    with pytest.raises(ValueError, match="is not database"):
        make_batch("orders", [])


def test_opened_opens_and_closes(tmp_path: Path) -> None:
    seen: list[object] = []

    class Watched(Handler):
        def open(self, context: HandlerContext) -> None:
            seen.append((context.folder, context.handler, context.lanes))

        def handle(self, batch: Batch) -> None:
            seen.append(batch.table)

        def close(self) -> None:
            seen.append("closed")

    with opened(Watched(), tmp_path, lanes=4) as handler:
        handler.handle(make_batch("shop.orders", [{"id": 1}]))
    assert seen == [(tmp_path, "Watched", 4), "shop.orders", "closed"]


def test_the_handler_and_the_test_of_the_documentation_work(tmp_path: Path) -> None:
    page = DOCUMENTATION.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mirror.py").write_text(blocks[0])
    (tmp_path / "test_played.py").write_text(blocks[1])
    (tmp_path / "test_mirror.py").write_text(blocks[2])
    for name, language in (("mirror.yaml", "yaml"), ("orders.jsonl", "json")):
        (tmp_path / name).write_text(re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[0])
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["binlane.pytest_plugin"]\n')
    (tmp_path / "test_shop.py").write_text(OF_THE_SHOP)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "test_mirror.py",
            "test_played.py",
            "test_shop.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_what_a_thread_of_the_handler_tells_is_raised_when_the_block_is_left(tmp_path: Path) -> None:
    class Losing(Handler):
        def open(self, context: HandlerContext) -> None:
            assert context.stop_worker is not None
            context.stop_worker(StopWorker("the engine is gone"))

        def close(self) -> None:
            closed.append(self)

    closed: list[Handler] = []
    with pytest.raises(StopWorker, match="the engine is gone"), opened(Losing(), tmp_path):
        pass
    assert len(closed) == 1
