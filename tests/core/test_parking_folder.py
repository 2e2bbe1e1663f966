"""The folder of parked records: other users who may write there, and a disk with little room."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from building import record

from offsets.types import TopicPartition
from worker.units.parked import ParkedRecords
from worker.units.parking_files import ParkingLot

PLACE = TopicPartition("cdc", 0)


@pytest.fixture
def lot(tmp_path: Path) -> Iterator[ParkingLot]:
    lot = ParkingLot(tmp_path / "state")
    yield lot
    lot.close()


def test_a_link_that_waits_for_the_first_record_is_not_followed(lot: ParkingLot, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody")
    lot.folder.mkdir()
    (lot.folder / "parked-1.1").symlink_to(other)
    parked = ParkedRecords.write(lot, "t", PLACE, [record(7)])
    assert other.read_text() == "of somebody"
    assert [each.offset() for each in parked] == [7]


def test_what_another_user_put_there_is_not_read(lot: ParkingLot, monkeypatch: pytest.MonkeyPatch) -> None:
    parked = ParkedRecords.write(lot, "t", PLACE, [record(0)])
    own = (lot.folder / "parked-1.1").stat()
    of_another = SimpleNamespace(st_dev=own.st_dev, st_ino=own.st_ino, st_uid=own.st_uid + 1)
    with monkeypatch.context() as patches:
        patches.setattr(os, "fstat", lambda _: of_another)
        with pytest.raises(PermissionError, match="somebody has replaced it"):
            list(parked)


def test_what_the_same_user_put_there_is_not_read(lot: ParkingLot) -> None:
    parked = ParkedRecords.write(lot, "t", PLACE, [record(0)])
    path = lot.folder / "parked-1.1"
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").replace(path)
    with pytest.raises(PermissionError, match="somebody has replaced it"):
        list(parked)


def test_after_a_deleted_file_records_are_written_to_another(lot: ParkingLot) -> None:
    first = ParkedRecords.write(lot, "t", PLACE, [record(0)])
    (lot.folder / "parked-1.1").unlink()
    with pytest.raises(FileNotFoundError):
        ParkedRecords.write(lot, "t", PLACE, [record(1)])
    second = ParkedRecords.write(lot, "t", PLACE, [record(1)])
    assert [each.offset() for each in second] == [1]
    with pytest.raises(FileNotFoundError):
        list(first)


def test_after_a_replaced_file_records_are_written_to_another(lot: ParkingLot, tmp_path: Path) -> None:
    first = ParkedRecords.write(lot, "t", PLACE, [record(0)])
    (lot.folder / "parked-1.1").unlink()
    (lot.folder / "parked-1.1").symlink_to(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        ParkedRecords.write(lot, "t", PLACE, [record(1)])
    second = ParkedRecords.write(lot, "t", PLACE, [record(1)])
    assert [each.offset() for each in second] == [1]
    with pytest.raises(OSError, match="symbolic links"):
        list(first)


def test_a_lock_that_cannot_be_opened_keeps_no_other_files(lot: ParkingLot) -> None:
    lot.folder.mkdir()
    for number in range(8):
        (lot.folder / f"parked-{number}.lock").symlink_to("nowhere")
    for number in range(8, 16):
        (lot.folder / f"parked-{number}.lock").touch()
        (lot.folder / f"parked-{number}.1").touch()
    lot.clear()
    assert {each.name for each in lot.folder.iterdir()} == {f"parked-{number}.lock" for number in range(8)}


@pytest.mark.parametrize("end", ["close", "clear"])
def test_no_other_worker_gets_the_names_of_files_that_are_being_deleted(
    lot: ParkingLot, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    for owner in range(50):
        ParkedRecords.write(lot, owner, PLACE, [record(0)])
    deleted: list[str] = []
    if end == "clear":
        os.close(lot._held or 0)  # as the system does if it is killed
        lot._held, lot = None, ParkingLot(lot.folder)
    delete = Path.unlink
    with monkeypatch.context() as patches:
        patches.setattr(Path, "unlink", lambda path: (deleted.append(path.name), delete(path)))
        getattr(lot, end)()
    assert len(deleted) > 1
    assert deleted.index("parked-1.lock") == len(deleted) - 1


def test_the_last_of_the_disk_is_left_to_the_checkpoint(
    lot: ParkingLot, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = SimpleNamespace(f_blocks=1 << 20, f_bavail=16 << 10, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _: little)
    with pytest.raises(OSError, match="less than 64 MiB of the disk would remain free") as raised:
        ParkedRecords.write(lot, "t", PLACE, [record(0)])
    assert raised.value.errno == errno.ENOSPC
    assert lot.bytes == 0
