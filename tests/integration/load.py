"""A source that goes on while workers come and go."""

from __future__ import annotations

import threading

from integration.source import Source

__all__ = ["SLOW", "Load"]

SLOW = {f"shop.t{number}": 0.05 for number in range(0, 12, 2)}
"""Tables whose rows take so long that at any moment a batch of them is running, over commits and rebalances:
half to all of what they can do at this load. On several partitions, whichever way their names are hashed."""


class Load:
    """Keeps inserting rows in a thread of its own, about 600 a second, while the block runs."""

    def __init__(self, source: Source, tables: int) -> None:
        self._source = source
        self._tables = tables
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._insert, name="load")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._source.flush()

    def _insert(self) -> None:
        while not self._stop.wait(self._tables / 400):
            for table in range(self._tables):
                self._source.insert(f"t{table}", rows=1 + table % 2)
            self._source.producer.poll(0)
