"""What a running worker takes over of a changed configuration, and what needs a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from configuration.shorthand import ANY_TABLE

from worker.configuration import Configuration
from worker.configuration.agreement import disagreements
from worker.running.reloading import LIVE, FileWatch, compare, merge

KAFKA = {"bootstrap_servers": "localhost:9092", "group_id": "shop", "topics": ["cdc.shop"]}


def configuration(**sections: Any) -> Configuration:
    return Configuration.model_validate({"kafka": KAFKA, "tables": ANY_TABLE, **sections})


def table(**keys: Any) -> dict[str, Any]:
    return {"match": "shop.*", "handlers": [{"type": "log"}], **keys}


def test_the_same_configuration_read_twice_has_no_changes() -> None:
    same = {"tables": [table()], "lanes": {"count": 3}, "dead_letter": {"topic": "dead"}}
    assert not compare(configuration(**same), configuration(**same))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ({"lanes": {"count": 3}}, {"lanes": {"count": 5}}, "lanes.count"),
        ({"lanes": {"parked": 1_000_000}}, {"lanes": {"parked": 2_000_000}}, "lanes.parked"),
        (
            {"batch": {"max_records": 5}, "tables": [table(batch={"max_records": 4})]},
            {"batch": {"max_records": 6}, "tables": [table(batch={"max_records": 4})]},
            "batch.max_records",
        ),
        ({"tables": [table()]}, {"tables": [table(on_failure="skip")]}, "tables"),
        ({"tables": [table()]}, {"tables": [table(match="other.*")]}, "tables"),
        ({"checkpoint": {"interval": 5}}, {"checkpoint": {"interval": 6}}, "checkpoint.interval"),
        ({}, {"logging": {"level": "debug"}}, "logging.level"),
    ],
)
def test_what_a_running_worker_takes_over(old: dict[str, Any], new: dict[str, Any], path: str) -> None:
    found = compare(configuration(**old), configuration(**new))
    assert found.live == (path,)
    assert found.restart == ()


@pytest.mark.parametrize(
    ("new", "path"),
    [
        ({"kafka": {**KAFKA, "group_id": "other"}}, "kafka.group_id"),
        ({"lanes": {"order_by": "row"}}, "lanes.order_by"),
        ({"checkpoint": {"directory": "elsewhere"}}, "checkpoint.directory"),
        ({"http": None}, "http"),
    ],
)
def test_what_needs_a_restart(new: dict[str, Any], path: str) -> None:
    found = compare(configuration(), configuration(**new))
    assert path in found.restart
    assert found.live == ()


def test_a_running_worker_goes_on_with_what_it_can_take_over_and_what_it_was_started_with() -> None:
    old = configuration(lanes={"count": 3}, http=None)
    new = configuration(lanes={"count": 5, "order_by": "row"}, tables=[table()], batch={"max_records": 7})
    now = merge(old, new)
    assert (now.lanes.count, now.lanes.order_by, now.http) == (5, "table", None)
    assert now.tables[0].batch.max_records == 7
    assert compare(old, now).restart == ()
    assert compare(now, new).live == ()
    assert old.lanes.count == 3


def test_a_dead_letter_topic_that_is_new_waits_for_a_restart() -> None:
    now = merge(configuration(), configuration(dead_letter={"topic": "dead"}))
    assert now.dead_letter is None


def test_every_live_key_is_a_key() -> None:
    known = configuration(dead_letter={"topic": "dead"})
    for key in LIVE:
        found: object = known
        for part in key.split("."):
            found = getattr(found, part)


def test_a_default_batch_that_changes_changes_the_tables_too() -> None:
    old, new = ({"tables": [table()], "batch": {"max_records": n}} for n in (5, 6))
    assert compare(configuration(**old), configuration(**new)).live == ("batch.max_records", "tables")


def test_a_changed_file_is_told_once_and_not_while_it_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "binlane.yaml"
    path.write_text("a: 1")
    watch = FileWatch(path)
    assert not watch.changed()
    path.write_text("a: 2, b:")
    assert not watch.changed()
    path.write_text("a: 2, b: 3")
    assert not watch.changed()
    assert watch.changed()
    assert not watch.changed()


def test_a_file_written_anew_with_the_same_content_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "binlane.yaml"
    path.write_text("a: 1")
    watch = FileWatch(path)
    path.unlink()
    assert not watch.changed()
    path.write_text("a: 1")
    assert not watch.changed()
    assert not watch.changed()


def test_a_swapped_link_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes does it with a ConfigMap."""
    for number in (1, 2):
        (tmp_path / f"data-{number}").mkdir()
        (tmp_path / f"data-{number}" / "binlane.yaml").write_text(f"a: {number}")
    link = tmp_path / "data"
    link.symlink_to("data-1")
    watch = FileWatch(link / "binlane.yaml")
    (tmp_path / "new").symlink_to("data-2")
    (tmp_path / "new").replace(link)
    assert not watch.changed()
    assert watch.changed()


def test_a_longer_wait_in_rebalances_is_refused_where_what_would_allow_it_needs_a_restart() -> None:
    kafka = {**KAFKA, "properties": {"max.poll.interval.ms": 900_000}}
    old, new = configuration(), configuration(revoke_timeout=600, kafka=kafka)
    assert not list(disagreements(new))
    ((path, problem),) = disagreements(merge(old, new))
    assert path == ("revoke_timeout",)
    assert "max.poll.interval.ms (300 s)" in problem


def test_whole_transactions_are_refused_where_the_order_of_tables_needs_a_restart() -> None:
    old, new = configuration(lanes={"order_by": "row"}), configuration(batch={"transactions": "whole"})
    assert not list(disagreements(new))
    ((path, problem),) = disagreements(merge(old, new))
    assert path == ("lanes", "order_by")
    assert problem.startswith("tables[0].batch.transactions: whole needs lanes.order_by: table")
