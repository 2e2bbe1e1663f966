"""The map of finished offsets: when it counts, and what becomes of it where it cannot be written."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from map_kills import ROWS, Worker, left_by
from structlog.testing import capture_logs

from offsets.finished import FinishedMap, Window, layout, reading, remove_unnamed
from offsets.finished import map as map_module
from offsets.stores.file import FileStore
from offsets.types import Mark, OffsetRange

PAGE = 4096


def busy(folder: Path, every: int = 2) -> Worker:
    """Its checkpoint says 10 of the first partition; finished since, over several pages: one of so many."""
    worker = Worker(folder, segment_bytes=2 * PAGE)
    worker.poll(0, range(10))
    worker.runs[0][0][0].finish(range(10))
    worker.checkpoint()
    for begin in range(10, 20_010, 2_000):
        worker.poll(0, range(begin, begin + 2_000))
        worker.runs[0][-1][0].finish(range(begin, begin + 2_000, every))
    worker.poll(0, range(30_000, 40_000, 50))
    worker.runs[0][-1][0].finish(range(30_000, 40_000, 100))
    return worker


def dead(folder: Path) -> Path:
    """As the next process finds it: in this one the worker's lock is still held."""
    copy = folder.with_name("dead")
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(folder, copy)


def names(folder: Path) -> list[str]:
    """Those of the windows that its checkpoints count on."""
    entries = FileStore(folder, "replica").entries().values()
    return [entry.window for entry in entries if entry.window]


def known(folder: Path) -> tuple[list[OffsetRange], list[str]]:
    """What is finished of the first partition, and why the map was not used."""
    with capture_logs() as logs:
        found = left_by(folder)[ROWS[0]]
    logs = [each for each in logs if each["log_level"] != "debug"]
    assert all(each["event"] == "finished_map_not_used" for each in logs), logs
    return found, [each["reason"] for each in logs]


def test_what_is_finished_is_known_without_a_checkpoint(tmp_path: Path) -> None:
    busy(tmp_path / "state")
    found, told = known(dead(tmp_path / "state"))
    assert told == []
    assert found[0] == (-1, 11)  # 10, too
    assert found[1] == (12, 13)
    assert found[9_999] == (20_008, 20_009)
    assert found[10_000] == (20_010, 30_050)  # what never came, too
    assert found[-1] == (39_851, 39_950)


@pytest.mark.parametrize("how", ["zeroed", "cut", "changed"])
def test_a_map_that_is_torn_at_any_page_is_not_used_at_all_and_that_is_told(tmp_path: Path, how: str) -> None:
    """A part of it would call later changes finished, and earlier ones not."""
    busy(tmp_path / "state")
    whole = known(dead(tmp_path / "state"))[0]
    files = sorted(path.name for path in (tmp_path / "state").glob("finished-*"))
    assert len(files) > 1
    tried = 0
    for name in files:
        data = (tmp_path / "state" / name).read_bytes()
        used = int.from_bytes(data[layout.USED_WORD * 8 : layout.USED_WORD * 8 + 8], "little")
        for begin in range(0, len(data), PAGE):
            folder = dead(tmp_path / "state")
            if how == "cut":
                torn = data[:begin]
            elif how == "zeroed":
                torn = data[:begin] + bytes(PAGE) + data[begin + PAGE :]
            else:
                torn = (
                    data[:begin] + bytes(b ^ 0x5A for b in data[begin : begin + PAGE]) + data[begin + PAGE :]
                )
            (folder / name).write_bytes(torn)
            found, told = known(folder)
            if how != "cut" and begin >= used:  # nothing was written there
                assert (found, told) == (whole, [])
                continue
            tried += 1
            assert found == [OffsetRange(-1, 10)], "the checkpoint alone"
            assert len(told) == 1
    assert tried > 4


