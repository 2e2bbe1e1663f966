"""A topic that was made anew begins anew in Spark's tables; what marks pass over is counted and told."""

from __future__ import annotations

import msgspec
import pytest
import structlog
from spark_lake import MakeLake, change

from handlers import Change
from handlers.progress import FormerTopic


def row(number: int, name: str) -> dict[str, object]:
    return {"id": number, "name": name}


def later(one: Change) -> Change:
    """A day later, at the same place."""
    return msgspec.structs.replace(one, source_time_ms=one.source_time_ms + 86_400_000)


def test_a_replica_takes_a_topic_made_anew_from_its_beginning_and_refuses_the_former_one(
    make_lake: MakeLake,
) -> None:
    lake = make_lake()
    lake.take(*[change(offset, row(offset, "old")) for offset in range(4)], topic_id="A")
    with structlog.testing.capture_logs() as logs:
        lake.take(change(0, row(1, "new")), change(1, row(2, "new")), topic_id="B")
        lake.take(change(1, row(2, "new")), change(2, row(3, "new")), topic_id="B")
        lake.crash()
        with pytest.raises(FormerTopic, match=r"id A.*id B"):
            lake.take(change(6, row(9, "old")), topic_id="A")
        lake.take(change(2, row(3, "new")), topic_id="B")
    lake.merge()
    assert lake.rows("id, name") == [(0, "old"), (1, "new"), (2, "new"), (3, "new")]
    assert [
        (line["topic"], line["former_id"], line["topic_id"])
        for line in logs
        if line["event"] == "topic_made_anew"
    ] == [("cdc", "A", "B")]
    assert [line["count"] for line in logs if line["event"] == "changes_passed_over"] == [1, 1]
    assert lake.metrics.counts["binlane_handler_passed_over_total", "spark"] == 2
    # A table that begins with the new topic refuses the former one, too, until that is the live one again.
    lake.take(change(3, row(1, "new")), table="shop.later", topic_id="B")
    with pytest.raises(FormerTopic, match=r"id A.*id B"):
        lake.take(change(9, row(2, "old")), table="shop.later", topic_id="A")
    lake.options["topic_again"] = {"A": ["B"]}
    lake.merge()
    lake.take(change(9, row(2, "again")), table="shop.later", topic_id="A")
    lake.merge()
    assert lake.rows("id, name", path="lake/shop/later") == [(1, "new"), (2, "again")]


@pytest.mark.soak
def test_a_statement_at_the_place_of_one_of_the_former_topic_is_followed(make_lake: MakeLake) -> None:
    """What is done of a statement is noted by its place."""
    lake = make_lake()
    for topic_id in ("A", "B"):
        lake.take(change(0, row(1, topic_id)), topic_id=topic_id)
        lake.take(change(1, None, None, op="truncate", sql="TRUNCATE orders"), topic_id=topic_id)
    lake.take(change(2, row(2, "B")), topic_id="B")
    lake.merge()
    assert lake.rows("id, name") == [(2, "B")]


@pytest.mark.soak
def test_a_changelog_shows_changes_of_a_topic_made_anew_beside_those_at_the_same_places(
    make_lake: MakeLake,
) -> None:
    lake = make_lake(mode="changelog")
    lake.take(change(0, row(1, "old")), change(1, row(2, "old")), topic_id="A")
    lake.merge()
    lake.take(later(change(0, row(1, "new"))), later(change(1, row(2, "new"))), topic_id="B")
    rows = [(0, "new"), (0, "old"), (1, "new"), (1, "old")]
    assert lake.view("_offset, name") == rows
    lake.merge()
    assert lake.view("_offset, name") == lake.rows("_offset, name") == rows
