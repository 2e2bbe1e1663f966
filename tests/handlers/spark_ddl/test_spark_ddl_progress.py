"""What is done of a statement where no Delta table tells it: files beside the tables, and no Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from delta_reading import table_at

from handlers import Change
from handlers.mysql.ddl import TableName
from handlers.spark.ddl.progress import KeptSteps, Surroundings
from handlers.spark.ddl.tables import drop_table, rename_table
from handlers.spark.ddl.target import Target
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef

ONE, TWO = TableName("shop", "one"), TableName("shop", "two")


def statement(folder: Path, *topics: str) -> Target:
    """At offset 5 of a topic, by its names."""

    def ref_of(name: TableName) -> TableRef:
        return table_at(f"{folder}/{name.database}/{name.table}")

    no_session: Any = None
    places = [(topic, 0, 5, 0) for topic in topics]
    around = Surroundings(SparkOptions(mode="replica"), ref_of, LocalFiles(), f"{folder}/_binlane")
    return Target(no_session, around, places, 0, "{}")


def put(folder: Path, *tables: TableName) -> None:
    for table in tables:
        log = folder / table.database / table.table / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020d}.json").touch()


def there(folder: Path) -> Sequence[str]:
    return sorted(each.name for each in (folder / "shop").iterdir())


@pytest.mark.parametrize("topics", [("cdc@B", "cdc"), ("cdc",)], ids=["its id is known", "no ids"])
def test_a_statement_of_one_table_is_not_done_by_one_of_another_at_its_place(
    tmp_path: Path, topics: Sequence[str]
) -> None:
    """The one is of the former topic; the other table has never seen that."""
    put(tmp_path, ONE, TWO)
    drop_table(statement(tmp_path, "cdc"), ONE, "0")
    drop_table(statement(tmp_path, *topics), TWO, "0")
    assert there(tmp_path) == []
    put(tmp_path, ONE, TWO)
    assert not rename_table(statement(tmp_path, "cdc@C"), ONE, TWO, "1")  # one that is there stays
    assert rename_table(statement(tmp_path, *topics), ONE, TWO._replace(table="a"), "1")
    assert rename_table(statement(tmp_path, *topics), TWO, TWO._replace(table="b"), "1")
    assert there(tmp_path) == ["a", "b"]


def test_a_statement_of_the_same_table_and_place_in_a_topic_made_anew_is_followed(tmp_path: Path) -> None:
    for topic_id in "AB":
        put(tmp_path, ONE)
        drop_table(statement(tmp_path, f"cdc@{topic_id}"), ONE, "0")
        assert there(tmp_path) == []


def test_a_statement_that_comes_again_is_passed_over(tmp_path: Path) -> None:
    """Its id may be known only now."""
    put(tmp_path, ONE)
    drop_table(statement(tmp_path, "cdc"), ONE, "0")
    put(tmp_path, ONE)  # made by a later statement
    drop_table(statement(tmp_path, "cdc"), ONE, "0")
    drop_table(statement(tmp_path, "cdc@A", "cdc"), ONE, "0")
    assert there(tmp_path) == ["one"]
    drop_table(statement(tmp_path, "cdc@A"), ONE, "0")  # "cdc" may be a former topic
    assert there(tmp_path) == []


def test_what_an_earlier_release_has_noted_of_a_table_counts_for_that_one(tmp_path: Path) -> None:
    put(tmp_path, ONE, TWO)
    noted = tmp_path / "_binlane" / "ddl" / "cdc-0-5-0" / "0.done"
    noted.parent.mkdir(parents=True)
    noted.write_text(json.dumps({"what": f"drop {table_at(f'{tmp_path}/shop/one')}"}))
    for table in (ONE, TWO):
        drop_table(statement(tmp_path, "cdc@A", "cdc"), table, "0")
    assert there(tmp_path) == ["one"]


def test_what_cannot_be_read_of_what_is_done_does_not_count_as_not_done(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    drop_table(statement(tmp_path, "cdc"), ONE, "0")
    [done] = (tmp_path / "_binlane").rglob("*.done")
    done.write_bytes(b"{")
    put(tmp_path, ONE)
    with pytest.raises(BrokenLog, match=r"0\.done does not say .*: restore it"):
        drop_table(statement(tmp_path, "cdc"), ONE, "0")
    assert there(tmp_path) == ["one"]


def test_the_steps_of_a_statement_are_those_of_its_text_and_time(tmp_path: Path) -> None:
    def kept(sql: str, time_ms: int, *topics: str) -> KeptSteps:
        change = Change("ddl", None, None, None, sql, time_ms, topics[0], 0, 5, 0, None, None)
        places = [(topic, 0, 5, 0) for topic in topics]
        return KeptSteps(LocalFiles(), str(tmp_path), places, ONE, change)

    kept("a", 1, "cdc").keep({})
    assert kept("a", 1, "cdc").look() == {}
    kept("a", 1, "cdc").keep({"0": []})
    for _ in range(2):
        kept("a", 1, "cdc").keep({"0": [], "1.add": ["c"]})
    assert kept("a", 1, "cdc").look() == kept("a", 1, "cdc@A", "cdc").look() == {"0": [], "1.add": ["c"]}
    for other in (kept("b", 1, "cdc"), kept("a", 2, "cdc"), kept("a", 1, "cdc@A")):
        assert other.look() == {}
    for file in tmp_path.rglob("*-0002.steps"):
        file.write_bytes(b"[1]")
    with pytest.raises(BrokenLog, match=r"0002\.steps does not say which steps .*: restore it"):
        kept("a", 1, "cdc").look()


def test_the_longest_names_of_topics_and_tables_have_room(tmp_path: Path) -> None:
    longest = TableName("\u8ba2" * 64, "\u5355" * 64)
    target = statement(tmp_path, f"{'t' * 235}@{'i' * 22}", "t" * 235)
    progress = target.progress(longest, "0", "drop it")
    assert not progress.is_done
    progress.finish()
    assert progress.is_done
