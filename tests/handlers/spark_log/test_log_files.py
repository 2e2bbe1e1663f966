"""The worker's own file system holds what a store promises."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from files_contract import OneWinsContract
from log_lab import names_in

from handlers.spark.log.store_choice import files_for
from handlers.spark.log.stores.interface import Files, FilesError
from handlers.spark.log.stores.local import LocalFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


class TestPlainPaths(OneWinsContract):
    @pytest.fixture
    def files(self) -> Files:
        return LocalFiles()

    @pytest.fixture
    def root(self, folder: Path) -> str:
        return str(folder)


class TestFileURIs(OneWinsContract):
    @pytest.fixture
    def files(self) -> Files:
        return LocalFiles()

    @pytest.fixture(params=["file:", "file://", "file://localhost"])
    def root(self, folder: Path, request: pytest.FixtureRequest) -> str:
        return f"{request.param}{folder}"


class TestWithoutHardLinks(OneWinsContract):
    """As on CIFS, whose answer to link(2) this is."""

    @pytest.fixture
    def files(self, monkeypatch: pytest.MonkeyPatch) -> Files:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

        monkeypatch.setattr(os, "link", refuse)
        return LocalFiles()

    @pytest.fixture
    def root(self, folder: Path) -> str:
        return str(folder)


def test_a_put_is_durable_before_its_name_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[str]]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced = str(Path(f"/proc/self/fd/{descriptor}").readlink()).replace(str(tmp_path), "")
        names = [name for name in names_in(tmp_path / "log") if name == "one"]
        seen.append(("file" if synced.endswith(".tmp") else synced or "/", names))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    LocalFiles().put(f"{tmp_path}/log/one", b"x")
    # Its folder's own name, the file, then the file's name.
    assert seen == [("/", []), ("file", []), ("/log", ["one"])]


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    with files_no_larger_than(10_000), pytest.raises(FilesError) as told:
        LocalFiles().put(f"{tmp_path}/one", b"x" * 20_000)
    assert str(told.value).startswith(f"cannot write {tmp_path}/one: File too large; ")
    assert told.value.errno == errno.EFBIG
    assert names_in(tmp_path) == []


def test_a_place_that_cannot_be_written_is_told() -> None:
    with pytest.raises(FilesError, match=r"cannot write /sys/binlane/one: .+; (let the worker's|mount it)"):
        LocalFiles().put("/sys/binlane/one", b"x")


def test_another_hosts_file_is_refused() -> None:
    with pytest.raises(FilesError, match=r"another host \(nas\): write file:///lake/one"):
        LocalFiles().put("file://nas/lake/one", b"x")


def test_with_connect_a_folder_is_the_workers_own() -> None:
    spark: Any = SimpleNamespace(is_classic=False, session=None)
    assert isinstance(files_for("/lake", spark), LocalFiles)
    assert isinstance(files_for("file:///lake", spark), LocalFiles)


def test_a_checksum_of_hadoop_goes_with_its_file(folder: Path) -> None:
    for name in ("one", "two"):
        Path(folder, name).touch()
        Path(folder, f".{name}.crc").touch()
    LocalFiles().replace(f"{folder}/one", b"new")
    LocalFiles().delete(f"{folder}/two")
    assert names_in(folder) == ["one"]
    Path(folder, "x" * 255).touch()
    LocalFiles().delete(f"{folder}/{'x' * 255}")
    assert names_in(folder) == ["one"]


def test_a_link_is_removed_with_what_it_names(folder: Path) -> None:
    Path(folder, "there/inside").mkdir(parents=True)
    Path(folder, "link").symlink_to("there")
    LocalFiles().delete_tree(f"{folder}/link")
    assert names_in(folder) == []


def test_a_link_is_moved_only_if_it_names_the_same_from_there(folder: Path) -> None:
    Path(folder, "there").mkdir()
    Path(folder, "whole").symlink_to(folder / "there")
    Path(folder, "short").symlink_to("there")
    LocalFiles().rename(f"{folder}/whole", f"{folder}/to/whole")
    assert Path(folder, "to/whole").is_dir()
    with pytest.raises(FilesError, match=rf"cannot move {folder}/short to .*/short: .* relative link"):
        LocalFiles().rename(f"{folder}/short", f"{folder}/to/short")
    assert Path(folder, "short").is_dir()
