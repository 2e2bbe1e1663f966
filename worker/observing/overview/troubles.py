"""Find a worker's problems, worst first, with remedies and commands."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from worker.observing.overview import figures
from worker.observing.overview.of_reading import of_reading, why
from worker.observing.overview.of_rules import notes, of_rules
from worker.observing.overview.of_systems import not_begun, of_kafka, of_targets, waits_for
from worker.observing.overview.trouble import (
    DEAD_LETTERS,
    SCHEMAS,
    UNDECODABLE,
    Trouble,
    names,
    place,
    plural,
    short,
)
from worker.observing.status import PartitionStatus, TableStatus, WorkerStatus
from worker.observing.visible_text import count, duration

_RANK = {"bad": 0, "warn": 1, "busy": 2}
_SAID = ("BinlaneAlwaysFull", "BinlaneTableWaits")
"""What the cause itself says."""
_MOST_BELOW = 20
_LONG_SECONDS = 60.0
"""A batch that runs longer is reported."""


def headline(status: WorkerStatus, found: list[Trouble]) -> tuple[str, str]:
    """Return (good, busy, warn or bad; one line). The line says that all is well, or the worst problem."""
    if not found:
        tables = status.tables_omitted + sum(table.table != UNDECODABLE for table in status.tables)
        lag = sum(each.lag or 0 for each in status.partitions)
        behind = "nothing waits" if figures.lag_of(status) == 0 else f"lag {count(lag)}"
        partitions = plural(len(status.partitions), "partition")
        well = f"All well: {plural(tables, 'table')}, {partitions}, {behind}"
        return "good", ". ".join([well, *notes(status)])
    first = found[0]
    more = f" (and {plural(len(found) - 1, 'other problem')})" if len(found) > 1 else ""
    return first.level, f"{first.what}{more}{'. ' + first.do if first.do else ''}"


def troubles(status: WorkerStatus, config: str | None = None, worker: str | None = None) -> list[Trouble]:
    """Return all problems, worst first. For the commands: `config` is the configuration file (None: as the
    worker reports it), `worker` the URL of the worker if it is known."""
    config = config or status.config or "CONFIG"
    cause = None if not_begun(status) else of_reading(status)
    found = [
        *_of_worker(status),
        *of_kafka(status, config, worker or config),
        *([] if cause is None else [cause]),
        *_of_commits(status),
        *of_rules(status, config),
        *_of_pauses(status, worker or config),
        *_of_tables(status, config, worker or config),
        *_of_partitions(status, config, worker or config),
        *_of_handlers(status),
        *_of_lanes(status),
        *_of_lag(status),
    ]
    found = found if cause is None else _under(cause, found)
    return sorted(found, key=lambda each: _RANK[each.level])


def _under(cause: Trouble, found: list[Trouble]) -> list[Trouble]:
    """Put below the cause what waits for it, and what else concerns its table."""
    same = [
        each for each in found if each is not cause and each.table is not None and each.table == cause.table
    ]
    below = [each for each in found if each in same or each.waits]
    commands = dict.fromkeys(command for each in same for command in each.commands)
    told = [each.what for each in below if each.runbook not in _SAID]
    level = min((each.level for each in (cause, *same) if not each.waits), key=_RANK.__getitem__)
    whole = msgspec.structs.replace(cause, level=level, commands=list(commands), below=told[:_MOST_BELOW])
    return [whole if each is cause else each for each in found if each not in below]


def _of_lag(status: WorkerStatus) -> Iterator[Trouble]:
    when, pace = figures.outlook(status), status.pace
    if when and pace is not None:
        never = figures.caught_up_seconds(status) == math.inf
        grows = (
            f": it grows by {count(pace.lag_growth)} records/s"
            if never and (pace.lag_growth or 0) >= 1
            else ""
        )
        yield Trouble(
            level="warn" if never else "busy",
            what=f"Lag {count(figures.lag_of(status))}, {when}, with {count(pace.rate)} records/s{grows}",
            do="Find the table that is late, and what it waits for." if never else "",
            runbook="BinlaneLag",
            waits=True,
        )


def _of_worker(status: WorkerStatus) -> Iterator[Trouble]:
    if status.error:
        yield Trouble(
            level="bad",
            what="The worker stops because of an error",
            error=status.error,
            do="Fix the cause. Unfinished records are read again after a restart.",
        )
    elif status.state in ("starting", "draining", "stopped"):
        doing = {
            "starting": "The worker is starting: it opens its handlers and waits for partitions",
            "draining": "The worker is draining: it finishes running batches and commits",
            "stopped": "The worker has stopped",
        }
        yield Trouble(level="busy", what=doing[status.state])


def _of_commits(status: WorkerStatus) -> Iterator[Trouble]:
    if status.checkpoint.last_error:
        yield Trouble(
            level="bad",
            what="Commits fail",
            error=status.checkpoint.last_error,
            do="Fix the cause. Commits are retried. Until one succeeds, a restart repeats more.",
        )


def _of_partitions(status: WorkerStatus, config: str, worker: str) -> Iterator[Trouble]:
    for each in status.partitions:
        if each.standstill_seconds >= 1 and each.error is None:  # otherwise reported with its error
            yield Trouble(
                level="bad",
                what=f"{place(each)} has returned no records for {duration(each.standstill_seconds)}: Kafka "
                "has more records, and nothing prevents reading them",
                do="Fetching is restarted. If that fails, so does /healthz: see standstill in the log.",
            )
    shown = {table.table for table in status.tables if table.state == "blocked"}
    stuck = [(each, each.stuck) for each in status.partitions if each.stuck is not None]
    for partition, head in sorted(stuck, key=lambda pair: -pair[1].seconds):
        if head.table in shown:  # reported with its table
            continue
        at = f" of {short(head.table)} (lane {head.lane})" if head.table is not None else ""
        parts = [
            f"{place(partition)} stuck at offset {head.offset}{at} for {duration(head.seconds)}",
            head.state,
        ]
        if head.handler is not None:
            parts.append(
                f"handler {head.handler} for {duration(head.handler_seconds)}{_last_call(head.stack)}"
            )
        if head.held_by is not None:
            parts.append(f"waits for {head.held_by}")
        parts.append(f"{count(head.behind)} records since")
        if partition.paused_by == "max_ahead":
            parts.append("so the partition is not read (max_ahead)")
        commands = [f"binlane checkpoint show {shlex.quote(config)}"]
        if head.state in ("retrying", "halted") and head.table is not None:
            commands += _unblock(
                worker, head.table, (partition.topic, partition.partition, head.offset), _letters(status)
            )
        yield Trouble(
            level="bad",
            what=", ".join(parts),
            error=head.error,
            do="docs/operations.md, When a record is stuck, says what to do in each state.",
            commands=commands,
            table=head.table,
            lane=head.lane,
            partition=place(partition),
            runbook="BinlaneHeadStuck",
            waits=head.state in ("queued", "waiting for room", "waiting for others"),
        )


def _last_call(stack: str | None) -> str:
    """Return the position of the handler's thread: the innermost call of its stack."""
    calls = [line.strip() for line in (stack or "").splitlines() if line.lstrip().startswith("File ")]
    return f" at {calls[-1]}" if calls else ""