def test_a_run_of_several_pages_that_has_lost_one_is_told(tmp_path: Path) -> None:
    """There is nothing in that page but flags."""
    worker = Worker(tmp_path / "state", segment_bytes=8 * PAGE)
    worker.poll(0, range(6 * PAGE))
    worker.runs[0][0][0].finish(range(0, 6 * PAGE, 2))
    folder = dead(tmp_path / "state")
    [path] = folder.glob("finished-*")
    data = path.read_bytes()
    path.write_bytes(data[: 2 * PAGE] + bytes(PAGE) + data[3 * PAGE :])
    found, [told] = known(folder)
    assert found == [OffsetRange(-1, 0)]
    assert told.startswith("a flag means neither")


def test_a_byte_that_is_not_what_was_written_is_told_or_means_nothing(tmp_path: Path) -> None:
    busy(tmp_path / "state", every=40)
    folder = dead(tmp_path / "state")
    whole = known(folder)[0]
    path = min(folder.glob("finished-*"))
    data = path.read_bytes()
    told = 0
    for place in (*range(400), *range(400, len(data), 31)):
        path.write_bytes(data[:place] + bytes((data[place] ^ 0x5A,)) + data[place + 1 :])
        found, reasons = known(folder)
        assert found == ([OffsetRange(-1, 10)] if reasons else whole), place
        told += len(reasons)
    assert told > 200


def test_a_file_has_all_its_blocks_from_the_beginning(tmp_path: Path) -> None:
    """A page that found no room when it is written would end the process."""
    busy(tmp_path / "state")
    for path in (tmp_path / "state").glob("finished-*"):
        assert path.stat().st_blocks * 512 >= path.stat().st_size


@pytest.mark.parametrize("which", [0, -1])
def test_a_map_of_which_a_file_is_gone_is_not_used(tmp_path: Path, which: int) -> None:
    busy(tmp_path / "state")
    folder = dead(tmp_path / "state")
    files = sorted(folder.glob("finished-*"))
    assert len(files) > 2
    files[which if which == 0 else 1].unlink()
    assert known(folder) == ([OffsetRange(-1, 10)], ["some of its files are gone"])


