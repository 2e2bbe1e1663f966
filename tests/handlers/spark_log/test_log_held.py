"""What a table was last seen to hold, as it is written down beside its log."""

from __future__ import annotations

from pathlib import Path

from handlers.spark.log.beside import FOLDER, Held, Told, ToldHeld
from handlers.spark.log.stores.local import LocalFiles


def test_what_a_table_held_that_was_renamed_is_still_known_when_it_comes_back(tmp_path: Path) -> None:
    told = ToldHeld(LocalFiles(), str(tmp_path))
    told.tell(Held(1, 2))
    told.tell(Held(3, 5))
    told.tell_left(6)
    told.tell(Held(7, 7))  # the next table of its name
    told.tell(Held(8, 9))
    assert told.look() == Told(Held(8, 9), 6)
    told.tell_left(10)
    assert told.look() == Told(Held(), 10)
    assert told.begun_with(3) == Held(3, 5)
    assert told.begun_with(8) == Held(8, 9)
    told.tell(Held(3, 5))  # it is back: what it holds went into a table that has left
    assert told.look() == Told(Held(), 10)
    assert told.begun_with(3) == Held(3, 5)


def test_only_the_last_of_what_each_table_held_stays_written_down(tmp_path: Path) -> None:
    told = ToldHeld(LocalFiles(), str(tmp_path))
    for held in (Held(1, 2), Held(3, 5)):
        told.tell(held)
    told.tell_left(6)
    told.tell(Held(7, 7))
    told.tell(Held(8, 9))
    told.tell_left(10)
    names = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    assert names == [f"{3:020d}-{5:020d}", f"{8:020d}-{9:020d}", f"left-{10:020d}"]
    assert told.begun_with(1) == Held()
