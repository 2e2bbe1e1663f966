"""The `files` handler: what is on disk when, and under which name."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pytest
from files_lab import Clock, batch, change, context, finished, offsets, opened, parts
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from handlers import Batch
from handlers.files import handler as files_module
from handlers.files.handler import FilesHandler
from handlers.files.table_file import safe_name
from handlers.options.faults import check_options


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ---- what is written


def test_a_change_is_one_line_with_its_place_and_both_rows(tmp_path: Path) -> None:
    with opened(tmp_path) as handler:
        changes = [change(5, op="update", before={"id": 4}, after={"id": 5}, index=2, transaction="t:1")]
        handler.handle(Batch("shop.orders", changes, database="shop", name="orders"))
    (path,) = finished(tmp_path)
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {
        "op": "update",
        "database": "shop",
        "table": "orders",
        "key": {"id": 5},
        "before": {"id": 4},
        "after": {"id": 5},
        "sql": None,
        "source_time_ms": 1763000000000,
        "transaction": "t:1",
        "topic": "cdc.shop",
        "partition": 0,
        "offset": 5,
        "index": 2,
    }


def test_a_batch_is_on_disk_when_handle_returns(tmp_path: Path) -> None:
    with opened(tmp_path) as handler:
        handler.handle(batch(0, 3))
        assert offsets(*parts(tmp_path)) == [0, 1, 2]
        handler.handle(batch(3, 2))
        assert offsets(*parts(tmp_path)) == [0, 1, 2, 3, 4]


def test_a_file_has_its_visible_name_only_when_it_is_finished(tmp_path: Path) -> None:
    with opened(tmp_path) as handler:
        handler.handle(batch(0))
        assert finished(tmp_path) == []
        assert [path.name for path in parts(tmp_path)] == [".20261121T120000.000000Z.jsonl.part"]
    assert [path.name for path in finished(tmp_path)] == ["20261121T120000.000000Z.jsonl"]
    assert parts(tmp_path) == []


def test_each_table_has_a_folder_of_its_own(tmp_path: Path) -> None:
    names = ["orders", "Orders", "order.items", "a/b", "..", "_tmp", "订单", "x%2Fy", "n=1"]
    with opened(tmp_path) as handler:
        for offset, name in enumerate(names):
            handler.handle(batch(offset, name=name))
    paths = finished(tmp_path)
    assert {unquote(path.parent.name): offsets(path) for path in paths} == {
        name: [offset] for offset, name in enumerate(names)
    }


@given(st.text(min_size=1, max_size=64))
def test_a_table_name_comes_back_from_its_folder_name(name: str) -> None:
    folder = safe_name(name)
    assert unquote(folder) == name
    assert not re.search(r"[\x00-\x1f/\\:*?\[\]{}=]|^[._]", folder)


def test_gzip_files_hold_the_same_lines(tmp_path: Path) -> None:
    with opened(tmp_path, compress="gzip") as handler:
        handler.handle(batch(0, 100))
        handler.handle(batch(100, 100))
    (path,) = finished(tmp_path)
    assert path.name.endswith(".jsonl.gz")
    assert offsets(path) == list(range(200))


# ---- rotation


def test_a_file_that_reached_its_size_is_finished(tmp_path: Path) -> None:
    with opened(tmp_path, rotate_bytes="1KiB") as handler:
        for first in range(0, 40, 4):
            handler.handle(batch(first, 4))
        sizes = [path.stat().st_size for path in finished(tmp_path)]
        assert len(sizes) >= 5
        assert min(sizes) >= 1024
    assert offsets(*finished(tmp_path)) == list(range(40))


def test_a_file_is_finished_at_its_age_though_its_table_is_idle(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, rotate_every="10m") as handler:
        handler.handle(batch(0, name="old"))
        clock.now += 300
        handler.handle(batch(1, name="young"))
        clock.now += 300
        handler.rotate_old()
        assert [path.parent.name for path in finished(tmp_path)] == ["old"]
        assert [path.parent.name for path in parts(tmp_path)] == ["young"]


def test_idle_files_are_finished_without_being_asked(tmp_path: Path) -> None:
    handler = FilesHandler(directory="lake", rotate_every="20ms")
    handler.open(context(tmp_path))
    handler.handle(batch(0))
    deadline = time.monotonic() + 30
    while not finished(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert offsets(*finished(tmp_path)) == [0]
    handler.close()


def test_names_go_up_though_the_clock_stands_still(tmp_path: Path) -> None:
    with opened(tmp_path, rotate_bytes="1B") as handler:
        for offset in range(5):
            handler.handle(batch(offset))
    assert len(finished(tmp_path)) == 5
    assert offsets(*finished(tmp_path)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "left", [pytest.param("there", id="files stay"), pytest.param("taken", id="a loader took them")]
)
def test_names_go_up_though_the_clock_is_set_back(tmp_path: Path, left: str) -> None:
    """By a minute while a worker runs, then by another before the next one starts."""
    clock = Clock()
    names = []
    with opened(tmp_path, clock, rotate_bytes="1B") as handler:
        for offset in range(3):
            handler.handle(batch(offset))
            clock.now -= 60
            names.append(max(path.name for path in finished(tmp_path)))
            if left == "taken":
                for path in finished(tmp_path):
                    path.unlink()
    assert names == sorted(set(names))
    if left == "there":
        with opened(tmp_path, clock, rotate_bytes="1B", compress="gzip") as handler:
            handler.handle(batch(3))
        assert offsets(*finished(tmp_path)) == [0, 1, 2, 3]


def test_more_tables_than_open_files_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_MAX_OPEN", 3)
    before = open_descriptors()
    with opened(tmp_path) as handler:
        for turn in range(3):
            for table in range(20):
                handler.handle(batch(turn, name=f"t{table}"))
                assert open_descriptors() <= before + 3
    assert len(finished(tmp_path)) == 20
    assert all(offsets(path) == [0, 1, 2] for path in finished(tmp_path))
    assert open_descriptors() == before


def test_many_threads_write_their_tables_side_by_side(tmp_path: Path) -> None:
    def work(handler: FilesHandler, table: int) -> None:
        for first in range(0, 60, 3):
            handler.handle(batch(first, 3, name=f"t{table}"))

    with opened(tmp_path, rotate_bytes="2KiB") as handler, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda table: work(handler, table), range(8)))
        handler.rotate_old()
    for table in range(8):
        paths = [path for path in finished(tmp_path) if path.parent.name == f"t{table}"]
        assert offsets(*paths) == list(range(60))


# ---- options and check


def test_sizes_and_durations_have_units() -> None:
    options = {"directory": "lake", "rotate_bytes": "64 MB", "rotate_every": "ten minutes"}
    faults = {fault.path: fault for fault in check_options(FilesHandler, options)}
    assert faults[("rotate_bytes",)].nearest == "64MiB"
    assert ("rotate_every",) in faults
    with pytest.raises(ValidationError):
        FilesHandler(**options)


def test_the_directory_is_required_and_unknown_keys_are_faults() -> None:
    faults = {fault.path: fault.problem for fault in check_options(FilesHandler, {"compression": "gzip"})}
    assert faults == {("directory",): "missing", ("compression",): "unknown key"}


def test_check_finds_a_directory_that_could_be_made_and_leaves_nothing(tmp_path: Path) -> None:
    FilesHandler(directory="lake/deep").check(context(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_check_refuses_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(OSError, match="lake"):
        FilesHandler(directory="lake").check(context(tmp_path))
