"""A handler of one's own: it writes a line for each large order."""

from __future__ import annotations

from pathlib import Path

from binlane import Batch, Handler, HandlerContext, Rejected


class LargeOrders(Handler):
    """A line for each order that is new, or whose total has changed, and is above `above`.

    A total above `reject_above` is a mistake of the shop's: it is rejected, and the table's `on_failure`
    decides.
    Any number of batches may be in `handle` at once, each of another table (with `order_by: row`, of other
    rows): a write of one piece to a file that is open for appending needs no lock.
    """

    def __init__(self, *, file: str, above: float = 1000, reject_above: float | None = None) -> None:
        self._file = Path(file)
        self._above = above
        self._reject_above = reject_above

    def open(self, context: HandlerContext) -> None:
        self._file = context.folder / self._file  # paths of options are relative to the configuration

    def handle(self, batch: Batch) -> None:
        lines = []
        for place, change in enumerate(batch.changes):
            total = (change.after or {}).get("total")  # a delete has no row after it, nor has DDL
            if total is None or total == (change.before or {}).get("total"):
                continue
            if self._reject_above is not None and total > self._reject_above:
                raise Rejected(f"a total of {total} is above {self._reject_above}", at=place)
            if total > self._above:
                # After a crash a batch may come again: these three tell the same line.
                where = f"{change.topic}:{change.partition}:{change.offset}"
                lines.append(f"order {change.key} {total} {where}\n")
        with self._file.open("a", encoding="utf-8") as file:
            file.write("".join(lines))

    def check(self, context: HandlerContext) -> None:
        """For `binlane check --connect`."""
        folder = (context.folder / self._file).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
