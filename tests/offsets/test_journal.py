"""The journal: units of several partitions in files of many, found by time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from journal_units import units_in
from structlog.testing import capture_logs

from offsets.journal import Entry, Journal, JournalError, Unit
from offsets.journal.files import SIZE
from offsets.types import TopicPartition

SHOP = TopicPartition("cdc.shop", 0)
STOCK = TopicPartition("cdc.stock", 3)


class Clock:
    """Seconds since 1970, as a test says."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, "replica")


def reopened(journal: Journal) -> Journal:
    return Journal(journal.folder, "replica")


def time_below(offset: int) -> int:
    """As a source tells it with a change every 10 ms: that of the last change below."""
    return (offset - 1) * 10


def at(offset: int, partition: TopicPartition = SHOP, topic_id: str | None = None) -> Entry:
    return Entry(partition, offset, time_below(offset), topic_id)


def offsets(units: list[Unit]) -> list[int]:
    return [unit.offset for unit in units]


def test_what_was_appended_comes_back_newest_first(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(tmp_path, "replica", clock=clock)
    journal.append([Entry(SHOP, 5, None, "id-1"), at(7, STOCK)])
    clock.now = 1_005.5
    journal.append([Entry(SHOP, 9, 80, "id-1"), Entry(SHOP, 2, None, "id-1", moved=True)])
    for each in (journal, reopened(journal)):
        found = each.history([SHOP], 10)[SHOP]
        assert [(u.offset, u.source_ms, u.written_ms, u.moved) for u in found] == [
            (2, None, 1_005_500, True),
            (9, 80, 1_005_500, False),
            (5, None, 1_000_000, False),
        ]
        assert offsets(each.history([SHOP], 2)[SHOP]) == [2, 9]
        assert offsets(each.history([STOCK], 10)[STOCK]) == [7]
        assert each.history([TopicPartition("cdc.shop", 1)], 10)[TopicPartition("cdc.shop", 1)] == []


def test_the_histories_of_many_partitions_take_one_look_at_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most partitions of a topic may be idle, and have nothing in any file."""
    journal = Journal(tmp_path, "replica", units_per_file=16)
    for offset in range(1, 101):
        journal.append([at(offset), *([at(offset, STOCK)] if offset < 3 else [])])
    looked = []
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: looked.append(path) or read(path))
    idle = [TopicPartition("cdc.idle", number) for number in range(50)]
    found = journal.history([SHOP, STOCK, *idle], 3)
    assert {place: offsets(units) for place, units in found.items() if units} == {
        SHOP: [100, 99, 98],
        STOCK: [2, 1],
    }
    assert len(looked) == len(set(looked)) == len(list(tmp_path.glob("*.journal")))
    looked.clear()
    assert offsets(journal.history([SHOP], 3)[SHOP]) == [100, 99, 98]
    assert len(looked) == 1, "no file is read for nothing"


def test_a_file_that_is_full_is_flushed_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: flushed.append(os.fstat(descriptor).st_size))
    journal = Journal(tmp_path, "replica", units_per_file=4, flush=60.0, clock=Clock())
    for offset in range(1, 6):
        journal.append([at(offset)])
    assert flushed == [SIZE, 4 * SIZE, SIZE]


def test_groups_that_share_a_folder_see_their_own_alone(tmp_path: Path) -> None:
    one, other = Journal(tmp_path, "one"), Journal(tmp_path, "other")
    one.append([at(5)])
    other.append([at(99)])
    one.append([at(6)])
    assert offsets(one.history([SHOP], 9)[SHOP]) == [6, 5]
    assert offsets(Journal(tmp_path, "other").history([SHOP], 9)[SHOP]) == [99]


def test_a_time_is_found_between_the_units_around_it(journal: Journal) -> None:
    journal.append([at(offset) for offset in range(10, 101, 10)])
    for offset in range(10, 100, 10):
        for source_ms in (time_below(offset) + 1, time_below(offset) + 50, time_below(offset + 10)):
            lower, upper = journal.search(SHOP, source_ms)
            assert lower is not None
            assert upper is not None
            assert (lower.offset, upper.offset) == (offset, offset + 10)


def test_what_lies_before_and_after_all_units_has_one_bound_only(journal: Journal) -> None:
    journal.append([at(offset) for offset in (10, 20, 30)])
    lower, upper = journal.search(SHOP, time_below(10))
    assert lower is None
    assert upper is not None
    assert upper.offset == 10
    lower, upper = journal.search(SHOP, time_below(30) + 1)
    assert lower is not None
    assert lower.offset == 30
    assert upper is None
    assert journal.search(STOCK, 5) == (None, None)


def test_units_without_a_source_time_are_passed_by(journal: Journal) -> None:
    journal.append([at(10), Entry(SHOP, 15), at(20), Entry(SHOP, 25)])
    lower, upper = journal.search(SHOP, time_below(20))
    assert (lower and lower.offset, upper and upper.offset) == (10, 20)
    journal.append([Entry(STOCK, 5), Entry(STOCK, 6)])
    assert journal.search(STOCK, 5) == (None, None)


def test_after_a_step_back_its_own_branch_counts_and_beyond_it_the_one_that_had_got_further(
    journal: Journal,
) -> None:
    journal.append([at(offset) for offset in (10, 20, 30, 40, 50)])
    journal.append([Entry(SHOP, 15, None, None, moved=True)])
    for each in (journal, reopened(journal)):
        lower, upper = each.search(SHOP, time_below(35))
        assert (lower and lower.offset, upper and upper.offset) == (30, 40), "nothing has been read again yet"
    journal.append([at(offset) for offset in (18, 24)])
    for each in (journal, reopened(journal)):
        for time, around in (
            (21, (18, 24)),
            (14, (10, 18)),
            (35, (30, 40)),
            (25, (24, 30)),
            (60, (50, None)),
        ):
            lower, upper = each.search(SHOP, time_below(time))
            assert (lower and lower.offset, upper and upper.offset) == around, time
    journal.append([at(offset) for offset in (33, 44, 55)])
    for each in (journal, reopened(journal)):
        lower, upper = each.search(SHOP, time_below(42))
        assert (lower and lower.offset, upper and upper.offset) == (33, 44)
        assert offsets(each.history([SHOP], 20)[SHOP]) == [55, 44, 33, 24, 18, 15, 50, 40, 30, 20, 10]


def test_a_topic_made_anew_begins_anew(journal: Journal) -> None:
    journal.append([at(offset, SHOP, "first") for offset in (10, 20, 30)])
    journal.append([Entry(SHOP, 0, None, "second")])
    for each in (journal, reopened(journal)):
        assert each.search(SHOP, time_below(20), "second") == (None, None)
        assert each.search(SHOP, time_below(20), "first") == (None, None)
    journal.append([at(15, SHOP, "second"), at(25, SHOP), at(35, SHOP, "second")])
    for each in (journal, reopened(journal)):
        lower, upper = each.search(SHOP, time_below(30), "second")
        assert (lower and lower.offset, upper and upper.offset) == (25, 35), "without its id: the same"
        assert each.search(SHOP, time_below(12), "second").lower is None
        assert offsets(each.history([SHOP], 20)[SHOP]) == [35, 25, 15, 0, 30, 20, 10]


@pytest.mark.parametrize("seed", range(20))
def test_no_answer_ever_passes_by_a_change_of_that_time(tmp_path: Path, seed: int) -> None:
    """Whatever was set back and forth, with files that end anywhere: the lower bound is a safe beginning, and
    no farther away than the nearest unit of the present branch."""
    chance = random.Random(seed)
    journal = Journal(tmp_path, "replica", units_per_file=chance.choice([24, 64, 10_000]))
    position, branch, others = 100, [], 0
    furthest = 0
    for _ in range(300):
        if chance.random() < 0.02:
            position = chance.randrange(50, position + 200)
            branch = [offset for offset in branch if offset <= position]
        position += chance.randrange(1, 30)
        branch.append(position)
        furthest = max(furthest, position)
        others += chance.randrange(3)
        journal.append([at(position), *(at(others + n, STOCK) for n in range(chance.randrange(3)))])
    for each in (journal, reopened(journal)):
        for _ in range(200):
            source_ms = chance.randrange(0, time_below(furthest) + 50)
            lower, upper = each.search(SHOP, source_ms)
            nearest = max((offset for offset in branch if time_below(offset) < source_ms), default=0)
            if lower is not None:
                assert lower.source_ms is not None
                assert time_below(lower.offset) == lower.source_ms < source_ms
            assert nearest <= (0 if lower is None else lower.offset)
            if time_below(position) >= source_ms:
                assert upper is not None
            if upper is not None:
                assert upper.source_ms is not None
                assert upper.source_ms >= source_ms


def test_files_may_be_removed_from_the_oldest_on(tmp_path: Path) -> None:
    """What is left is found. A partition without a unit there is not known any more."""
    journal = Journal(tmp_path, "replica", units_per_file=32)
    journal.append([at(7, STOCK), at(70, STOCK)])
    for offset in range(1, 200):
        journal.append([at(offset)])
    files = sorted(tmp_path.glob("*.journal"))
    assert len(files) > 3
    for path in files[:-1]:
        path.unlink()
    after = reopened(journal)
    assert after.history([STOCK], 9)[STOCK] == []
    assert after.search(STOCK, time_below(71)) == (None, None)
    assert after.search(SHOP, time_below(199)).lower is not None
    assert after.search(SHOP, time_below(3)).lower is None


def test_old_files_and_those_beyond_the_size_are_removed_and_the_last_one_never(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(
        tmp_path, "replica", max_age=3_600, max_bytes=100 * SIZE, units_per_file=16, clock=clock
    )

    def numbers() -> list[int]:
        return [int(path.stem) for path in sorted(tmp_path.glob("*.journal"))]

    for offset in range(1, 61):
        journal.append([at(offset)])
    assert numbers()[0] == 0
    clock.now += 3_500
    journal.append([at(61)])
    assert numbers()[0] == 0
    clock.now += 200
    journal.append([at(62)])
    last = numbers()
    assert len(last) <= 2
    assert last[0] > 0
    assert journal.search(SHOP, time_below(62)).lower is not None
    for offset in range(63, 1_000):
        clock.now += 0.1
        journal.append([at(offset)])
    clock.now += 61
    journal.append([at(1_000)])
    assert sum(path.stat().st_size for path in tmp_path.glob("*.journal")) <= 100 * SIZE
    clock.now += 1_000_000
    journal.append([at(1_001)])
    assert len(numbers()) == 1
    assert journal.history([SHOP], 1)[SHOP][0].offset == 1_001


def test_a_clock_that_was_ahead_once_keeps_no_file_for_ever(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(tmp_path, "replica", max_age=1_000, units_per_file=16, clock=clock)
    for offset in range(1, 64):
        journal.append([at(offset)])
    clock.now += 1_000_000
    journal.append([at(64)])  # the last of its file
    clock.now -= 1_000_000
    for offset in range(65, 200):
        clock.now += 20
        journal.append([at(offset)])
    files = sorted(tmp_path.glob("*.journal"))
    assert len(files) <= 1_000 // 20 // 10 + 2  # of 16 units each


def test_damage_at_the_end_of_an_old_file_does_not_make_it_older(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(tmp_path, "replica", max_age=1_000, units_per_file=16, clock=clock)
    for offset in range(1, 41):
        journal.append([at(offset)])
    first = min(tmp_path.glob("*.journal"))
    data = bytearray(first.read_bytes())
    data[-SIZE:] = bytes(SIZE)
    first.write_bytes(data)
    clock.now += 500
    reopened(journal).append([at(41)])
    assert first.exists()
    clock.now += 600
    journal.append([at(42)])
    assert not first.exists()


def test_a_file_of_somebody_else_is_left_alone(journal: Journal) -> None:
    journal.append([at(5)])
    (journal.folder / "99.journal").write_text("mine")
    after = reopened(journal)
    after.append([at(6)])
    assert offsets(reopened(journal).history([SHOP], 9)[SHOP]) == [6, 5]
    assert (journal.folder / "99.journal").read_text() == "mine"


def test_a_journal_whose_folder_was_moved_away_begins_anew_in_its_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "replica")
    journal.append([at(5)])
    journal.folder.rename(tmp_path / "away")
    journal.append([at(6)])
    assert offsets(reopened(journal).history([SHOP], 9)[SHOP]) == [6]
    moved = Journal(tmp_path / "away", "replica")
    assert offsets(moved.history([SHOP], 9)[SHOP]) == [5]


def test_a_journal_that_was_removed_meanwhile_begins_anew(journal: Journal) -> None:
    journal.append([at(5)])
    for path in journal.folder.iterdir():
        path.unlink()
    journal.folder.rmdir()
    journal.append([at(6)])
    assert offsets(reopened(journal).history([SHOP], 9)[SHOP]) == [6]


def test_what_is_damaged_in_the_middle_is_passed_by(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "replica")
    journal.append([at(offset) for offset in range(1, 101)])
    [path] = tmp_path.glob("*.journal")
    data = bytearray(path.read_bytes())
    data[40 * SIZE : 60 * SIZE] = bytes(20 * SIZE)
    path.write_bytes(data)
    damaged = reopened(journal)
    assert offsets(damaged.history([SHOP], 200)[SHOP]) == [*range(100, 60, -1), *range(40, 0, -1)]
    lower, upper = damaged.search(SHOP, time_below(20))
    assert (lower and lower.offset, upper and upper.offset) == (19, 20)
    lower, upper = damaged.search(SHOP, time_below(50))
    assert (lower and lower.offset, upper and upper.offset) == (40, 61)


def test_zeros_at_the_end_as_a_power_loss_leaves_them_are_cut_off_and_told(journal: Journal) -> None:
    journal.append([at(5)])
    [path] = journal.folder.glob("*.journal")
    with path.open("ab") as file:
        file.write(bytes(3 * SIZE + 10))
    after = reopened(journal)
    assert offsets(after.history([SHOP], 9)[SHOP]) == [5]
    with capture_logs() as logs:
        after.append([at(6)])
    assert [(line["event"], line["torn_bytes"]) for line in logs] == [("journal_cut", 3 * SIZE + 10)]
    assert path.stat().st_size == 2 * SIZE
    assert offsets(after.history([SHOP], 9)[SHOP]) == [6, 5]


def test_a_journal_of_a_newer_version_is_told_and_left_as_it_is(journal: Journal) -> None:
    journal.append([at(5)])
    [path] = journal.folder.glob("*.journal")
    data = bytearray(path.read_bytes())
    data[SIZE - 3] = 2  # the version
    from offsets.journal.files import _checksum

    data[:4] = _checksum(bytes(data[4:]), 0).to_bytes(4, "little")
    path.write_bytes(data)
    for use in (lambda each: each.append([at(6)]), lambda each: each.history([SHOP], 1)[SHOP]):
        with pytest.raises(JournalError, match="newer binlane"):
            use(reopened(journal))
    assert path.read_bytes() == data


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(JournalError, match="cannot write the journal"):
        Journal(tmp_path / "state", "replica").append([at(5)])


def test_a_journal_is_read_where_it_may_not_be_written(tmp_path: Path) -> None:
    Journal(tmp_path, "replica").append([at(5), at(6)])
    for path in tmp_path.iterdir():
        path.chmod(0o444)
    root = os.geteuid() == 0  # root may write everywhere
    if root:
        for folder in (tmp_path, *list(tmp_path.parents)[:3]):
            folder.chmod(0o755)
        os.seteuid(65534)
    try:
        assert offsets(Journal(tmp_path, "replica").history([SHOP], 9)[SHOP]) == [6, 5]
        with pytest.raises(JournalError, match="Permission denied"):
            Journal(tmp_path, "replica").append([at(7)])
    finally:
        if root:
            os.seteuid(0)


FILL = """
import resource, sys
from pathlib import Path
from offsets.journal import Entry, Journal, JournalError
from offsets.types import TopicPartition
place, folder = TopicPartition("cdc.shop", 0), Path(sys.argv[1])
journal = Journal(folder, "replica")
journal.append([Entry(place, offset, offset) for offset in range(1, 11)])
limit = 12 * 64 + 30  # room for two units and a half
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
journal.append([Entry(place, 11, 11)])
for _ in range(2):
    try:
        journal.append([Entry(place, offset, offset) for offset in range(12, 16)])
    except JournalError as error:
        assert "File too large" in str(error), error
    else:
        raise AssertionError("there was no room")
    assert [unit.offset for unit in journal.history([place], 3)[place]] == [11, 10, 9]
    assert [unit.offset for unit in Journal(folder, "replica").history([place], 3)[place]] == [11, 10, 9]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append([Entry(place, 20, 20)])
assert [unit.offset for unit in Journal(folder, "replica").history([place], 3)[place]] == [20, 11, 10]
assert Journal(folder, "replica").search(place, 15).lower.offset == 11
"""


def test_a_file_that_cannot_grow_keeps_what_it_had_and_takes_more_when_it_can(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


APPEND = """
import sys
from pathlib import Path
from offsets.journal import Entry, Journal
from offsets.types import TopicPartition
folder, group, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
journal = Journal(folder, group, units_per_file=50, lock_wait=120)
for offset in range(1, count + 1):
    journal.append([Entry(TopicPartition("cdc.shop", 0), offset, offset * 10)])
"""


def test_processes_that_append_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(tmp_path), group, "300"])
        for group in ("one", "two", "two")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    assert offsets(Journal(tmp_path, "one").history([SHOP], 1_000)[SHOP]) == list(range(300, 0, -1))
    both = offsets(Journal(tmp_path, "two").history([SHOP], 1_000)[SHOP])
    assert sorted(both) == sorted([*range(1, 301)] * 2), "two workers of one group, each with all of its own"
    numbers = [unit.number for unit in units_in(tmp_path)]
    assert numbers == list(range(len(numbers)))


def test_what_is_held_by_another_process_is_told_soon(tmp_path: Path) -> None:
    import fcntl

    journal = Journal(tmp_path, "replica", lock_wait=0.01)
    journal.append([at(5)])
    with (tmp_path / "journal.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="locked by another process"):
            journal.append([at(6)])
        assert offsets(journal.history([SHOP], 9)[SHOP]) == [5]
    journal.append([at(7)])
    assert offsets(journal.history([SHOP], 9)[SHOP]) == [7, 5]
