"""The checkpoint file: many writers, full disks, sudden ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_stores import AHEAD, SHOP, STOCK, reopened
from memory_store import loaded

from offsets.stores.file import FileStore
from offsets.stores.file_format import FileEntry
from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition


def test_nothing_is_made_before_the_first_save(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "state", "replica")
    assert loaded(store, [SHOP]) == {}
    assert not (tmp_path / "state").exists()
    store.save({SHOP: Checkpoint(1)})
    assert loaded(reopened(store), [SHOP]) == {SHOP: Checkpoint(1)}


def test_no_group_erases_another(tmp_path: Path) -> None:
    one, other = FileStore(tmp_path, "one"), FileStore(tmp_path, "other")
    one.save({SHOP: Checkpoint(10, AHEAD)})
    other.save({SHOP: Checkpoint(99), STOCK: Checkpoint(5)})
    one.save({STOCK: Checkpoint(7)})
    assert loaded(FileStore(tmp_path, "one"), [SHOP, STOCK]) == {
        SHOP: Checkpoint(10, AHEAD),
        STOCK: Checkpoint(7),
    }
    assert loaded(FileStore(tmp_path, "other"), [SHOP, STOCK]) == {SHOP: Checkpoint(99), STOCK: Checkpoint(5)}


def test_two_stores_of_one_group_see_each_others_writes(tmp_path: Path) -> None:
    one, other = FileStore(tmp_path, "replica"), FileStore(tmp_path, "replica")
    one.save({SHOP: Checkpoint(1)})
    other.save({STOCK: Checkpoint(2)})
    one.save({STOCK: Checkpoint(2)}, {STOCK: Mark(2, 7)})
    assert other.load_entries([SHOP, STOCK]) == {SHOP: FileEntry(1), STOCK: FileEntry(2, (), Mark(2, 7))}


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    def write(group: str) -> None:
        store = FileStore(tmp_path, group, lock_wait=60)
        for offset in range(1, 26):
            store.save({SHOP: Checkpoint(offset)})
            store.save({SHOP: Checkpoint(offset)}, {SHOP: Mark(offset, 1)})

    groups = ["a", "b", "c", "d"]
    threads = [threading.Thread(target=write, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups:
        assert FileStore(tmp_path, group).load_entries([SHOP]) == {SHOP: FileEntry(25, (), Mark(25, 1))}


def test_a_writer_replaces_what_another_knew_of_kafka(store: FileStore) -> None:
    """A worker that has lost a partition may still write: with its own checkpoint goes its own mark."""
    other = reopened(store)
    store.save({SHOP: Checkpoint(10, AHEAD)}, {SHOP: Mark(10, 1)})
    other.save({SHOP: Checkpoint(10)}, {SHOP: Mark(10, 2)})
    store.save({SHOP: Checkpoint(10, AHEAD)}, {SHOP: Mark(10, 1)})
    assert other.load_entries([SHOP]) == {SHOP: FileEntry(10, AHEAD, Mark(10, 1))}
    other.save({SHOP: Checkpoint(12)})
    assert store.load_entries([SHOP]) == {SHOP: FileEntry(12)}


def test_the_topics_id_and_what_the_group_began_with_are_kept(store: FileStore) -> None:
    saved = {SHOP: Checkpoint(10, AHEAD, "the-id", 3), STOCK: Checkpoint(4)}
    store.save(saved)
    assert loaded(reopened(store), saved) == saved


def test_a_save_that_says_nothing_new_writes_nothing(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(10)}, {SHOP: Mark(10, 1)})
    before = store.path.stat().st_ino
    store.save({SHOP: Checkpoint(10)}, {SHOP: Mark(10, 1)})
    assert store.path.stat().st_ino == before


def test_the_file_before_is_kept(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(1)})
    first = store.path.read_bytes()
    store.save({SHOP: Checkpoint(2)})
    assert store.previous.read_bytes() == first


def test_a_folder_without_hard_links_still_keeps_the_file_before(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")  # what exFAT and SMB answer

    monkeypatch.setattr(os, "link", refuse)
    store.save({SHOP: Checkpoint(1)})
    first = store.path.read_bytes()
    store.save({SHOP: Checkpoint(2)})
    assert store.previous.read_bytes() == first
    assert loaded(reopened(store), [SHOP]) == {SHOP: Checkpoint(2)}


def test_a_full_disk_is_told_and_leaves_the_old_file(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(1)})
    store.path.with_name("checkpoint.json.temporary").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: No space left on device; make room"):
        store.save({SHOP: Checkpoint(2)})
    assert loaded(reopened(store), [SHOP]) == {SHOP: Checkpoint(1)}
    store.save({SHOP: Checkpoint(3)})
    assert loaded(reopened(store), [SHOP]) == {SHOP: Checkpoint(3)}


@pytest.fixture
def others_folder() -> Iterator[Path]:
    """A folder that this process may not write; read it may."""
    folder = Path(tempfile.mkdtemp())
    FileStore(folder, "replica").save({SHOP: Checkpoint(1)})
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    root = os.geteuid() == 0  # root may write everywhere
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_may_not_be_written_is_told_and_still_read(others_folder: Path) -> None:
    store = FileStore(others_folder, "replica")
    with pytest.raises(CheckpointError, match=r"Permission denied; .* checkpoint\.directory"):
        store.save({SHOP: Checkpoint(2)})
    assert loaded(store, [SHOP]) == {SHOP: Checkpoint(1)}


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    store = FileStore(tmp_path / "state", "replica")
    with pytest.raises(CheckpointError, match="state"):
        store.save({SHOP: Checkpoint(2)})
    with pytest.raises(CheckpointError, match=r"Not a directory; set checkpoint\.directory to a folder"):
        loaded(store, [SHOP])


def test_a_writer_that_never_ends_is_told(tmp_path: Path) -> None:
    store = FileStore(tmp_path, "replica", lock_wait=0.02)
    store.save({SHOP: Checkpoint(1)})
    with (tmp_path / "checkpoint.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="locked by another process"):
            store.save({SHOP: Checkpoint(2)})
        assert loaded(store, [SHOP]) == {SHOP: Checkpoint(1)}
    store.save({SHOP: Checkpoint(2)})


WRITE_FOR_EVER = """
import sys
from pathlib import Path
from offsets.stores.file import FileStore
from offsets.types import Checkpoint, OffsetRange, TopicPartition
store = FileStore(Path(sys.argv[1]), "replica")
offset = int(sys.argv[2])
while True:
    offset += 1
    ahead = tuple(OffsetRange(offset + 2 * n, offset + 2 * n + 1) for n in range(1, 2000))
    store.save({TopicPartition("t", number): Checkpoint(offset, ahead) for number in range(10)})
    print(offset, flush=True)
