"""Why nothing is read, and why a table is late: the cause is said first, and what waits for it below."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from test_troubles import calm

from worker.observing.overview.of_reading import why
from worker.observing.overview.troubles import headline, troubles
from worker.observing.status import Pace, StuckStatus, TableStatus, WorkerStatus

REFUSED = "connection to db.internal refused"
GROWS = Pace(rate=24.0, lag_growth=500.0, waiting=0.97)
SHRINKS = Pace(rate=900.0, lag_growth=-800.0, waiting=0.97)


def full(paused_by: str = "lanes", **table: Any) -> WorkerStatus:
    """Lane 3 has no room for what was fetched: `shop.retry_me` fills it."""
    status = calm()
    filling: dict[str, Any] = {
        "table": "shop.retry_me",
        "lane": 3,
        "lane_records": 1_964,
        "queued_records": 9_000,
        "state": "retrying",
        "error": REFUSED,
        "attempt": 54,
        "standing_seconds": 300.0,
    }
    return msgspec.structs.replace(
        status,
        waiting_seconds=290.0,
        lane_max_records=2_000,
        tables=[*status.tables[1:], msgspec.structs.replace(status.tables[0], **{**filling, **table})],
        lanes=[msgspec.structs.replace(each, waited_for=each.lane == 3) for each in status.lanes],
        partitions=[
            msgspec.structs.replace(each, paused=True, paused_by=paused_by, lag=20_000, unread=15_000)
            for each in status.partitions
        ],
    )


def with_heads(status: WorkerStatus) -> WorkerStatus:
    """What the review saw: a stuck record of the cause, victims that wait for room, and a halted table."""
    told = [
        ("shop.retry_me", "retrying"),
        ("shop_00.shipments", "waiting for room"),
        ("shop_00.stock", "halted"),
    ]
    heads = [
        StuckStatus(offset=9, seconds=280.0, behind=7, table=table, lane=3, state=state)
        for table, state in told
    ]
    partitions = [
        msgspec.structs.replace(each, stuck=head) for each, head in zip(status.partitions, heads, strict=True)
    ]
    tables = [
        msgspec.structs.replace(
            each, state="blocked", halted=True, error="a bad row", topic="cdc.shop", partition=2, offset=9
        )
        if each.table == "shop_00.stock"
        else each
        for each in status.tables
    ]
    return msgspec.structs.replace(status, partitions=partitions, tables=tables)


def test_the_cause_is_first_with_its_since_and_because_and_the_victims_are_below_it() -> None:
    status = with_heads(full())
    first, *others = found = troubles(status, "shop.yaml")
    assert (first.level, first.table, first.lane) == ("bad", "shop.retry_me", 3)
    assert re.fullmatch(
        r"Nothing is read because lane 3 is full of shop\.retry_me \(1,964 of 2,000 records\), which is "
        rf"retried since \d\d:\d\d:\d\d UTC \(5 min\), because {REFUSED}",
        first.what,
    )
    assert headline(status, found)[1].startswith(
        f"{first.what} (and 1 other problem). Fix what the error names"
    )
    assert [line.split(" for ")[0] for line in first.below] == [
        "cdc.shop[0] stuck at offset 9 of shop.retry_me (lane 3)",
        "cdc.shop[1] stuck at offset 9 of shop_00.shipments (lane 3)",
    ]
    assert any(
        command.endswith("--table shop.retry_me --topic cdc.shop --partition 0 --offset 9 --skip")
        for command in first.commands
    )
    assert [each.table for each in others] == ["shop_00.stock"], "another cause stays a problem of its own"


def test_a_slow_table_that_lets_little_through_is_the_cause_though_no_record_waits_right_now() -> None:
    calls = {"mirror": (31, 2.0, 2.1)}
    slow: dict[str, Any] = {"state": "running", "error": None, "standing_seconds": None, "calls": calls}
    status = msgspec.structs.replace(full(**slow), waiting_seconds=1.5, pace=GROWS)
    lanes = [
        msgspec.structs.replace(each, waited_for=False, running_table="shop.retry_me", running_seconds=1.2)
        for each in status.lanes
    ]
    status = msgspec.structs.replace(status, lanes=lanes)
    [cause] = troubles(status)
    assert (cause.level, cause.what) == (
        "bad",
        "Reading mostly waits because lane 3 is full of shop.retry_me (1,964 of 2,000 records), which has "
        "run a batch for 1.2 s (its handler mirror takes 2.0 s for a batch)",
    )
    assert cause.below == [
        "Lag 60,000, never caught up at this rate, with 24 records/s: it grows by 500 records/s"
    ]
    status = msgspec.structs.replace(status, pace=SHRINKS)
    assert troubles(status)[0].level == "busy", "that is how a backlog is processed"


def test_lanes_that_are_full_for_a_moment_are_no_trouble_with_a_cause() -> None:
    status = msgspec.structs.replace(full(state="running", error=None), waiting_seconds=0.4)
    assert [each.what for each in troubles(status)] == [
        "The lanes are full: 3 partitions paused until there is room"
    ]


def test_lanes_that_are_full_by_bytes_name_the_table_that_takes_most_of_them() -> None:
    status = full(lane_bytes=200 * 2**20)
    status = msgspec.structs.replace(
        status, lanes=[msgspec.structs.replace(each, waited_for=True) for each in status.lanes]
    )
    assert troubles(status)[0].what.startswith(
        "Nothing is read because the lanes are full, most of all of shop.retry_me (200 MiB of 256 MiB), which"
    )


def test_parked_records_without_room_name_the_table_that_most_of_them_are_of() -> None:
    cause = troubles(msgspec.structs.replace(full("parked"), waiting_seconds=0.0))[0]
    assert (cause.level, cause.runbook) == ("bad", "BinlaneParkingFull")
    fuller = full("parked", state="running", error=None)
    assert troubles(fuller)[0].what.startswith("3 of 3 partitions are not read"), "no lane's table stands"
    assert cause.what.startswith(
        "3 of 3 partitions are not read because parked records have no more room on disk: most are of "
        "shop.retry_me, which is retried since"
    )


@pytest.mark.parametrize(
    ("pace", "level", "what"),
    [
        (SHRINKS, "busy", "Lag 60,000, caught up in about 75 s at this rate, with 900 records/s"),
        (
            GROWS,
            "warn",
            "Lag 60,000, never caught up at this rate, with 24 records/s: it grows by 500 records/s",
        ),
        (Pace(rate=9_000.0, lag_growth=10.0), "good", "All well: 8 tables, 3 partitions, lag 60,000"),
        (None, "good", "All well: 8 tables, 3 partitions, lag 60,000"),
    ],
)
def test_the_first_line_says_how_long_the_lag_will_take(pace: Pace | None, level: str, what: str) -> None:
    status = calm()
    partitions = [msgspec.structs.replace(each, lag=20_000) for each in status.partitions]
    status = msgspec.structs.replace(status, partitions=partitions, pace=pace)
    told, line = headline(status, troubles(status))
    assert (told, line.split(". ")[0]) == (level, what)


def late(**fields: Any) -> TableStatus:
    table = full().tables[-1]
    own: dict[str, Any] = {"state": "queued", "error": None, "delay_seconds": 90.0, "held_seconds": 30.0}
    return msgspec.structs.replace(table, **{**own, **fields})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": "retrying", "error": REFUSED}, "it is retried since "),
        ({"state": "blocked", "error": REFUSED, "halted": True}, "it is blocked since "),
        ({"state": "blocked", "error": REFUSED}, "it waits for its target since "),
        ({"state": "paused", "error": "paused by ann"}, "it is paused by ann"),
        ({"waits_for": "limited"}, "it waits because of its handler's limit"),
        ({"waits_for": "gathering"}, "it gathers a fuller batch (batch.max_wait)"),
        ({"waits_for": "waiting for others"}, "it waits for other tables of its next statement"),
        ({"waits_for": "ready"}, "it waits behind shop.big, which lane 3 has run for 40 s"),
        ({"state": "running", "table": "shop.big"}, "it has run a batch for 40 s"),
    ],
)
def test_a_late_table_says_whom_it_waits_for(fields: dict[str, Any], reason: str) -> None:
    status = full()
    lanes = [
        msgspec.structs.replace(
            each, running_table="shop.big" if each.lane == 3 else None, running_seconds=40.0
        )
        for each in status.lanes
    ]
    first, fetched, unread = why(late(**fields), msgspec.structs.replace(status, lanes=lanes))
    assert first.startswith(reason)
    assert fetched == "its oldest change was 60 s old when it was fetched, 30 s ago"
    assert unread == "45,000 records are not fetched yet, 3 of their 3 partitions are paused"


def test_names_are_cut_and_written_out_and_commands_have_them_whole() -> None:
    turned, long = "shop.\u202egnp.exe", "shop." + "x" * 500
    cause = troubles(full(table=turned))[0]
    assert "full of shop.\\u202egnp.exe (" in cause.what
    cause = troubles(full(table=long))[0]
    assert long not in cause.what
    assert f"shop.{'x' * 48}…{'x' * 20} (" in cause.what
    status = with_heads(full(table=long))
    partitions = [
        msgspec.structs.replace(each, stuck=each.stuck and msgspec.structs.replace(each.stuck, table=long))
        for each in status.partitions
    ]
    status = msgspec.structs.replace(status, partitions=partitions)
    assert any(long in command for command in troubles(status)[0].commands)


def test_what_a_person_has_to_look_at_is_not_less_urgent_because_it_is_below() -> None:
    """BinlaneHeadStuck fires, so the first line must not say that the worker is only busy."""
    head = StuckStatus(
        offset=9, seconds=2_000.0, behind=7, table="shop.retry_me", lane=3, state="running", handler="sql"
    )
    status = full(state="running", error=None)
    first, *others = status.partitions
    partitions = [msgspec.structs.replace(first, stuck=head), *others]
    status = msgspec.structs.replace(status, waiting_seconds=0.5, pace=SHRINKS, partitions=partitions)
    level, line = headline(status, troubles(status))
    assert (level, line.partition(" because ")[0]) == ("bad", "Reading mostly waits")
    assert any("stuck at offset 9" in each for each in troubles(status)[0].below)
