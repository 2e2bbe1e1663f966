"""What is wrong with a worker, and the commands that help."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from example_worker import status_at

from worker.observing.overview.troubles import headline, troubles
from worker.observing.status import (
    CheckpointStatus,
    KafkaStatus,
    Pause,
    StuckStatus,
    TableStatus,
    TargetStatus,
    WorkerStatus,
)


def calm() -> WorkerStatus:
    """All is well."""
    status = status_at(100, shards=1, lanes=4, partitions=3)
    return msgspec.structs.replace(
        status,
        tables=[
            msgspec.structs.replace(each, state="idle", error=None, delay_seconds=None)
            for each in status.tables
        ],
        lanes=[
            msgspec.structs.replace(each, running_table=None, running_seconds=None) for each in status.lanes
        ],
        partitions=[msgspec.structs.replace(each, lag=0, paused=False) for each in status.partitions],
    )


def halted(**others: object) -> TableStatus:
    table = msgspec.structs.replace(
        calm().tables[0],
        state="blocked",
        halted=True,
        error="no column note",
        topic="cdc.shop",
        partition=2,
        offset=4711,
    )
    return msgspec.structs.replace(table, **others)


def with_table(table: TableStatus, **others: object) -> WorkerStatus:
    status = calm()
    return msgspec.structs.replace(status, tables=[*status.tables[1:], table], **others)


def test_all_well_is_said_in_one_line() -> None:
    found = troubles(calm())
    assert found == []
    assert headline(calm(), found) == ("good", "All well: 8 tables, 3 partitions, nothing waits")


def test_a_blocked_table_tells_its_error_its_place_and_the_command_that_helps() -> None:
    (trouble,) = troubles(with_table(halted()), "/etc/binlane/shop.yaml")
    assert (trouble.level, trouble.table, trouble.error) == ("bad", "shop_00.orders", "no column note")
    assert trouble.what == "shop_00.orders is blocked at cdc.shop[2] offset 4711"
    assert trouble.commands == [
        "binlane unblock /etc/binlane/shop.yaml --table shop_00.orders "
        "--topic cdc.shop --partition 2 --offset 4711 --skip"
    ]
    level, line = headline(with_table(halted()), [trouble])
    assert level == "bad"
    assert line.startswith("shop_00.orders is blocked at cdc.shop[2] offset 4711. Fix the cause")


def test_a_dead_letter_is_proposed_where_there_is_a_topic_for_it() -> None:
    letters = [TargetStatus(handler="__dead_letter__", up=True)]
    (trouble,) = troubles(with_table(halted(), targets=letters))
    assert [each.rsplit(" ", 1)[1] for each in trouble.commands] == ["--dead-letter", "--skip"]


@pytest.mark.parametrize("name", ["shop.x; rm -rf /", "shop.$(reboot)", "shop.a'b\"c", "shop.订单 明细"])
def test_a_table_s_name_is_one_word_of_the_command(name: str) -> None:
    (trouble,) = troubles(with_table(halted(table=name)))
    words = shlex.split(trouble.commands[0])
    assert words[words.index("--table") + 1] == name


def test_a_name_that_a_terminal_would_obey_gets_no_command() -> None:
    (trouble,) = troubles(with_table(halted(table="shop.a\x1b[201~reboot\r")))
    assert trouble.commands == []


def test_tables_that_wait_for_a_target_are_one_trouble_of_the_target() -> None:
    down = [TargetStatus(handler="mirror", up=False, error="refused", down_seconds=90.0)]
    status = calm()
    tables = [
        msgspec.structs.replace(each, state="blocked", error="refused", offset=1) for each in status.tables
    ]
    (trouble,) = troubles(msgspec.structs.replace(status, tables=tables, targets=down), "shop.yaml")
    assert trouble.what.startswith("Target mirror is down for 90 s: ")
    assert trouble.what.endswith(" and 6 more tables wait")
    assert trouble.error == "refused"
    assert trouble.commands == ["binlane check shop.yaml --connect"]


def test_of_a_schema_registry_the_partitions_wait_and_not_the_tables_of_others() -> None:
    down = [TargetStatus(handler="__schema_registry__", up=False, error="refused", down_seconds=90.0)]
    status = calm()
    partitions = [
        msgspec.structs.replace(status.partitions[0], paused=True, paused_by="schema_registry"),
        *status.partitions[1:],
    ]
    table = halted(halted=False, error="the disk is full")
    status = with_table(table, partitions=partitions, targets=down)
    registry, blocked = troubles(status, "shop.yaml")
    assert (blocked.table, blocked.error) == (table.table, "the disk is full")
    name = f"{partitions[0].topic}[{partitions[0].partition}]"
    assert registry.what == f"The schema registry is down for 90 s: {name} waits"
    assert "tables" not in registry.do


def test_the_worst_comes_first_and_the_headline_counts_the_others() -> None:
    status = with_table(
        halted(),
        kafka=KafkaStatus(up=False, unconfirmed_seconds=20.0),
        checkpoint=CheckpointStatus(last_success=None, last_error="state/: No space left on device"),
    )
    retrying = msgspec.structs.replace(status.tables[0], state="retrying", error="refused")
    status = msgspec.structs.replace(status, tables=[retrying, *status.tables[1:]])
    found = troubles(status)
    assert [each.level for each in found] == ["bad"] * 4 + ["warn"]
    assert found[0].what == "No Kafka broker can be reached"
    assert headline(status, found)[1].startswith("No Kafka broker can be reached (and 4 other problems). ")


def test_a_batch_that_is_retried_needs_a_restart_for_changed_code() -> None:
    """A worker imports a module once, so it does not see the correction of a handler or a transform."""
    status = calm()
    retrying = msgspec.structs.replace(status.tables[0], state="retrying", error="KeyError: 'nmae'")
    [found] = troubles(msgspec.structs.replace(status, tables=[retrying, *status.tables[1:]]))
    assert found.do == (
        "Fix what the error names. Processing then continues by itself. "
        "If you change Python code, restart the worker."
    )


def test_partitions_without_a_first_commit_are_told_with_the_cause() -> None:
    status = calm()
    waits = msgspec.structs.replace(
        status.partitions[0], paused=True, paused_by="first_commit", first_commit_seconds=20.0
    )
    status = msgspec.structs.replace(
        status,
        partitions=[waits, *status.partitions[1:]],
        kafka=KafkaStatus(up=True),
        checkpoint=CheckpointStatus(last_success=None, last_error="Kafka refused the commit"),
    )
    name = f"{waits.topic}[{waits.partition}]"
    found = [each for each in troubles(status) if each.what.startswith(name)]
    assert [(each.level, each.error) for each in found] == [("bad", "Kafka refused the commit")]
    assert found[0].what == f"{name} not handled: for 20 s Kafka has accepted no commit of its start offset"
    assert "No batch starts" not in " ".join(each.what for each in troubles(status))


def test_a_stuck_record_is_told_once_with_its_table_if_that_is_blocked() -> None:
    head = StuckStatus(
        offset=4711, seconds=900, behind=12_000, table="shop_00.orders", lane=3, state="halted", error="x"
    )
    status = with_table(halted())
    stuck = [msgspec.structs.replace(status.partitions[0], stuck=head), *status.partitions[1:]]
    (trouble,) = troubles(msgspec.structs.replace(status, partitions=stuck))
    assert trouble.what.endswith("offset 4711 for 15 min, 12,000 records since")
    hangs = msgspec.structs.replace(
        head, table="shop_00.stock", state="running", handler="mirror", handler_seconds=890
    )
    stuck = [msgspec.structs.replace(status.partitions[0], stuck=hangs), *status.partitions[1:]]
    found = troubles(msgspec.structs.replace(calm(), partitions=stuck), "my shop.yaml")
    assert found[0].what == (
        "cdc.shop[0] stuck at offset 4711 of shop_00.stock (lane 3) for 15 min, running, "
        "handler mirror for 14 min, 12,000 records since"
    )
    assert found[0].commands == ["binlane checkpoint show 'my shop.yaml'"]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("state", "starting", "The worker is starting"),
        ("state", "draining", "The worker is draining"),
        ("error", "SomeError: gone", "The worker stops because of an error"),
    ],
)
def test_the_worker_s_own_state_is_told(field: str, value: str, told: str) -> None:
    found = troubles(msgspec.structs.replace(calm(), **{field: value}))
    assert found[0].what.startswith(told)


def test_a_long_batch_a_standstill_and_a_late_table_are_told() -> None:
    status = calm()
    lane = msgspec.structs.replace(status.lanes[0], running_table="shop.big", running_seconds=700.0)
    stands = msgspec.structs.replace(status.partitions[0], standstill_seconds=75.0)
    late = msgspec.structs.replace(status.tables[0], state="queued", delay_seconds=300.0)
    status = msgspec.structs.replace(
        status,
        lanes=[lane],
        partitions=[stands],
        tables=[late],
        handlers=[{"handler": "lake", "tables": [{"table": "shop.a", "error": "no room"}]}],
    )
    assert [(each.level, each.what.split(":")[0]) for each in troubles(status)] == [
        ("bad", "cdc.shop[0] has returned no records for 75 s"),
        ("warn", "Handler lake could not merge shop.a"),
        ("warn", "Lane 0 has run one batch of shop.big for 11 min"),
        ("busy", "shop_00.orders is behind its source by up to 5 min"),
    ]


def test_full_lanes_are_told() -> None:
    status = with_table(halted(state="running", halted=False, error=None))
    full = [msgspec.structs.replace(each, paused=True, paused_by="lanes") for each in status.partitions]
    told = [(each.level, each.what) for each in troubles(msgspec.structs.replace(status, partitions=full))]
    assert ("busy", "The lanes are full: 3 partitions paused until there is room") in told


def test_a_pause_is_no_failure_and_says_who_why_and_how_it_ends() -> None:
    since = datetime.now(UTC) - timedelta(hours=3)
    mirror = Pause(table="shop.*", handler="the mirror", by="ann@laptop", since=since, reason="a move")
    paused = TableStatus(
        table="shop.orders",
        lane=0,
        finished_records=0,
        failed_batches=0,
        state="paused",
        error=mirror.told,
        delay_seconds=3_600,
    )
    status = with_table(paused, pauses=[mirror, Pause(table="a\x1b.b", by="ann", since=since)])
    found = troubles(status, worker="w:1")
    assert [each.level for each in found] == ["busy"] * 2
    assert found[0].what == (
        f"shop.* (handler the mirror) has been paused by ann@laptop since {since:%Y-%m-%d %H:%M:%S} UTC: "
        "a move (3 h)"
    )
    [command] = found[0].commands
    assert shlex.split(command)[1:] == ["resume", "w:1", "--table", "shop.*", "--handler", "the mirror"]
    assert found[1].commands == [], "it would command the terminal"
    assert headline(status, found)[0] == "busy"


def test_each_target_that_is_down_is_told_with_its_own_tables() -> None:
    status = calm()
    names = ["shop.by_sql", "shop.by_redis", "shop.by_hook", "shop.of_letters"]
    errors = ["refused (handler sql)", "refused (handler redis)", "busy (handler hook)", "refused"]
    tables = [
        msgspec.structs.replace(status.tables[0], table=name, state="blocked", error=error)
        for name, error in zip(names, errors, strict=True)
    ]
    targets = [
        TargetStatus(handler="sql", up=False, error="refused", down_seconds=5.0),
        TargetStatus(handler="redis", up=False, error="refused", down_seconds=5.0),
        TargetStatus(handler="hook", up=True),
        TargetStatus(handler="__dead_letter__", up=False, error="refused", down_seconds=5.0),
    ]
    found = [each.what for each in troubles(msgspec.structs.replace(status, tables=tables, targets=targets))]
    assert found == [
        "Target sql is down for 5.0 s: shop.by_sql and shop.of_letters wait",
        "Target redis is down for 5.0 s: shop.by_redis and shop.of_letters wait",
        "The dead-letter topic is down for 5.0 s: shop.of_letters waits",
        "shop.by_hook is blocked",
    ]