def _of_tables(status: WorkerStatus, config: str, worker: str) -> Iterator[Trouble]:
    tables = figures.ranked(status.tables)
    halted = [table for table in tables if table.state == "blocked" and table.halted]
    waiting = [table for table in tables if table.state == "blocked" and not table.halted]
    heads = {each.stuck.table: each for each in status.partitions if each.stuck is not None}
    for table in halted:
        yield _halted(table, heads.get(table.table), worker, _letters(status))
    yield from of_targets(status, waiting, config)
    if any(not target.up and target.handler != SCHEMAS for target in status.targets):
        waiting = [table for table in waiting if waits_for(table, [t for t in status.targets if t.up])]
    if waiting:
        yield Trouble(
            level="bad",
            what=f"{_these(waiting)} blocked",
            error=waiting[0].error,
            do="Fix what the error names. Processing then continues by itself.",
            table=waiting[0].table if len(waiting) == 1 else None,
        )
    retrying = [table for table in tables if table.state == "retrying"]
    if retrying:
        first = retrying[0]
        yield Trouble(
            level="warn",
            what=f"{_these(retrying)} being retried",
            error=first.error,
            do="Fix what the error names. Processing then continues by itself. "
            "If you change Python code, restart the worker.",
            table=first.table if len(retrying) == 1 else None,
            runbook="BinlaneTableWaits",
        )
    stands = ("blocked", "retrying", "paused")
    late = [table for table in tables if table.state not in stands and figures.is_late(table)]
    if late:
        yield Trouble(
            level="busy",
            what=f"{_these(late)} behind its source by up to {duration(late[0].delay_seconds)}"
            if len(late) == 1
            else f"{_these(late)} behind their source by up to {duration(late[0].delay_seconds)}",
            do=f"{short(late[0].table)}: {'; '.join(why(late[0], status))}.",
            table=late[0].table,
            lane=late[0].lane,
            runbook="BinlaneDelay",
            waits=True,
        )


