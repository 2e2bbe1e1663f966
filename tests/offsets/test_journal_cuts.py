"""The journal's last two files, cut at every byte: what was before is there, and appending goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from journal_units import units_in

from offsets.journal import Entry, Journal, Unit
from offsets.journal.files import SIZE, key_of
from offsets.types import TopicPartition

PLACES = [TopicPartition("cdc.shop", 0), TopicPartition("cdc.shop", 1), TopicPartition("cdc.stock", 0)]
PER_FILE = 18


def build(folder: Path) -> list[Unit]:
    """Three partitions in several files: one moves often, one is set back, one rests after its first unit."""
    journal = Journal(folder, "replica", units_per_file=PER_FILE)
    journal.append([Entry(PLACES[2], 3, 20)])
    for step in range(1, 48):
        entries = [Entry(PLACES[0], step * 10, (step * 10 - 1) * 10)]
        if step % 2:
            offset = (step if step < 30 else step - 15) * 7
            entries.append(Entry(PLACES[1], offset, (offset - 1) * 10))
        journal.append(entries)
    return units_in(folder)


@pytest.mark.parametrize(
    ("which", "step"),
    [
        (-1, 7),  # 9 places within each unit, others in the next one
        pytest.param(-1, 1, marks=pytest.mark.soak),
        pytest.param(-2, 1, marks=pytest.mark.soak),
    ],
)
def test_it_survives_a_cut_at_every_byte_of_its_last_two_files(tmp_path: Path, which: int, step: int) -> None:
    whole = tmp_path / "whole"
    units = build(whole)
    files = sorted(whole.glob("*.journal"))
    assert len(files) >= 4
    name, size = files[which].name, files[which].stat().st_size
    first = int(files[which].stem)
    after = int(files[-1].stem) if which == -2 else None
    folder = tmp_path / "cut"
    for length in range(0, size, step):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        with (folder / name).open("r+b") as file:
            file.truncate(length)
        end = first + length // SIZE
        left = [u for u in units if u.number < end or (after is not None and u.number >= after)]
        journal = Journal(folder, "replica", units_per_file=PER_FILE)
        assert units_in(folder) == left, length
        answers(journal, left)
        assert (folder / name).stat().st_size == length, "who reads cuts nothing"
        journal.append([Entry(PLACES[0], 1_000, 9_990), Entry(PLACES[2], 40, 390)])
        again = Journal(folder, "replica")
        for each in (journal, again):
            now = units_in(folder)
            assert now[: len(left)] == left, length
            assert [unit.offset for unit in now[-2:]] == [1_000, 40]
            lower, upper = each.search(PLACES[2], 200)
            assert (lower and lower.offset, upper and upper.offset) == (3, 40)
        answers(again, now)
        if which == -1:
            assert (folder / name).stat().st_size % SIZE == 0


def answers(journal: Journal, left: list[Unit]) -> None:
    """Of each partition, all that is left is found, and every search is a safe one."""
    for place in PLACES:
        own = [unit for unit in left if unit.key == key_of("replica", place)]
        found = journal.history([place], 1_000)[place]
        assert {(u.offset, u.written_ms) for u in found} == {(u.offset, u.written_ms) for u in own}
        for source_ms in range(0, 4_800, 400):
            lower, upper = journal.search(place, source_ms)
            if lower is not None:
                assert lower.source_ms is not None
                assert lower.source_ms < source_ms
            if upper is not None:
                assert upper.source_ms is not None
                assert upper.source_ms >= source_ms
            if place == PLACES[0]:  # it was never set back: the answer is the nearest of all
                before = [u.offset for u in own if u.source_ms is not None and u.source_ms < source_ms]
                assert (lower and lower.offset) == max(before, default=None)
