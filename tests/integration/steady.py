"""A source whose rows change at a steady rate, each record stamped with the time when it was sent."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from integration.source import Source

__all__ = ["Steady"]

_SEED = 7
_TYPES = {"id": "bigint", "seq": "bigint", "name": "varchar(64)"}


class Steady:
    """Sends `rate` records a second, the tables in turn, in a thread of its own while the block runs.

    Rows of `keyed` tables are inserted, updated and deleted; `appended` tables have no key, and only grow.
    """

    def __init__(self, source: Source, *, keyed: Sequence[str], appended: Sequence[str], rate: float) -> None:
        self._source = source
        self._tables = [*keyed, *appended]
        self._appended = frozenset(appended)
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="steady")
        self._pick = random.Random(_SEED)
        self._ids: dict[str, list[int]] = defaultdict(list)
        self.rows: dict[str, dict[int, int]] = defaultdict(dict)
        """"shop.table" -> id -> `seq` of the row as it is now: the number of the change that made it so."""
        self.sent: dict[str, int] = defaultdict(int)
        """"shop.table" -> changes."""
        self.stood_still = 0.0
        """Seconds: the longest time that a record went out too late. So long this machine did nothing."""

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._source.flush()

    def _send_all(self) -> None:
        begin, number = time.monotonic(), 0
        while True:
            due = begin + number / self._rate
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            self.stood_still = max(self.stood_still, time.monotonic() - due)
            self._change(self._tables[number % len(self._tables)])
            number += 1
            self._source.producer.poll(0)

    def _change(self, table: str) -> None:
        rows, ids = self.rows[f"shop.{table}"], self._ids[table]
        seq = self.sent[f"shop.{table}"]
        self.sent[f"shop.{table}"] += 1
        what = 0.0 if table in self._appended or not ids else self._pick.random()
        if what < 0.6:
            ids.append(seq)
            rows[seq] = seq
            self._record(table, "INSERT", seq, seq)
        elif what < 0.9:
            row = self._pick.choice(ids)
            old, rows[row] = rows[row], seq
            self._record(table, "UPDATE", row, seq, old={"seq": str(old)})
        else:
            row = ids.pop(self._pick.randrange(len(ids)))
            self._record(table, "DELETE", row, rows.pop(row))

    def _record(self, table: str, kind: str, row: int, seq: int, old: dict[str, Any] | None = None) -> None:
        now = time.time_ns() // 1_000_000
        value = {
            "data": [{"id": str(row), "seq": str(seq), "name": f"row {row} of {table}"}],
            "database": "shop",
            "es": now,
            "id": 1,
            "isDdl": False,
            "mysqlType": _TYPES,
            "old": None if old is None else [old],
            "pkNames": None if table in self._appended else ["id"],
            "sql": "",
            "table": table,
            "ts": now,
            "type": kind,
        }
        self._source.send(json.dumps(value).encode(), key=table.encode())
