"""What stands: partitions whose first unfinished record is stuck, a line each."""

from __future__ import annotations

from worker.observing.status import PartitionStatus, WorkerStatus
from worker.observing.visible_text import count, duration


def stuck_alarms(status: WorkerStatus) -> list[str]:
    """What holds up each partition, the longest first."""
    found = [(each, each.stuck) for each in status.partitions if each.stuck is not None]
    found.sort(key=lambda pair: -pair[1].seconds)
    lines = []
    for partition, stuck in found:
        where = f"{partition.topic}[{partition.partition}] stuck at offset {stuck.offset}"
        if stuck.table is not None:
            where += f" of {stuck.table} (lane {stuck.lane})"
        parts = [f"{where} for {duration(stuck.seconds)}", stuck.state]
        if stuck.handler is not None:
            call = _last_call(stuck.stack)
            parts.append(f"handler {stuck.handler} for {duration(stuck.handler_seconds)}{call}")
        if stuck.held_by is not None:
            parts.append(f"waits for {stuck.held_by}")
        parts.append(f"{count(stuck.behind)} records since{_paused(partition)}")
        lines.append(": ".join((", ".join(parts), *filter(None, (stuck.error,)))))
    return lines


def _last_call(stack: str | None) -> str:
    """Where the handler's thread is: the innermost call of its stack."""
    calls = [line.strip() for line in (stack or "").splitlines() if line.lstrip().startswith("File ")]
    return f" at {calls[-1]}" if calls else ""


def _paused(partition: PartitionStatus) -> str:
    return ", so many that it is not read (max_ahead)" if partition.paused_by == "max_ahead" else ""
