"""What every store promises, and what those promise that several workers may write to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from log_lab import after_of, change, place_of, places_of, rows, take

from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import AlreadyThere, Files, FilesError

__all__ = ["FilesContract", "OneWinsContract"]


class FilesContract:
    """Give it fixtures `files`, `root` (the store's place as it is addressed) and `folder` (the same as a
    path); or, where there is no such path, `seen`."""

    sets_times = True
    has_folders = True

    @pytest.fixture
    def seen(self, folder: Path) -> Callable[[str], bytes]:
        """A file below the root, past what is tested."""
        return lambda name: (folder / name).read_bytes()

    def test_what_was_put_is_read_and_listed(self, files: Files, root: str) -> None:
        files.put(f"{root}/a/b/one.parquet", b"first")
        assert files.read(f"{root}/a/b/one.parquet") == b"first"
        (entry,) = files.list(f"{root}/a/b")
        assert (entry.name, entry.size, entry.is_folder) == ("one.parquet", 5, False)
        assert abs(entry.modified_ms / 1000 - time.time()) < 60
        (above,) = files.list(f"{root}/a")
        assert (above.name, above.is_folder) == ("b", True)

    def test_nothing_is_put_twice(self, files: Files, root: str) -> None:
        files.put(f"{root}/one", b"first")
        with pytest.raises(AlreadyThere, match="one already exists"):
            files.put(f"{root}/one", b"second")
        assert files.read(f"{root}/one") == b"first"
        assert [entry.name for entry in files.list(root) if not entry.name.endswith(".crc")] == ["one"]

    def test_a_file_may_be_replaced(self, files: Files, root: str) -> None:
        files.put(f"{root}/log/other", b"x")
        for content in (b"a longer first one", b"second", b""):
            files.replace(f"{root}/log/last", content)
            assert files.read(f"{root}/log/last") == content
        names = [entry.name for entry in files.list(f"{root}/log")]
        assert sorted(name for name in names if not name.endswith(".crc")) == ["last", "other"]

    def test_a_listing_has_all_that_was_put_and_nothing_that_was_removed(
        self, files: Files, root: str
    ) -> None:
        for number in range(8):
            files.put(f"{root}/log/{number}", b"x")
            if number % 2:
                files.delete(f"{root}/log/{number - 1}")
            names = sorted(entry.name for entry in files.list(f"{root}/log"))
            odd = [str(each) for each in range(1, number + 1, 2)]
            assert names == (odd if number % 2 else [*odd, str(number)])

    def test_a_listing_may_begin_after_a_name(self, files: Files, root: str) -> None:
        for name in ("3", "_last", "20/4", "10.json", "2", "11", "10"):
            files.put(f"{root}/log/{name}", b"12")
        found = [entry for entry in files.list_after(f"{root}/log", "10") if not entry.is_folder]
        assert [(entry.name, entry.size) for entry in found] == [
            *(("10.json", 2), ("11", 2), ("2", 2), ("3", 2), ("_last", 2))
        ]
        assert all(abs(entry.modified_ms / 1000 - time.time()) < 60 for entry in found)
        assert [*files.list_after(f"{root}/log", "a")] == [*files.list_after(f"{root}/none", "")] == []

    def test_names_are_taken_as_they_are(self, files: Files, root: str, seen: Callable[[str], bytes]) -> None:
        files.put(f"{root}/sh%20op/订单 1+2/one", b"x")
        assert seen("sh%20op/订单 1+2/one") == b"x"
        assert [entry.name for entry in files.list(f"{root}/sh%20op")] == ["订单 1+2"]

    def test_what_is_not_there_is_told_or_passed_over(self, files: Files, root: str) -> None:
        assert files.list(f"{root}/none") == []
        assert not files.exists(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            files.read(f"{root}/none")
        with pytest.raises(FileNotFoundError), files.open(f"{root}/none"):
            pass
        with pytest.raises(FileNotFoundError):
            files.rename(f"{root}/none", f"{root}/other")
        files.delete(f"{root}/none")
        files.delete_tree(f"{root}/none")

    def test_a_retired_file_is_old_where_the_store_can_say_so(self, files: Files, root: str) -> None:
        files.put(f"{root}/a/one", b"x")
        before = files.list(f"{root}/a")
        files.retire(f"{root}/a/one")
        files.retire(f"{root}/a/none")
        assert files.read(f"{root}/a/one") == b"x"
        found = [entry.modified_ms for entry in files.list(f"{root}/a")]
        assert found == ([0] if self.sets_times else [entry.modified_ms for entry in before])

    def test_files_and_folders_are_removed(self, files: Files, root: str) -> None:
        for name in ("a/one", "a/two", "a/b/three"):
            files.put(f"{root}/{name}", b"x")
        files.delete(f"{root}/a/one")
        assert sorted(entry.name for entry in files.list(f"{root}/a")) == ["b", "two"]
        files.delete_tree(f"{root}/a")
        assert not files.exists(f"{root}/a")

    def test_a_folder_is_renamed_unless_the_target_is_there(self, files: Files, root: str) -> None:
        files.put(f"{root}/shop/orders/part", b"x")
        files.rename(f"{root}/shop/orders", f"{root}/archive/old orders")
        assert files.read(f"{root}/archive/old orders/part") == b"x"
        assert not files.exists(f"{root}/shop/orders")
        files.put(f"{root}/shop/orders/part", b"y")
        if self.has_folders:
            files.delete(f"{root}/shop/orders/part")  # be it empty
        with pytest.raises(AlreadyThere):
            files.rename(f"{root}/archive/old orders", f"{root}/shop/orders")
        assert files.read(f"{root}/archive/old orders/part") == b"x"

    def test_a_file_in_a_folders_place_is_told(self, files: Files, root: str) -> None:
        if not self.has_folders:
            return  # there is no such place
        files.put(f"{root}/lake", b"")
        with pytest.raises(FilesError, match=r"cannot write .*/lake/orders/1\.parquet: "):
            files.put(f"{root}/lake/orders/1.parquet", b"x")

    def test_a_footer_is_read_by_itself(self, files: Files, root: str) -> None:
        log = SegmentLog(files, f"{root}/pending")
        segment = log.append(rows([change(offset) for offset in range(500)]), Marks(), key=["id"])
        with files.open(segment.path) as file:
            assert pq.read_metadata(file).num_rows == 500
        again = SegmentLog(files, f"{root}/pending")
        again.load()
        assert again.segments == [segment]
        assert after_of(again) == after_of(log)


class OneWinsContract(FilesContract):
    """What only a store promises that puts atomically; Hadoop's driver of `file:` looks and renames then."""

    def test_of_threads_that_put_one_path_at_once_exactly_one_does(self, files: Files, root: str) -> None:
        for turn in range(5):
            path = f"{root}/{turn}/one"
            won: list[bytes] = []
            start = threading.Barrier(8)

            def put(data: bytes, path: str = path, won: list[bytes] = won, start: Any = start) -> None:
                start.wait()
                with suppress(AlreadyThere):
                    files.put(path, data)
                    won.append(data)

            threads = [threading.Thread(target=put, args=(b"%d" % number * 1000,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert won == [files.read(path)]
            names = [entry.name for entry in files.list(f"{root}/{turn}")]
            assert [name for name in names if not name.endswith(".crc")] == ["one"]

    def test_of_workers_that_write_one_log_at_once_each_change_is_there_once(
        self, files: Files, root: str
    ) -> None:
        changes = [change(offset) for offset in range(12)]
        start = threading.Barrier(3)

        def work() -> None:
            log = SegmentLog(files, f"{root}/pending")
            start.wait()
            for count in range(4, len(changes) + 1, 4):
                take(log, changes[:count])

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        log = SegmentLog(files, f"{root}/pending")
        log.load()
        assert places_of(files, log) == [place_of(one) for one in changes]