def test_a_map_of_another_boot_is_not_used_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may have some pages of it and not others."""
    busy(tmp_path / "state")
    monkeypatch.setattr(reading, "boot_id", lambda: bytes(16))
    found, told = known(dead(tmp_path / "state"))
    assert found == [OffsetRange(-1, 10)]
    assert told == ["the machine was rebooted since, or is another one"]


def test_a_map_whose_worker_lives_is_not_used(tmp_path: Path) -> None:
    busy(tmp_path / "state")
    assert known(tmp_path / "state") == ([OffsetRange(-1, 10)], [])
    with capture_logs() as logs:
        remove_unnamed(tmp_path / "state", "replica", [])
    assert (list((tmp_path / "state").glob("finished-*")), logs) != ([], [])


def test_an_earlier_checkpoint_file_that_comes_back_does_not_count_on_what_has_been_removed_since(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "state", segment_bytes=PAGE)
    worker.poll(0, range(3_000))
    worker.runs[0][0][0].finish(range(3_000))
    earlier = (tmp_path / "state" / "checkpoint.json").read_bytes()
    for begin in (3_000, 6_000, 9_000):
        worker.poll(0, range(begin, begin + 3_000))
        worker.runs[0][-1][0].finish(range(begin + 1, begin + 3_000))
    worker.checkpoint()
    worker.checkpoint()
    folder = dead(tmp_path / "state")
    assert known(folder)[0][0] == (-1, 3_000)
    (folder / "checkpoint.json").write_bytes(earlier)
    assert known(folder) == ([OffsetRange(-1, 0)], ["some of its files are gone"])


def test_the_previous_copy_of_a_damaged_checkpoint_file_does_not_count_on_the_map(tmp_path: Path) -> None:
    busy(tmp_path / "state")
    folder = dead(tmp_path / "state")
    (folder / "checkpoint.json").write_bytes(b"torn")
    entries = FileStore(folder, "replica").load_entries(ROWS)
    assert [entry.window for entry in entries.values()] == [None, None]


def test_a_window_that_was_ended_counts_no_more_and_its_checkpoint_does(tmp_path: Path) -> None:
    worker = busy(tmp_path / "state")
    worker.trackers[0].end()
    worker.runs[0][-1][0].finish([30_050])  # a handler that is late
    assert known(dead(tmp_path / "state")) == ([OffsetRange(-1, 10)], [])


def test_the_commits_that_were_sent_are_known_whether_or_not_a_file_is_begun_meanwhile(
    tmp_path: Path,
) -> None:
    worker = busy(tmp_path / "state")
    marks = [Mark(number, 1_000 + number) for number in range(1, 7)]
    for mark in marks[:5]:
        worker.trackers[0].sending(mark)
    worker.trackers[0].sending(Mark(10, 0))  # without metadata: like anybody's
    worker.checkpoint()
    worker.trackers[0].sending(marks[5])
    folder = dead(tmp_path / "state")
    name = FileStore(folder, "replica").load_entries(ROWS)[ROWS[0]].window
    assert name is not None
    found = reading.read(folder, [name])[name].marks
    assert found == set(marks[2:])


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """This process gets no more of its disk in one file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_there_is_no_room_it_goes_on_in_memory_and_comes_back_when_there_is(tmp_path: Path) -> None:
    with capture_logs() as logs:
        worker = Worker(tmp_path / "state", segment_bytes=4 * PAGE)
        worker.poll(0, range(10_000))
        worker.runs[0][0][0].finish(range(10))
        worker.checkpoint()
        with files_at_most(2 * PAGE):
            worker.poll(0, range(10_000, 20_000))  # needs a file
            worker.runs[0][1][0].finish(range(10_000, 10_010))
            worker.runs[0][0][0].finish(range(10, 20))
            assert left_by(dead(tmp_path / "state"))[ROWS[0]] == [OffsetRange(-1, 10)]
            worker.checkpoint()
            worker.checkpoint()
            worker.checkpoint()
        assert left_by(dead(tmp_path / "state"))[ROWS[0]] == [
            OffsetRange(-1, 20),
            OffsetRange(10_000, 10_010),
        ]
        worker.checkpoint()
        worker.runs[0][0][0].finish(range(20, 30))
        assert left_by(dead(tmp_path / "state"))[ROWS[0]] == [
            OffsetRange(-1, 30),
            OffsetRange(10_000, 10_010),
        ]
    told = [each["event"] for each in logs if each["event"] in {"finished_map_off", "finished_map_on"}]
    assert told == ["finished_map_off", "finished_map_on"], "once, not with each attempt"


class Killed(BaseException):
    """In the midst of what it did."""


def test_a_map_that_is_being_given_up_counts_no_more_whenever_the_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = busy(tmp_path / "state")

    def killed(self: Window) -> None:
        raise Killed

    monkeypatch.setattr(Window, "end", killed)
    with pytest.raises(Killed):
        worker.map.give_up(OSError(28, "No space left on device"))
    assert known(dead(tmp_path / "state")) == ([OffsetRange(-1, 10)], ["its worker gave it up"])


