"""A Spark table that is built again while workers go on: whole or as it was, and each change in it once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
from spark_lake import TYPES, Lake, MakeLake, Rows, change
from spark_sessions import SHARED
from test_spark_handovers import ddl, other_worker, take
from test_spark_statements import POINTS, Cut

from handlers import Batch, Change, HandlerContext
from handlers.failures import AskAgain
from handlers.reloading import Behind, Differs, Hindered, Refused
from handlers.spark.engine.table.failures import SparkFailure
from handlers.spark.log.segment_folder import SegmentFolder
from handlers.spark.log.stores.interface import AlreadyThere, FilesError
from handlers.spark.reloading.new_rows import FOLDER, NewRows
from handlers.spark.reloading.reload import SparkReload

PLACE = ("cdc", 0)


@pytest.fixture
def lake(make_lake: MakeLake, told_to_merge: None) -> Lake:
    return make_lake()


def row(number: int) -> Change:
    """Counts the row up: applied twice, or not at all, the next is not what the model has."""
    return change(number, {"id": number % 3, "name": f"{number}"})


def rows(first: int, end: int) -> list[Change]:
    return [row(number) for number in range(first, end)]


def model(end: int) -> Rows:
    return sorted({number % 3: (number % 3, f"{number}") for number in range(end)}.values(), key=repr)


def batch(*changes: Change) -> Batch:
    return Batch("shop.orders", changes, database="shop", name="orders")


@contextmanager
def reloading(lake: Lake, **options: Any) -> Iterator[SparkReload]:
    context = HandlerContext(worker="test", handler="spark", folder=lake.folder, spark=SHARED)
    reload = SparkReload({**lake.options, **options}, context, "shop", "orders")
    try:
        reload.begin()
        yield reload
    finally:
        reload.end()


def left(lake: Lake) -> list[str]:
    return [each.name for each in (lake.folder / "lake" / FOLDER).glob("*/*/*")]


def spoil(lake: Lake) -> None:
    lake.sql("UPDATE {t} SET name = 'spoiled'")
    lake.sql("DELETE FROM {t} WHERE id = 1")
    lake.sql("INSERT INTO {t} VALUES (99, 'by hand')")


@pytest.mark.soak
def test_the_table_is_as_the_topic_tells_and_the_worker_goes_on_behind_it(lake: Lake) -> None:
    lake.take(*rows(0, 10))
    lake.sink().merge()
    spoil(lake)
    lake.take(*rows(10, 11))
    with reloading(lake) as reload:
        assert reload.marks() == {PLACE: (10, 0)}
        reload.apply(batch(*rows(0, 12)))
        taken = reload.take_over({PLACE: 21})
    assert (taken.before, taken.after) == (3, 3)
    assert lake.rows() == model(12)
    lake.take(*rows(10, 12))  # what the reload had already, and what comes next
    lake.take(*rows(12, 15))
    assert lake.view() == model(15)
    lake.sink().merge()
    assert lake.rows() == model(15)
    assert left(lake) == []


@pytest.mark.soak  # the same of a statement: spark_ddl/test_spark_ddl_types.py
def test_a_clustered_table_stays_clustered(lake: Lake) -> None:
    lake.take(*rows(0, 3))
    lake.sink().merge()
    lake.sql("ALTER TABLE {t} CLUSTER BY (name)")
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 3)))
        reload.take_over({PLACE: 3})
    assert lake.rows() == model(3)
    assert lake.sql("DESCRIBE DETAIL {t}").collect()[0].clusteringColumns == ["name"]


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["history", "changelog"])
@pytest.mark.usefixtures("told_to_merge")
def test_a_history_and_a_changelog_are_those_of_the_topic(make_lake: MakeLake, mode: str) -> None:
    lake = make_lake(mode=mode)
    lake.take(*rows(0, 7))
    lake.sink().merge()
    whole = lake.rows()
    lake.sql("DELETE FROM {t} WHERE id = 1")
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 5)))
        with pytest.raises(Behind):
            reload.take_over({PLACE: 5})

        def catch_up(marks: Any) -> Any:
            reload.apply(batch(*rows(5, 7)))
            return {PLACE: 7}

        reload.take_over({PLACE: 5}, catch_up)
    assert lake.rows() == whole
    lake.take(*rows(7, 9))
    lake.sink().merge()
    assert len(lake.rows()) == 9


@pytest.mark.soak
def test_a_table_that_is_ahead_is_caught_up_with_and_what_is_missing_is_left(lake: Lake) -> None:
    lake.take(*rows(0, 5))
    lake.sink().merge()
    spoil(lake)
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 5)))
        lake.take(*rows(5, 6))
        before = lake.view()
        with pytest.raises(Behind):
            reload.take_over({PLACE: 5})
        with pytest.raises(Behind):
            reload.take_over({("other", 0): 50})
        assert lake.view() == before
        asked = []

        def catch_up(marks: Any) -> Any:
            asked.append(marks)
            for number in range(5, 9):  # several segments, put as one
                reload.apply(batch(row(number)))
            return {PLACE: 9}

        reload.take_over({PLACE: 5}, catch_up)
    assert asked == [{PLACE: (5, 0)}]
    assert lake.rows() == model(9)
    lake.take(*rows(6, 11))
    assert lake.view() == model(11)


@pytest.mark.soak
def test_another_worker_that_puts_meanwhile_is_not_overtaken(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.take(*rows(0, 5))
    lake.sink().merge()
    other = other_worker(lake)
    other.load()
    sent, whole = [5], NewRows.entry
    with reloading(lake) as reload:

        def busy(*args: Any) -> Any:
            entry = whole(*args)
            if sent[0] < most:
                take(other, row(sent[0]))
                sent[0] += 1
            return entry

        def catch_up(marks: Any) -> Any:
            reload.apply(batch(*rows(0, sent[0])))
            return {PLACE: sent[0]}

        reload.apply(batch(*rows(0, 5)))
        monkeypatch.setattr(NewRows, "entry", busy)
        monkeypatch.setattr("handlers.spark.reloading.reload._PUTS", 3)
        most = 1000
        with pytest.raises(Hindered, match="keep writing to its log"):
            reload.take_over({PLACE: 5}, catch_up)
        assert lake.view() == model(sent[0])
        most = sent[0] + 2
        reload.take_over({PLACE: 5}, catch_up)
        monkeypatch.undo()
        take(other, *rows(6, sent[0] + 1))
        other.merge()
    assert lake.rows() == model(sent[0] + 1)


@contextmanager
def answer_lost(error: Callable[[str], BaseException]) -> Iterator[None]:
    """Of the next put of an entry, which is there."""
    entry, put = NewRows.entry, SegmentFolder.put
    with pytest.MonkeyPatch.context() as patch:

        def lost(self: Any, number: int, data: Any, **more: Any) -> Any:
            put(self, number, data, **more)
            patch.setattr(SegmentFolder, "put", put)
            patch.setattr(NewRows, "entry", entry)
            raise error("the answer is lost")

        def armed(*args: Any) -> Any:
            made = entry(*args)
            patch.setattr(SegmentFolder, "put", lost)
            return made

        patch.setattr(NewRows, "entry", armed)
        yield


@pytest.mark.soak
@pytest.mark.parametrize("error", [FilesError, AlreadyThere, KeyboardInterrupt])
def test_an_entry_of_which_the_answer_was_lost_is_followed_and_has_its_rows(
    lake: Lake, error: Callable[[str], BaseException]
) -> None:
    lake.take(*rows(0, 5))
    lake.sink().merge()
    spoil(lake)
    context = HandlerContext(worker="test", handler="spark", folder=lake.folder, spark=SHARED)
    reload = SparkReload(lake.options, context, "shop", "orders")
    reload.begin()
    reload.apply(batch(*rows(0, 5)))
    with (
        answer_lost(error),
        pytest.raises(KeyboardInterrupt) if error is KeyboardInterrupt else nullcontext(),
    ):
        reload.take_over({PLACE: 5})
    told = reload.end()
    assert ("it is unknown" in told) == (error is KeyboardInterrupt)
    lake.take(*rows(5, 8))
    lake.sink().merge()
    assert lake.rows() == model(8)


@pytest.mark.soak
def test_an_attempt_whose_entry_came_late_is_no_part_of_the_next(lake: Lake) -> None:
    """An entry was put and followed, and nobody knew; what the next one brings is not passed over."""
    lake.take(*rows(0, 5))
    lake.sink().merge()
    with reloading(lake) as reload, pytest.MonkeyPatch.context() as patch:
        reload.apply(batch(*rows(0, 5)))
        patch.setattr("handlers.spark.reloading.new_rows.number_of", lambda there, name: there.merge() or 0)
        patch.setattr("handlers.spark.reloading.reload._PUTS", 1)
        with answer_lost(AlreadyThere), pytest.raises(Hindered):
            reload.take_over({PLACE: 5})
        spoil(lake)
        reload.apply(batch(*rows(5, 9)))
        reload.take_over({PLACE: 9})
    lake.take(*rows(5, 9))
    lake.sink().merge()
    assert lake.rows() == model(9)


@pytest.mark.soak
def test_a_statement_that_no_worker_follows_is_followed(lake: Lake) -> None:
    added = ddl(5, "ALTER TABLE orders ADD stock int DEFAULT 7")
    lake.take(*rows(0, 5))
    lake.sink().merge()
    lake.take(added)
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 5)))
        reload.apply(batch(added))
        reload.take_over({PLACE: 6})
    assert lake.rows() == [(0, "3", 7), (1, "4", 7), (2, "2", 7)]


@pytest.mark.soak
def test_rows_that_the_table_does_not_take_are_told_before_anything_is_put(lake: Lake) -> None:
    lake.take(*rows(0, 5))
    lake.sink().merge()
    lake.sql("UPDATE {t} SET name = 'filled' WHERE id = 0")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT filled CHECK (name <> '3')")
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 5)))
        with pytest.raises(Refused, match="does not accept: name <> '3'"):
            reload.take_over({PLACE: 5})
    lake.take(row(7))
    lake.sink().merge()
    assert lake.rows() == [(0, "filled"), (1, "7"), (2, "2")]


@pytest.mark.parametrize(
    ("more", "name", "told"),
    [
        ("PARTITIONED BY (name)", "", "name` NOT IN"),
        pytest.param(
            "TBLPROPERTIES ('delta.constraints.filled' = 'name <> \"x\"')",
            None,
            'name <> "x"',
            marks=pytest.mark.soak,  # conditions: test_spark_declared.py
        ),
    ],
)
def test_rows_that_the_table_would_keep_as_others_are_told_as_well(
    lake: Lake, more: str, name: str | None, told: str
) -> None:
    lake.spark.sql(
        f"CREATE TABLE delta.`{lake.folder / 'lake/shop/orders'}` (id int, name string) USING delta {more}"
    )
    lake.take(*rows(0, 3))
    lake.sink().merge()
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 3), change(3, {"id": 1, "name": name})))
        with pytest.raises(Refused, match=told):
            reload.take_over({PLACE: 4})
    assert lake.rows() == model(3)


BUSY: dict[str, tuple[dict[str, Any], Callable[[int], Change]]] = {
    "partial": ({}, lambda number: change(number, {"id": number % 3, "name": f"{number}"}, op="update")),
    "history": ({"mode": "history"}, row),
    "changelog": ({"mode": "changelog"}, row),
    "keyless": ({}, lambda number: change(number, {"id": number, "name": "x"}, key=())),
}


@pytest.mark.soak
@pytest.mark.parametrize("kind", BUSY)
@pytest.mark.usefixtures("told_to_merge")
def test_a_table_of_any_kind_is_taken_over_while_its_worker_is_ahead(make_lake: MakeLake, kind: str) -> None:
    options, made = BUSY[kind]
    wide = {**TYPES, "more": "int"}
    lake, whole = make_lake(**options), make_lake(path="whole/{database}/{table}", **options)
    first = [change(each, {"id": each, "name": "a", "more": each}, wide) for each in range(3)]
    if kind == "keyless":
        first = [made(each) for each in range(3)]
    lake.take(*first)
    lake.sink().merge()
    lake.sql("DELETE FROM {t}")
    lake.take(made(3))
    with reloading(lake) as reload:
        reload.apply(batch(*first))
        read = iter([[made(3)], [made(4)], [made(5)]])

        def catch_up(marks: Any) -> Any:
            given = next(read, [])
            if given:
                reload.apply(batch(*given))
                last[0] = given[-1].offset + 1
            return {PLACE: last[0]}

        last = [3]
        reload.take_over({PLACE: 3}, catch_up)
    everything = [*first, *(made(each) for each in range(3, 8))]
    lake.take(*everything)
    lake.sink().merge()
    whole.take(*everything)
    whole.sink().merge()
    names = "id, name" if kind in ("partial", "keyless") else "*"
    assert lake.rows(names) == whole.rows(names, path="whole/shop/orders")


@pytest.mark.soak
def test_other_columns_than_the_topic_tells_are_not_overwritten(lake: Lake) -> None:
    lake.take(*rows(0, 5))
    lake.sink().merge()
    lake.sql("ALTER TABLE {t} ADD COLUMN note INT")
    before = lake.rows()
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 5)))
        with pytest.raises(Differs, match=r"note is int, according to the topic not there"):
            reload.take_over({PLACE: 5})
        lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
        with pytest.raises(Refused, match="appendOnly"):
            reload.take_over({PLACE: 5})
    assert lake.rows() == before
    assert left(lake) == []


@pytest.mark.soak
def test_statements_are_followed_before_and_by_both(lake: Lake) -> None:
    added = ddl(5, "ALTER TABLE orders ADD stock int DEFAULT 7")
    wide = change(6, {"id": 1, "name": "w", "stock": 3}, {**TYPES, "stock": "int"})
    lake.take(*rows(0, 5))
    lake.sink().merge()
    spoil(lake)
    with reloading(lake) as reload:
        reload.apply(batch(*rows(0, 5)))
        reload.apply(batch(added))
        with pytest.raises(Differs):
            reload.take_over({PLACE: 6})
        lake.take(added)
        lake.take(wide)
        with pytest.raises(Behind):
            reload.take_over({PLACE: 6})
        reload.apply(batch(wide))
        reload.take_over({PLACE: 7})
    assert lake.rows() == [(0, "3", 7), (1, "w", 3), (2, "2", 7)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "changelog", "format": "parquet"}, "plain Parquet"),
        ({"mode": "function", "function": "a:b"}, "own function"),
        ({}, "applied no change"),
    ],
)
def test_what_cannot_be_loaded_again_is_told(lake: Lake, options: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused, match=told), reloading(lake, **options):
        pass


# ---- ends


def put_and_died(lake: Lake) -> None:
    """A reload of all until 12 that ends when its entry is put; a worker has come to 11."""
    lake.take(*rows(0, 11))
    with pytest.MonkeyPatch.context() as patch, reloading(lake) as reload:
        reload.apply(batch(*rows(0, 10)))

        def die(*_: Any) -> Any:
            raise Cut("dead")

        def catch_up(marks: Any) -> Any:
            reload.apply(batch(*rows(10, 12)))
            return {PLACE: 12}

        patch.setattr(SparkReload, "_see_followed", die)
        with pytest.raises(Cut):
            reload.take_over({PLACE: 10}, catch_up)


WHERE = [each for each in POINTS if "views" not in each and each != "within a removal"]


@pytest.mark.parametrize(
    "point",
    [pytest.param(each, marks=() if each == "when that is told" else pytest.mark.soak) for each in WHERE],
)
def test_a_worker_brings_in_what_a_dead_reload_has_put_wherever_it_dies_itself(
    lake: Lake, point: str
) -> None:
    lake.take(*rows(0, 10))
    lake.sink().merge()
    spoil(lake)
    lake.take(*rows(10, 11))
    put_and_died(lake)
    assert left(lake)
    lake.take(*rows(11, 13))
    target, name, cut = POINTS[point]
    cuts = 0
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, cut)
            try:
                lake.sink().merge()
            except (Cut, SparkFailure):
                cuts += 1
        lake.crash()
        lake.take(*rows(11, 13))
    assert cuts
    lake.sink().merge()
    assert lake.rows() == lake.view() == model(13)
    lake.take(row(13))
    assert lake.view() == model(14)
    notes = [each.userMetadata or "" for each in lake.sql("DESCRIBE HISTORY {t}").collect()]
    assert sum('"step":"rows"' in each for each in notes) == 1


@pytest.mark.soak
def test_a_worker_that_follows_it_late_does_not_take_later_rows_back(lake: Lake) -> None:
    lake.take(*rows(0, 5))
    lake.sink().merge()
    late = other_worker(lake)._work.following
    put_and_died(lake)
    lake.take(*rows(11, 12))
    [statement] = [each.statement for each in lake.sink()._log.segments if each.statement is not None]
    lake.take(*rows(12, 15))
    lake.sink().merge()
    assert lake.rows() == model(15)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("handlers.spark.ddl.target.notes_in_files", lambda *_: [])
        late.follow_entry(statement)
    assert lake.rows() == model(15)


@pytest.mark.soak
def test_new_rows_that_are_gone_are_told_and_nothing_is_taken_for_them(lake: Lake) -> None:
    lake.take(*rows(0, 5))
    lake.sink().merge()
    put_and_died(lake)
    folder = lake.folder / "lake" / FOLDER
    folder.rename(folder.with_name("moved"))
    lake.take(*rows(12, 13))
    with pytest.raises(SparkFailure, match=r"shop\.orders, loaded again: .*new rows, is missing"):
        lake.sink().merge()
    assert lake.rows() == model(11)
    folder.with_name("moved").rename(folder)
    lake.sink().merge()
    assert lake.rows() == model(13)


@pytest.mark.soak
@pytest.mark.usefixtures("told_to_merge")
def test_what_a_killed_reload_left_is_removed_by_a_later_one_once_nobody_can_need_it(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    lake.take(*rows(0, 5))
    lake.sink().merge()
    put_and_died(lake)
    now = time.time
    monkeypatch.setattr("handlers.spark.reloading.reload.time.time", lambda: now() + 48 * 3600)
    with reloading(lake):
        assert len(left(lake)) == 1, "its entry is not followed yet"
    other = make_lake(mode="history", path="lake/{database}/{table}_history")
    other.take(row(0))
    with reloading(other):
        assert len(left(lake)) == 1, "nor is it another handler's"
    lake.take(*rows(11, 12))
    lake.sink().merge()
    monkeypatch.setattr("handlers.spark.reloading.reload.time.time", now)
    with reloading(lake):
        assert len(left(lake)) == 1, "it may be put yet"
    monkeypatch.setattr("handlers.spark.reloading.reload.time.time", lambda: now() + 48 * 3600)
    with reloading(lake):
        assert left(lake) == []


def in_packs(give: Callable[..., None], *changes: Change) -> None:
    """Until it is durable, also there."""
    while True:
        try:
            give(*changes)
        except AskAgain as again:
            time.sleep(again.seconds)
        else:
            return


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 12))
def test_in_whatever_order_all_go_on_the_table_is_whole(make_lake: MakeLake, seed: int) -> None:
    """Two workers that both hold the table, merges and a reload, step by step."""
    at_random = random.Random(seed)
    lake = make_lake(shared_segments="10ms") if seed % 2 else make_lake()
    lake.take(*rows(0, 4))
    lake.sink().merge()
    spoil(lake)
    other = other_worker(lake)
    sent = {"lake": 4, "other": 4, "read": 0}

    def send(who: str, give: Callable[..., None]) -> None:
        end = sent[who] + at_random.randint(1, 4)
        if at_random.random() < 0.3:
            end = max(end, *sent.values())
        give(*rows(max(0, sent[who] - at_random.randint(0, 3)), end))
        sent[who] = end

    with reloading(lake) as reload:

        def read(*_: Any) -> Any:
            send("read", lambda *changes: reload.apply(batch(*changes)))
            return {PLACE: sent["read"]}

        def merge() -> None:
            in_packs(lake.take, row(0))  # so that it serves the log again
            lake.sink().merge()

        steps: dict[str, Callable[[], Any]] = {
            "lake": lambda: send("lake", partial(in_packs, lake.take)),
            "other": lambda: send("other", partial(in_packs, partial(take, other))),
            "merge": merge,
            "other merges": other.merge,
            "read": read,
        }
        done = False
        for _ in range(200):
            steps[at_random.choice(list(steps))]()
            if at_random.random() < 0.3:
                try:
                    reload.take_over({PLACE: sent["read"]}, read)
                except (Behind, Refused):
                    continue
                done = True
                break
        assert done
        for _ in range(6):
            steps[at_random.choice(["lake", "other", "merge", "other merges"])]()
    in_packs(lake.take, *rows(4, max(sent.values()) + 1))
    lake.sink().merge()
    assert lake.rows() == model(max(sent.values()) + 1)
