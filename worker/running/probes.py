"""The answers of a running worker to probes."""

from __future__ import annotations

from worker.formats.choice import NO_FORMAT
from worker.running.components import Components


def unhealthy(components: Components, now: float, patience: float) -> str | None:
    """Return which thread makes no progress, or None. `patience`: seconds that a thread may be silent."""
    history = components.history
    if history is not None and history.reason is not None:
        return history.reason
    for thread in (components.fetcher, components.committer):
        if not thread.is_alive():
            return f"the {thread.name} thread is dead"
        if now - thread.beat > patience:
            return f"the {thread.name} thread has made no progress for {now - thread.beat:.0f} s"
    processors = [each for each in components.processors if not each.dismissed]
    dead = [thread.name for thread in processors if not thread.is_alive()]
    if dead:
        return f"dead threads: {', '.join(dead)}"
    return components.standstill.reason or components.stuck.reason


def unready(components: Components) -> str | None:
    """Return what it waits for before it reads. None: it has its partitions, if the group gave it any."""
    current = components.assignments.current()
    trouble = components.errors.trouble({each.partition.topic for each in current})
    history = components.history
    if history is not None and history.waits is not None:
        return history.waits
    if not components.assignments.balanced:
        return f"no partitions assigned yet{': ' + trouble if trouble else ''}"
    if current and all(each.format is NO_FORMAT for each in current):
        topics = sorted({each.partition.topic for each in current})
        return f"nothing is read: no entry of format: matches {', '.join(topics[:5])}"
    if components.share is not None and components.share.reason is not None:
        return components.share.reason
    return trouble if trouble and not current else None
