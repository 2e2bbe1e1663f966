"""The `files` handler when a disk is full, a process dies, or another one writes beside it."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from files_lab import batch, finished, offsets, opened, parts
from process_limits import limited, no_more_open_files

from handlers import Rejected, TargetUnavailable
from handlers.failures import UnfitPlace
from handlers.files import table_file
from handlers.testing import make_batch


@contextmanager
def disk_that_ends_at(size: int) -> Iterator[None]:
    """The kernel cuts off every write beyond this file size, and fails the next, as a full disk does."""
    with limited(resource.RLIMIT_FSIZE, size):
        yield


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_a_batch_that_failed_halfway_leaves_nothing_and_can_be_retried(tmp_path: Path, compress: str) -> None:
    with opened(tmp_path, compress=compress) as handler:
        handler.handle(batch(0, 2))
        (part,) = parts(tmp_path)
        size = part.stat().st_size
        with disk_that_ends_at(size + 50), pytest.raises(UnfitPlace, match="File too large"):
            handler.handle(batch(2, 50))
        assert part.stat().st_size == size
        handler.handle(batch(2, 50))
    assert offsets(*finished(tmp_path)) == list(range(52))


def test_a_first_batch_that_failed_leaves_no_file(tmp_path: Path) -> None:
    with (
        opened(tmp_path) as handler,
        disk_that_ends_at(50),
        pytest.raises(UnfitPlace, match="File too large"),
    ):
        handler.handle(batch(0, 5))
    assert finished(tmp_path) == parts(tmp_path) == []


def test_without_a_free_descriptor_the_batch_waits(tmp_path: Path) -> None:
    with opened(tmp_path) as handler:
        with no_more_open_files(), pytest.raises(TargetUnavailable, match="Too many open files"):
            handler.handle(batch(0, 2))
        handler.handle(batch(0, 2))
    assert offsets(*finished(tmp_path)) == [0, 1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_disk_that_is_full_or_out_of_order_makes_the_batch_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with opened(tmp_path) as handler:
        handler.handle(batch(0))
        # Only the kernel of a machine with such a disk says this by itself.
        monkeypatch.setattr(table_file.os, "fsync", fails)
        with pytest.raises(TargetUnavailable, match=os.strerror(number)):
            handler.handle(batch(1, 2))
        monkeypatch.undo()
        handler.handle(batch(1, 2))
    assert offsets(*finished(tmp_path)) == [0, 1, 2]


def test_what_is_in_the_way_of_a_table_makes_it_wait(tmp_path: Path) -> None:
    with opened(tmp_path) as handler:
        (tmp_path / "lake" / "shop").write_text("in the way")
        with pytest.raises(UnfitPlace, match="Not a directory") as caught:
            handler.handle(batch(0))
        assert caught.value.others_go_on


def test_a_value_without_a_form_is_rejected_with_its_place(tmp_path: Path) -> None:
    rows = make_batch("shop.orders", [{"id": 1}, {"id": object()}], topic="cdc", partition=3, offset=7)
    with opened(tmp_path) as handler:
        with pytest.raises(Rejected, match=r"shop\.orders, cdc\[3\] offset 8: .*type object") as caught:
            handler.handle(rows)
        assert caught.value.at == 1
    assert finished(tmp_path) == []


def test_a_file_that_somebody_took_away_gets_a_successor(tmp_path: Path) -> None:
    with opened(tmp_path) as handler:
        handler.handle(batch(0))
        for part in parts(tmp_path):
            part.unlink()
        handler.handle(batch(1))
    assert offsets(*finished(tmp_path)) == [1]


CRASH = """
    import os, sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from files_lab import Clock, batch, context, parts
    from handlers.files.handler import FilesHandler
    folder = Path({folder!r})
    handler = FilesHandler(directory="lake", compress={compress!r})
    handler.clock = Clock()
    handler.open(context(folder))
    handler.handle(batch(0, 3))
    handler.handle(batch(3, 3))
    (part,) = parts(folder)
    with part.open("r+b") as file:
        file.truncate(part.stat().st_size - {torn})
    os._exit(9)
"""


@pytest.mark.parametrize(
    ("compress", "torn", "left"), [("none", 7, 5), ("none", 0, 6), ("gzip", 7, 3), ("gzip", 0, 6)]
)
def test_what_a_crash_tore_is_cut_off_at_the_next_start(
    tmp_path: Path, compress: str, torn: int, left: int
) -> None:
    tests = str(Path(__file__).parent)
    script = textwrap.dedent(CRASH).format(tests=tests, folder=str(tmp_path), compress=compress, torn=torn)
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert len(parts(tmp_path)) == 1
    with opened(tmp_path, compress=compress) as handler:
        assert offsets(*finished(tmp_path)) == list(range(left))
        handler.handle(batch(left))
    assert offsets(*finished(tmp_path)) == list(range(left + 1))


def test_a_crash_before_the_first_batch_was_written_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lake/shop/orders"
    folder.mkdir(parents=True)
    (folder / ".20261121T120000.000000Z.jsonl.part").write_bytes(b'{"op":"ins')
    with opened(tmp_path):
        assert parts(tmp_path) == finished(tmp_path) == []


def test_two_workers_on_one_directory_leave_each_other_their_files(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        first.handle(batch(0))
        with opened(tmp_path) as second:
            second.handle(batch(100))
            first.handle(batch(1))
    assert sorted(map(offsets, finished(tmp_path))) == [[0, 1], [100]]


def test_files_that_appear_are_in_order_though_a_partition_comes_back(tmp_path: Path) -> None:
    """A loader takes each file when it appears. Names are in the same order."""
    found: list[Path] = []
    with opened(tmp_path) as first, opened(tmp_path) as second:
        for offset, worker in enumerate((first, second, first, second)):
            worker.handle(batch(offset))
            worker.release([("cdc.shop", 0)])
            found += sorted(set(finished(tmp_path)) - set(found))
    assert [offsets(path) for path in found] == [[0], [1], [2], [3]]
    assert found == sorted(found)
