"""What every store promises."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from log_lab import change, names_in, rows

from handlers.spark.log.files import AlreadyThere, Files, FilesError
from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog

__all__ = ["FilesContract"]


class FilesContract:
    """Give it fixtures `files`, `root` (the store's place as it is addressed) and `folder` (the same as a
    path)."""

    sets_times = True

    def test_what_was_put_is_read_and_listed(self, files: Files, root: str, folder: Path) -> None:
        files.put(f"{root}/a/b/one.parquet", b"first")
        assert files.read(f"{root}/a/b/one.parquet") == b"first"
        (entry,) = files.list(f"{root}/a/b")
        assert (entry.name, entry.size, entry.is_folder) == ("one.parquet", 5, False)
        assert abs(entry.modified_ms / 1000 - (folder / "a/b/one.parquet").stat().st_mtime) < 2
        (above,) = files.list(f"{root}/a")
        assert (above.name, above.is_folder) == ("b", True)

    def test_nothing_is_put_twice(self, files: Files, root: str, folder: Path) -> None:
        files.put(f"{root}/one", b"first")
        with pytest.raises(AlreadyThere, match="one is there already"):
            files.put(f"{root}/one", b"second")
        assert files.read(f"{root}/one") == b"first"
        assert [name for name in names_in(folder) if not name.endswith(".crc")] == ["one"]

    def test_names_are_taken_as_they_are(self, files: Files, root: str, folder: Path) -> None:
        files.put(f"{root}/sh%20op/订单 1+2/one", b"x")
        assert (folder / "sh%20op/订单 1+2/one").read_bytes() == b"x"
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

    def test_a_retired_file_is_old_where_the_store_can_say_so(
        self, files: Files, root: str, folder: Path
    ) -> None:
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

    def test_a_folder_is_renamed_unless_the_target_is_there(
        self, files: Files, root: str, folder: Path
    ) -> None:
        files.put(f"{root}/shop/orders/part", b"x")
        files.rename(f"{root}/shop/orders", f"{root}/archive/old orders")
        assert files.read(f"{root}/archive/old orders/part") == b"x"
        assert not files.exists(f"{root}/shop/orders")
        (folder / "shop" / "orders").mkdir(parents=True)  # be it empty
        with pytest.raises(AlreadyThere):
            files.rename(f"{root}/archive/old orders", f"{root}/shop/orders")
        assert files.read(f"{root}/archive/old orders/part") == b"x"

    def test_a_file_in_a_folders_place_is_told(self, files: Files, root: str) -> None:
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
        assert again.schema == log.schema