def _of_pauses(status: WorkerStatus, worker: str) -> Iterator[Trouble]:
    now = datetime.now(UTC)
    for each in status.pauses:
        seconds = max(0.0, (now - each.since).total_seconds())
        handler = "" if each.handler is None else f" --handler {shlex.quote(each.handler)}"
        command = f"binlane resume {shlex.quote(worker)} --table {shlex.quote(each.table)}{handler}"
        yield Trouble(
            level="busy",
            what=f"{each.name} has been {each.told} ({duration(seconds)})",
            commands=[command] if command.isprintable() else [],
        )


def _halted(table: TableStatus, stuck: PartitionStatus | None, worker: str, letters: bool) -> Trouble:
    what = f"{short(table.table)} is blocked"
    if table.offset is not None:
        what += f" at {short(table.topic or '')}[{table.partition}] offset {table.offset}"
    if stuck is not None and stuck.stuck is not None:
        what += f" for {duration(stuck.stuck.seconds)}, {count(stuck.stuck.behind)} records since"
    return Trouble(
        level="bad",
        what=what,
        error=table.error,
        do="Fix the cause, then change the table's rule or restart. Or set the record aside.",
        commands=_unblock_of(table, worker, letters),
        table=table.table,
        lane=table.lane,
        partition=None if table.topic is None else f"{short(table.topic)}[{table.partition}]",
        runbook="BinlaneTableBlocked",
    )


def _unblock_of(table: TableStatus, worker: str, letters: bool) -> list[str]:
    if table.offset is None or table.topic is None or table.partition is None:
        return []
    return _unblock(worker, table.table, (table.topic, table.partition, table.offset), letters)


def _unblock(worker: str, table: str, at: tuple[str, int, int], letters: bool) -> list[str]:
    """Build the commands. A name with control characters gives none: quoting does not protect a terminal."""
    if not table.isprintable():
        return []
    topic, partition, offset = at
    command = (
        f"binlane unblock {shlex.quote(worker)} --table {shlex.quote(table)} "
        f"--topic {shlex.quote(topic)} --partition {partition} --offset {offset}"
    )
    return [f"{command} --dead-letter", f"{command} --skip"] if letters else [f"{command} --skip"]


def _of_handlers(status: WorkerStatus) -> Iterator[Trouble]:
    for handler in status.handlers:
        name = str(handler.get("handler"))
        if handler.get("error"):
            yield Trouble(level="warn", what=f"Handler {name} reports an error", error=str(handler["error"]))
        failed = [each for _, each in figures.handled_tables([handler]) if each.get("error")]
        if failed:
            tables_failed = names([str(each.get("table")) for each in failed])
            yield Trouble(
                level="warn",
                what=f"Handler {name} could not merge {tables_failed}",
                error=str(failed[0]["error"]),
                do="The merge is retried. See docs/handlers/spark-tables.md, When something is wrong.",
            )


def _of_lanes(status: WorkerStatus) -> Iterator[Trouble]:
    long = [lane for lane in status.lanes if (lane.running_seconds or 0) >= _LONG_SECONDS]
    if long:
        most = max(long, key=lambda lane: lane.running_seconds or 0)
        also = f" (also long: {plural(len(long) - 1, 'other lane')})" if len(long) > 1 else ""
        yield Trouble(
            level="warn",
            what=f"Lane {most.lane} has run one batch of {short(most.running_table or '')} for "
            f"{duration(most.running_seconds)}{also}",
            do="handler_slow in the log shows what it is doing.",
            table=most.running_table,
            lane=most.lane,
            runbook="BinlaneCallHangs",
        )
    paused = sum(each.paused_by == "lanes" for each in status.partitions)
    if paused:
        yield Trouble(
            level="busy",
            what=f"The lanes are full: {plural(paused, 'partition')} paused until there is room",
            runbook="BinlaneAlwaysFull",
            waits=True,
        )


def _letters(status: WorkerStatus) -> bool:
    return any(target.handler == DEAD_LETTERS for target in status.targets)


def _these(tables: list[TableStatus]) -> str:
    return f"{names([table.table for table in tables])} {'is' if len(tables) == 1 else 'are'}"
