"""What a storm has shown: a row for each kind of fault."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storm.faults import Happened
from storm.plan import KINDS

if TYPE_CHECKING:
    from storm.rig import Rig

__all__ = ["Report", "Row"]


@dataclass(slots=True)
class Row:
    times: int = 0
    lost: int = 0
    out_of_order: int = 0
    overlapping: int = 0
    repeated: int = 0
    standstill: float = 0.0
    """Seconds from the end of such a fault to the next finished record, of the slowest partition."""


@dataclass(slots=True)
class Report:
    rows: dict[str, Row] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """What must not be, in words: empty when all held."""

    @staticmethod
    def of(rig: Rig, happened: list[Happened]) -> Report:
        """What came again or out of order is told of the fault that began last before it."""
        rows: dict[str, Row] = defaultdict(Row)
        begun: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for each in happened:
            rows[each.kind].times += 1
            for topic in each.topics:
                begun[topic].append((each.begun, each.kind))
        for entries in begun.values():
            entries.sort()

        def cause(when: float, topic: str) -> str:
            entries = begun[topic]
            at = bisect_right(entries, when, key=lambda entry: entry[0])
            return entries[at - 1][1] if at else "none"

        for incident in rig.judge.incidents:
            row = rows[cause(incident.when, incident.topic)]
            if incident.what == "overlapping":
                row.overlapping += 1
            else:
                row.out_of_order += 1
        for (second, topic), count in rig.judge.repeated.items():
            rows[cause(second + 0.5, topic)].repeated += count
        for each in happened:
            finishes = [
                rig.judge.next_finish(place, each.ended)
                for place in list(rig.judge.finishes)
                if place[0] in each.topics and rig.judge.had_begun(place, each.begun)
            ]
            longest = max((when - each.ended for when in finishes if when is not None), default=0.0)
            rows[each.kind].standstill = max(rows[each.kind].standstill, longest)
        broken = [f"{incident.what}: {incident.text}" for incident in rig.judge.incidents[:20]]
        for table in rig.load.tables:
            if lost := rig.judge.unfinished(table.full_name, table.sent):
                head = rig.judge.head(table.full_name)
                broken.append(f"lost: {table.full_name}: {lost} of {table.sent}, the first is {head}")
                rows["none"].lost += lost
        order = [*KINDS, "none"]
        return Report(dict(sorted(rows.items(), key=lambda item: order.index(item[0]))), broken)

    def table(self) -> str:
        """In Markdown."""
        lines = ["| fault | times | lost | out of order | overlapping | repeated | longest standstill |"]
        lines.append("|---|---|---|---|---|---|---|")
        total = Row()
        for kind, row in [*self.rows.items(), ("all", total)]:
            lines.append(
                f"| {kind} | {row.times} | {row.lost} | {row.out_of_order} | {row.overlapping} "
                f"| {row.repeated} | {row.standstill:.1f} s |"
            )
            total.times += row.times
            total.lost += row.lost
            total.out_of_order += row.out_of_order
            total.overlapping += row.overlapping
            total.repeated += row.repeated
            total.standstill = max(total.standstill, row.standstill)
        return "\n".join(lines)
