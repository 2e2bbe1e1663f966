"""Scripts of a member whose session is over at the coordinator."""

from __future__ import annotations

from typing import Any

from .sites import PARTITIONS, Site, place, read, refusal

__all__ = ["EVICTED", "reads_on_until_it_hears_that_it_was_evicted"]

_PATIENCE_SECONDS = 40.0

EVICTED: list[Any] = [
    {0: 5},
    {0: 5},
    ["assign"],
    "UNKNOWN_MEMBER_ID",
    [("assign", PARTITIONS), ("lost", PARTITIONS), ("assign", PARTITIONS)],
    {0: 10},
]


def reads_on_until_it_hears_that_it_was_evicted(site: Site, strategy: str) -> list[Any]:
    """A fetch needs no membership, a commit does: its refusal tells, sooner than a heartbeat. What comes then
    is `lost`, not `revoke`."""
    told: list[tuple[str, int]] = []

    def assigned(it: Any, partitions: list[Any]) -> None:
        told.append(("assign", len(partitions)))
        for each in partitions:
            each.offset = 0
        (it.incremental_assign if strategy == "cooperative-sticky" else it.assign)(partitions)

    def others(kind: str) -> Any:
        return lambda it, partitions: told.append((kind, len(partitions)))

    site.write(0, 5)
    it = site.consumer(strategy, **{"heartbeat.interval.ms": 30_000})  # time enough to read on before it
    it.subscribe([site.topic], on_assign=assigned, on_revoke=others("revoke"), on_lost=others("lost"))
    seen: list[Any] = [read(site, it, {0: 5})]
    site.evict(it)
    site.write(0, 5)
    seen += [read(site, it, {0: 5}), [kind for kind, _ in told]]
    seen.append(refusal(lambda: it.commit(offsets=[place(site, 0, 10)], asynchronous=False)))
    found = 0
    end = site.now() + _PATIENCE_SECONDS
    while found < 10 and site.now() < end:
        found += sum(1 for m in it.consume(500, 0.05) if not m.error())
    return [*seen, list(told), {0: found}]
