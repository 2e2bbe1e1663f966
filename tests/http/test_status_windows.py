"""Partitions' windows and the command that helps, in a terminal of any width."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from example_worker import status_at
from test_status_view import NOW, drawn, live

from worker.observing.status import StuckStatus
from worker.terminal.grids import window
from worker.terminal.view import Snapshot, full_view


def test_what_is_wrong_and_what_to_do_is_the_first_line_in_80_columns() -> None:
    status = status_at(100)
    blocked = msgspec.structs.replace(
        status.tables[2], halted=True, topic="cdc.shop", partition=3, offset=4711
    )
    assert blocked.table == "shop_00.payments"
    status = msgspec.structs.replace(status, tables=[blocked, *status.tables[3:]])
    lines = drawn(live(status))
    assert lines[0].startswith("shop-replica  running")
    assert lines[1].startswith("shop_00.payments is blocked at cdc.shop[3] offset 4711 (and ")
    command = " ".join(line.strip() for line in lines if "unblock" in line or "--offset" in line)
    assert command == (
        "binlane unblock http://localhost:8080 --table shop_00.payments --topic cdc.shop "
        "--partition 3 --offset 4711 --skip"
    )
    assert len(lines) <= 24
    assert "--skip" in "\n".join(drawn(full_view(Snapshot(status, NOW), "http://w:1"), width=200))


def test_all_well_is_the_first_line_too() -> None:
    status = status_at(100, shards=0, lanes=1, partitions=0)
    [well, *_] = drawn(live(status))[1].split(". ")
    assert well == "All well: 0 tables, 0 partitions, lag 0"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"committed": 100, "first_unfinished": 100, "position": 100, "unread": 0}, "━" * 12),
        ({"committed": 100, "first_unfinished": 100, "position": 100, "unread": 9}, "·" * 12),
        ({"committed": 100, "first_unfinished": 100, "position": 200, "unread": 0}, "┃░░░░░░░░░░░"),
        ({"committed": 0, "first_unfinished": 100, "position": 200, "unread": 0}, "━━━━━━┃░░░░░"),
        (
            {
                "committed": 100,
                "first_unfinished": 100,
                "position": 200,
                "unread": 10_000_000,
                "window": [0.0, 1.0],
            },
            "┃░░░░███····",
        ),
        ({"committed": None, "first_unfinished": None, "position": None, "unread": None}, "━" * 12),
    ],
)
def test_a_window_has_twelve_columns_whatever_it_holds(changes: dict[str, Any], text: str) -> None:
    partition = msgspec.structs.replace(status_at(100).partitions[0], **changes)
    assert window(partition).plain == text


@pytest.mark.parametrize("stuck", [False, True])
def test_a_window_shows_where_it_is_stuck(stuck: bool) -> None:
    head = StuckStatus(offset=100, seconds=600, behind=99, table="a.b", lane=1, state="halted")
    partition = msgspec.structs.replace(
        status_at(100).partitions[0], first_unfinished=100, position=200, stuck=head if stuck else None
    )
    styles = {span.style for span in window(partition).spans}
    assert ("bold red" in styles) == stuck