def test_what_is_left_of_a_map_that_was_being_removed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tells that it is not to be used is in the last file: that goes last."""
    worker = busy(tmp_path / "state")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Window, "end", killed)
        with pytest.raises(Killed):
            worker.map.give_up(OSError(28, "No space left on device"))
    folder = dead(tmp_path / "state")
    listed = reading.segments_of

    def backwards(*given: Any) -> dict[int, dict[int, Path]]:
        return {writer: dict(sorted(files.items(), reverse=True)) for writer, files in listed(*given).items()}

    monkeypatch.setattr(reading, "segments_of", backwards)  # a folder has no order
    unlink = Path.unlink
    count = len(list(folder.glob("finished-*")))
    assert count > 2
    for left in reversed(range(count)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", lambda path: (unlink(path), killed()))
            with pytest.raises(Killed):
                reading.read(folder, names(folder), remove=True)
        assert len(list(folder.glob("finished-*"))) == left
        assert known(folder)[0] == [OffsetRange(-1, 10)]


def test_what_finishes_while_flags_are_moved_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = busy(tmp_path / "state")
    keep = Window.keep

    def kept(window: Window, *given: Any) -> memoryview | None:
        place = keep(window, *given)
        if given[0] == worker.runs[0][-1][0].start:
            worker.runs[0][-1][0].finish([30_050])  # another thread, behind the copy
        return place

    with monkeypatch.context() as patch:
        patch.setattr(Window, "keep", kept)
        worker.checkpoint()
    assert worker.trackers[0].unfinished == 10_000 + 99
    found, told = known(dead(tmp_path / "state"))
    assert told == []
    assert any(first <= 30_050 < end for first, end in found)


def test_nothing_is_removed_before_all_trackers_have_moved(tmp_path: Path) -> None:
    worker = busy(tmp_path / "state")
    before = set((tmp_path / "state").glob("finished-*"))
    assert worker.map.turn()
    worker.map.saved()  # though one of them could not be looked at
    assert before < set((tmp_path / "state").glob("finished-*"))
    assert worker.map.turn(), "they are to move with the next checkpoint"


def test_what_cannot_be_written_at_all_costs_the_map_alone(tmp_path: Path) -> None:
    (tmp_path / "state").touch()  # a file in place of the folder: not even root can write into that
    with capture_logs() as logs:
        none = FinishedMap(tmp_path / "state", "replica")
        assert none.window() is None
        assert not none.turn(), "nothing was saved: it would fail again"
    assert [each["event"] for each in logs] == ["finished_map_off"]


def test_a_system_that_does_not_tell_when_it_was_started_has_none_and_that_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_module, "boot_id", lambda: None)
    with capture_logs() as logs:
        worker = Worker(tmp_path / "state")
        for _ in range(3):
            worker.checkpoint()
    assert [each.window for each in worker.trackers] == [None, None]
    assert [each["event"] for each in logs] == ["finished_map_off"]


def test_its_files_stay_within_their_bound(tmp_path: Path) -> None:
    """Though no checkpoint can be saved, by which they would become fewer."""
    with capture_logs() as logs:
        worker = Worker(tmp_path / "state", segment_bytes=PAGE, most_bytes=10 * PAGE)
        for begin in range(0, 60_000, 1_000):
            worker.poll(0, range(begin, begin + 1_000))
            worker.checkpoint(save=False)
            size = sum(path.stat().st_size for path in (tmp_path / "state").glob("finished-*"))
            assert size <= 10 * PAGE
    assert [each["event"] for each in logs] == ["finished_map_off"]
    for run, offsets in worker.runs[0]:
        run.finish(offsets[1:])
    worker.checkpoint()
    worker.checkpoint()
    assert [each.window is None for each in worker.trackers] == [False, False], "they need less now"


def test_a_long_run_keeps_few_files_though_one_record_is_stuck(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "state", segment_bytes=4 * PAGE)
    for begin in range(0, 400_000, 4_000):
        worker.poll(0, range(begin, begin + 4_000))
        worker.runs[0][-1][0].finish(range(begin + (begin == 0), begin + 4_000))
        worker.checkpoint()
    assert len(list((tmp_path / "state").glob("finished-*"))) <= 3
    assert left_by(dead(tmp_path / "state"))[ROWS[0]] == [OffsetRange(-1, 0), OffsetRange(1, 400_000)]


def test_a_dead_worker_s_files_are_removed_when_no_checkpoint_counts_on_them(tmp_path: Path) -> None:
    busy(tmp_path / "state")
    folder = dead(tmp_path / "state")
    left = set(folder.glob("finished-*"))
    min(left).with_suffix(".new").touch()  # killed while it made one
    remove_unnamed(folder, "another", [])  # whose folder it is, too
    assert len(list(folder.glob("finished-*"))) == len(left) + 1
    remove_unnamed(folder, "replica", names(folder))
    assert set(folder.glob("finished-*")) == left
    worker = Worker(folder)
    remove_unnamed(folder, "replica", names(folder))
    now = set(folder.glob("finished-*"))
    assert now
    assert not now & left
    worker.close()
    assert not list(folder.glob("finished-*"))