"""


def test_a_killed_writer_leaves_one_whole_save(tmp_path: Path) -> None:
    partitions = [TopicPartition("t", number) for number in range(10)]
    told = 0
    for delay in (0.0, 0.004, 0.011, 0.017, 0.023):
        command = [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path), str(told)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay)  # somewhere within a later save
            writer.send_signal(signal.SIGKILL)
            told = int(["0", *writer.stdout.read().split()][-1]) or told
        store = FileStore(tmp_path, "replica")
        found = loaded(store, partitions)
        assert len(found) == len(partitions)
        assert len(set(found.values())) == 1
        assert found[partitions[0]].offset >= told
        assert store.warnings == ()


def test_a_hundred_partitions_with_a_thousand_ranges_are_saved_in_little_time(store: FileStore) -> None:
    def checkpoint(offset: int) -> Checkpoint:
        return Checkpoint(
            offset, tuple(OffsetRange(offset + 3 * n, offset + 3 * n + 2) for n in range(1, 1001))
        )

    checkpoints = {TopicPartition("t", number): checkpoint(10**9 + number) for number in range(100)}
    took = []
    for _ in range(3):
        begun = time.process_time()
        store.save(checkpoints)
        took.append(time.process_time() - begun)
    assert min(took) < 0.05
    assert loaded(reopened(store), checkpoints) == checkpoints
