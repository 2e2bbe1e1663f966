"""What of a worker's status fits on a screen, and in which order."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pytest
from example_worker import status_at
from rich.cells import cell_len
from rich.console import Console, RenderableType

from worker.http.watch import Sources, Watch
from worker.observing.overview.figures import Rates, lanes_by_trouble, partitions_by_trouble, ranked
from worker.observing.status import CheckpointStatus, KafkaStatus, Pause, StuckStatus, WorkerStatus
from worker.observing.visible_text import age, duration, printable, size
from worker.terminal.view import LiveView, Snapshot, full_view, summary_line

NOW = datetime(2026, 11, 21, 10, 0, 12, tzinfo=UTC)


def drawn(view: RenderableType, width: int = 80, height: int = 24) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, height=height, highlight=False, color_system=None).print(view)
    return text.getvalue().rstrip("\n").split("\n")


def live(status: WorkerStatus, rates: Rates | None = None, lost: str | None = None) -> LiveView:
    return LiveView(Snapshot(status, NOW), rates or Rates(), "http://localhost:8080", lost)


def hidden(lines: list[str]) -> list[int]:
    return [int(found.group(1).replace(",", "")) for line in lines if (found := _MORE.match(line))]


_MORE = re.compile(r"\.\.\. and ([\d,]+) more")


@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (60, 24), (40, 20), (30, 40), (100, 30), (132, 43), (200, 60), (80, 100)]
)
@pytest.mark.parametrize(
    ("shards", "lanes", "partitions"), [(1, 4, 1), (6, 16, 12), (125, 100, 64), (0, 1, 0)]
)
def test_the_live_view_fits_the_screen(
    width: int, height: int, shards: int, lanes: int, partitions: int
) -> None:
    # As many Spark tables as there are others: no room is kept for them when others need it.
    status = status_at(100, shards=shards, lanes=lanes, partitions=partitions, waiting=8 * shards)
    lines = drawn(live(status), width=width, height=height)
    assert len(lines) <= height
    assert max(cell_len(line) for line in lines) <= width
    assert lines[-1].strip() == "q quits"
    assert any(line.startswith("Tables") for line in lines)
    assert any(line.startswith("Lanes") for line in lines)
    assert any(line.startswith("Partitions") for line in lines)


def test_long_lists_say_how_many_they_leave_out() -> None:
    lines = drawn(live(status_at(100, shards=125, lanes=100, partitions=64)))
    tables, lanes, partitions = hidden(lines)
    title = re.compile("Tables|Lanes|Partitions|q quits")
    titles = [number for number, line in enumerate(lines) if title.match(line)]
    shown = [end - begin - 2 for begin, end in pairwise(titles)]
    assert (tables, partitions) == (1_000 - shown[0], 64 - shown[2])
    assert lanes == 100 - 2 * shown[1]


def test_tables_that_the_worker_does_not_tell_of_are_counted() -> None:
    status = msgspec.structs.replace(status_at(100, shards=1), tables_omitted=9_000)
    for lines in (drawn(live(status), height=60), drawn(full_view(Snapshot(status, NOW)), width=160)):
        assert any(line.startswith("Tables 9,008") for line in lines)
        assert hidden(lines) == [9_000]


def test_nothing_is_left_out_when_there_is_room() -> None:
    lines = drawn(live(status_at(100, shards=1)), height=60)
    assert hidden(lines) == []
    for table in status_at(100, shards=1).tables:
        assert any(line.startswith(table.table[:20]) for line in lines)
    assert sum(line.startswith("cdc.shop [") for line in lines) == 12


def test_the_whole_view_leaves_nothing_out_and_shows_errors_in_full() -> None:
    text = "\n".join(drawn(full_view(Snapshot(status_at(100, shards=20), NOW)), width=160))
    for table in status_at(100, shards=20).tables:
        assert table.table in text
    assert "on_failure: halt" in " ".join(text.split())
    assert "Records/s" not in text  # one answer has no rates
    assert "checkpoint 7 s ago" in text


def test_trouble_comes_first_and_the_rest_keeps_its_place() -> None:
    early, late = status_at(100), status_at(101)
    assert [table.table for table in ranked(early.tables)[:2]] == ["shop_00.payments", "shop_01.stock"]
    assert [table.table for table in ranked(early.tables)] == [table.table for table in ranked(late.tables)]
    assert partitions_by_trouble(early)[0].paused
    lags = [each.lag or 0 for each in partitions_by_trouble(early)[1:]]
    assert lags == sorted(lags, reverse=True)
    full = [lane.queued_records >= 9_000 for lane in lanes_by_trouble(status_at(101))]
    assert any(full)
    assert full == sorted(full, reverse=True)


def test_a_late_table_counts_as_trouble() -> None:
    status = status_at(100, shards=1)
    late = msgspec.structs.replace(status.tables[-1], state="queued", delay_seconds=61.0)
    status = msgspec.structs.replace(status, tables=[*status.tables[:-1], late])
    assert [table.state for table in ranked(status.tables)[:2]] == ["blocked", "queued"]
    assert ranked(status.tables)[1] is late


def test_rates_are_growth_over_the_workers_own_time() -> None:
    rates = Rates.between(status_at(100, shards=1), status_at(110, shards=1))
    assert rates.tables["shop_00.orders", 0] == 900
    assert rates.partitions["cdc.shop", 3] == 1_100
    assert rates.total == pytest.approx(sum(rates.tables.values()))


def test_there_are_no_rates_for_a_first_answer_or_across_a_restart() -> None:
    assert Rates.between(None, status_at(100)) == Rates()
    assert Rates.between(status_at(100), status_at(3)) == Rates()


def test_a_table_that_has_just_come_counts_in_the_total_only() -> None:
    rates = Rates.between(status_at(100, shards=0), status_at(110, shards=1))
    assert rates.tables == {}
    assert rates.total is not None
    assert rates.total > 0


def test_the_page_tells_the_rate_that_the_terminal_tells() -> None:
    before, after = status_at(100, shards=0), status_at(110, shards=1)
    statuses, seconds = iter((before, after)), [0.0]
    watch = Watch(Sources(status=lambda: next(statuses)), clock=lambda: seconds[0])
    assert msgspec.json.decode(watch.live())["rate"] is None
    seconds[0] += 10
    assert msgspec.json.decode(watch.live())["rate"] == Rates.between(before, after).total


def test_the_summary_says_what_is_wrong_before_anything_else() -> None:
    status = status_at(100)
    line = summary_line(Snapshot(status, NOW), Rates.between(status_at(90), status))
    assert line.startswith("10:00:12 running · 1 blocked · 1 retrying · 1 paused · lag 109,134 · ")
    assert "/s · checkpoint 7 s ago · lanes " in line
    assert "/256 MiB)" in line


def test_a_lag_that_is_not_known_for_every_partition_is_not_summed() -> None:
    status = status_at(100)
    unknown = msgspec.structs.replace(status.partitions[0], lag=None)
    status = msgspec.structs.replace(status, partitions=[unknown, *status.partitions[1:]])
    assert "lag - ·" in summary_line(Snapshot(status, NOW), Rates())


def test_faults_of_the_worker_and_its_checkpoint_are_shown() -> None:
    status = msgspec.structs.replace(
        status_at(100),
        state="halted",
        error="table shop.orders is blocked",
        checkpoint=CheckpointStatus(last_success=None, last_error="state/: No space left on device"),
    )
    lines = drawn(live(status, lost="connection refused"), height=50)
    assert lines[1].startswith("The worker stops because of an error (and ")
    assert lines[3:6] == [
        "No newer answer: connection refused",
        "table shop.orders is blocked",
        "checkpoint: state/: No space left on device",
    ]
    assert "checkpoint none yet" in lines[2]


def test_that_no_batch_begins_is_shown() -> None:
    kafka = KafkaStatus(up=True, unconfirmed_seconds=75.0)
    lines = drawn(live(msgspec.structs.replace(status_at(100), kafka=kafka)), height=50)
    assert lines[1].startswith("No batch starts: for 75 s the group's coordinator")
    assert lines[3].startswith("No batch starts: for 75 s the group's coordinator has accepted no commit")


def test_names_and_errors_cannot_command_the_terminal() -> None:
    status = status_at(100, shards=1)
    evil = msgspec.structs.replace(
        status.tables[0], table="shop.\x1b[2Jx", state="blocked", error="a\x1b]0;title\x07\nb [red]c[/red]"
    )
    status = msgspec.structs.replace(status, tables=[evil], name="shop\x9b2J")
    for view in (live(status), full_view(Snapshot(status, NOW))):
        text = "\n".join(drawn(view, width=120))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        assert "shop.\N{REPLACEMENT CHARACTER}[2Jx" in text
        assert "[red]c[/red]" in text


def test_wide_characters_keep_the_width() -> None:
    status = status_at(100, shards=1)
    wide = [
        msgspec.structs.replace(each, table=f"商店.{'订单明细' * 12}{each.lane}") for each in status.tables
    ]
    lines = drawn(live(msgspec.structs.replace(status, tables=wide)))
    assert max(cell_len(line) for line in lines) <= 80


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_200, "2 h"),
    ],
)
def test_durations_have_the_unit_that_reads_best(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_ages_sizes_and_foreign_text_read_well() -> None:
    assert age(None, NOW) == "none yet"
    assert age("2026-11-21T10:00:13Z", NOW) == "0 s ago"  # a clock that is a little behind
    assert age("2026-11-21T09:00:12+00:00", NOW) == "60 min ago"
    assert [size(0), size(1_023), size(1_024), size(5 * 2**20), size(3 * 2**30)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "5 MiB",
        "3.0 GiB",
    ]
    assert printable("one\n  two\tthree") == "one two three"


def test_every_pause_is_shown_and_its_tables_are_no_alarm() -> None:
    status = status_at(100, shards=1, lanes=2, partitions=2)
    pauses = [Pause(table=f"shop.t{n}", by="ann@laptop", since=NOW, reason="a \x1b move") for n in range(2)]
    tables = [
        msgspec.structs.replace(each, state="paused", error="paused by ann") for each in status.tables[:2]
    ]
    text = "\n".join(
        drawn(
            full_view(Snapshot(msgspec.structs.replace(status, tables=tables, pauses=pauses), NOW)), width=250
        )
    )
    for number in range(2):
        told = f"shop.t{number} is paused by ann@laptop since {NOW:%Y-%m-%d %H:%M:%S} UTC: a \ufffd move"
        assert told in text
        assert f"binlane resume CONFIG --table shop.t{number}" in text
    assert f"{tables[0].table}: paused by ann" not in text


def test_a_stuck_record_is_told_with_what_keeps_it() -> None:
    status = status_at(100, shards=1, lanes=2, partitions=2)
    stack = (
        '  File "threading.py", line 1, in run\n    run()\n  File "jdbc.py", line 7, in wait\n    read()\n'
    )
    hangs = StuckStatus(
        offset=17,
        seconds=600,
        behind=4_000,
        table="shop.orders",
        lane=3,
        state="running",
        handler="mirror",
        handler_seconds=600,
        stack=stack,
    )
    halted = StuckStatus(
        offset=4, seconds=900, behind=1_000_000, table="shop.stock", lane=1, state="halted", error="no column"
    )
    first, second = status.partitions
    partitions = [
        msgspec.structs.replace(first, stuck=hangs),
        msgspec.structs.replace(second, stuck=halted, paused=True, paused_by="max_ahead"),
    ]
    told = msgspec.structs.replace(status, partitions=partitions)
    lines = drawn(full_view(Snapshot(told, NOW)), width=250)
    assert [line.rstrip() for line in lines[2:] if "stuck at" in line] == [
        "cdc.shop[1] stuck at offset 4 of shop.stock (lane 1) for 15 min, halted, 1,000,000 records since, "
        "so the partition is not read (max_ahead): no column",
        "cdc.shop[0] stuck at offset 17 of shop.orders (lane 3) for 10 min, running, "
        'handler mirror for 10 min at File "jdbc.py", line 7, in wait, 4,000 records since',
    ]
    assert sum(line.startswith("cdc.shop [") and " stuck " in line for line in lines) == 2
