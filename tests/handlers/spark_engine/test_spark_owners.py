"""Two handlers of one worker that keep tables in the same place, as two rules of a configuration do."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from integration.process import eventually
from spark_lake import TYPES, Lake, MakeLake, change


def waiting(lake: Lake) -> int:
    status = lake.handler.status()
    assert status is not None
    return sum(table["waiting_rows"] for table in status["tables"])


def test_what_one_handler_found_waiting_is_left_to_the_one_that_is_given_the_table(
    make_lake: MakeLake,
) -> None:
    first = make_lake()
    first.take(change(1, {"id": 1, "name": "of the old table"}, TYPES))
    first.crash()
    eventually(lambda: waiting(first) == 1, what="what an earlier run left is found")

    second = make_lake(merge={"keep": "2m"})
    second.take(change(2, {"id": 2, "name": "of the old table"}, TYPES))
    assert waiting(first) == 0
    second.take(change(3, None, None, op="ddl", sql="DROP TABLE orders"))
    second.take(change(4, {"id": 4, "name": "of the new table"}, TYPES))
    first.close()
    second.merge()
    assert second.rows() == [(4, "of the new table")]

    first.open()
    first.take(change(5, {"id": 5, "name": "by the first again"}, TYPES))
    first.merge()
    assert sorted(first.rows()) == [(4, "of the new table"), (5, "by the first again")]


def test_a_table_that_another_handler_has_is_renamed_though_the_statement_does_not_say_its_database(
    lake: Lake, make_lake: MakeLake
) -> None:
    lake.take(change(0, {"id": 1, "name": "a"}), table="crm.copy")
    other = make_lake(merge={"max_rows": 100_000})
    rename = "ALTER TABLE copy RENAME TO shop.moved"
    other.take(change(1, None, None, op="ddl", sql=rename), table="shop.moved")
    assert other.rows(path="lake/shop/moved") == [(1, "a")]
    assert not (lake.folder / "lake/crm/copy").exists()


def test_a_batch_does_not_wait_for_what_another_handler_merges_of_its_table(make_lake: MakeLake) -> None:
    first = make_lake(merge={"engine": "spark"})
    first.take(change(1, {"id": 1, "name": "a"}, TYPES))
    first.take(change(2, {"id": 2, "name": "b"}, TYPES))
    slots = first.handler._open._spark.slots  # type: ignore[union-attr]
    with ExitStack() as stack:
        for _ in range(slots._free):
            stack.enter_context(slots)
        merging = threading.Thread(target=first.sink().merge)
        merging.start()
        eventually(lambda: slots._waiting, what="the merge waits for its turn")
        second = make_lake(merge={"engine": "spark"})
        second.take(change(3, {"id": 3, "name": "c"}, TYPES))
        assert waiting(second) == 3
        ending = threading.Thread(target=second.close)
        ending.start()
    merging.join()
    ending.join()
    second.open()
    assert second.rows() == [(1, "a"), (2, "b"), (3, "c")]
    for each in (first, second):
        merges = {key: n for key, n in each.metrics.counts.items() if key[0] == "binlane_spark_merges_total"}
        assert merges == {("binlane_spark_merges_total", "success"): 1}
