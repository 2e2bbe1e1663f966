"""Plays a source whose rows change, also their keys, between statements; and judges the order of each row."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration.checkers import Event
from integration.source import Source

__all__ = ["Barriers", "NeverTwoOfAShardAtOnce", "RowOrder", "RowSource", "Sent"]


@dataclass(frozen=True)
class Sent:
    """What happened with one number of a table: to one row, or two when its key changed; `ids` is empty for a
    statement."""

    seq: int
    ids: tuple[int, ...]

    @property
    def barrier(self) -> bool:
        return len(self.ids) != 1


class RowSource:
    """Changes the rows of tables t0, t1 ..., numbered from 0 within each table in the order they are sent."""

    def __init__(self, source: Source, *, tables: int, keys: int, seed: int = 7) -> None:
        self._source = source
        self._random = random.Random(seed)
        self._tables = tables
        self._keys = keys
        self.log: dict[str, list[Sent]] = {f"shop.t{table}": [] for table in range(tables)}

    @property
    def rows(self) -> dict[str, list[int]]:
        return {table: [each.seq for each in log] for table, log in self.log.items()}

    @property
    def count(self) -> int:
        return sum(map(len, self.log.values()))

    def change(self, records: int) -> None:
        """So many records: mostly of one to five rows, some that change a key, some statements."""
        pick = self._random
        for _ in range(records):
            table = f"t{pick.randrange(self._tables)}"
            what = pick.random()
            if what < 0.02:
                self.state(
                    table, pick.choice(("ALTER", "TRUNCATE", "RENAME")[: 2 if self._tables == 1 else 3])
                )
            elif what < 0.05:
                self.change_key(table)
            else:
                self.write(table, [pick.randrange(self._keys) for _ in range(pick.choice((1, 1, 1, 2, 5)))])
        self._source.producer.poll(0)

    def write(self, table: str, ids: Sequence[int]) -> None:
        rows = [{"id": str(one), "seq": str(self._sent(table, one))} for one in ids]
        self._send(table, type="UPDATE", data=rows, old=[{"seq": "0"}] * len(rows))

    def change_key(self, table: str) -> None:
        old, new = self._random.sample(range(self._keys), 2)
        row = {"id": str(new), "seq": str(self._sent(table, old, new))}
        self._send(table, type="UPDATE", data=[row], old=[{"id": str(old)}])

    def state(self, table: str, kind: str) -> None:
        other = f"t{(int(table[1:]) + 1) % self._tables}"
        sql = {
            "ALTER": f"ALTER TABLE {table} ADD COLUMN x int",
            "TRUNCATE": f"TRUNCATE TABLE {table}",
            "RENAME": f"RENAME TABLE {table} TO {other}",
        }[kind]
        self._send(table, type=kind, isDdl=True, sql=f"{sql} /* seq {self._sent(table)} */", data=None)

    def _sent(self, table: str, *ids: int) -> int:
        log = self.log[f"shop.{table}"]
        log.append(Sent(len(log), ids))
        return len(log) - 1

    def _send(self, table: str, **fields: Any) -> None:
        kinds = {"id": "bigint", "seq": "bigint"}
        message = {
            "database": "shop",
            "table": table,
            "es": 1795218962000,
            "isDdl": False,
            "mysqlType": kinds,
        }
        self._source.send(json.dumps({**message, "pkNames": ["id"], **fields}).encode(), key=table.encode())


class RowOrder:
    """The changes of each row come in source order; a suffix may come again, from an earlier one on."""

    def __init__(self, log: Mapping[str, Sequence[Sent]]) -> None:
        self.places: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        for table, sent in log.items():
            for each in sent:
                for one in each.ids:
                    places = self.places[table, one]
                    places[each.seq] = len(places)

    def broken(self, events: Sequence[Event]) -> list[str]:
        last: dict[tuple[str, str, int], int] = {}
        found = []
        for event in events:
            if event["event"] == "row" and event["id"] is not None:
                row = (event["handler"], event["table"], event["id"])
                place = self.places[event["table"], event["id"]][event["seq"]]
                before = last.get(row, -1)
                if place > before + 1:
                    found.append(f"{row}: change {place} (seq {event['seq']}) came after change {before}")
                last[row] = place
        return found[:10]


class Barriers:
    """Before a statement or a changed key comes for the first time, all before it in its table came; and what
    comes after it in its table did not come before it."""

    def __init__(self, log: Mapping[str, Sequence[Sent]]) -> None:
        self.log = log

    def broken(self, events: Sequence[Event]) -> list[str]:
        first: dict[tuple[str, str, int], int] = {}
        for time, event in enumerate(events):
            if event["event"] == "row":
                first.setdefault((event["handler"], event["table"], event["seq"]), time)
        found = []
        for handler in sorted({handler for handler, _, _ in first}):
            for table, log in self.log.items():
                times = [first.get((handler, table, each.seq), len(events)) for each in log]
                latest = -1
                for place, each in enumerate(log):
                    if each.barrier and latest > times[place]:
                        found.append(f"{handler}: {table} seq {each.seq} came before all before it had come")
                    latest = max(latest, times[place])
                earliest = len(events)
                for place in reversed(range(len(log))):
                    if log[place].barrier and earliest < times[place]:
                        found.append(f"{handler}: what follows {table} seq {place} came before it")
                    earliest = min(earliest, times[place])
        return found[:10]


class NeverTwoOfAShardAtOnce:
    """At no time two batches of a shard are inside a handler, and none beside a batch of the whole table."""

    def broken(self, events: Sequence[Event]) -> list[str]:
        inside: dict[tuple[str, str], dict[int | None, tuple[str, int]]] = defaultdict(dict)
        found = []
        for event in events:
            kind, who = event["event"], (event["worker"], event.get("batch", -1))
            if kind == "gone":
                for shards in inside.values():
                    for shard in [shard for shard, each in shards.items() if each[0] == event["worker"]]:
                        del shards[shard]
            elif kind in ("start", "end"):
                shards = inside[event["handler"], event["table"]]
                shard = event.get("shard")
                if kind == "start" and (shard in shards or None in shards or (shard is None and shards)):
                    found.append(f"{who} began shard {shard} of {event['table']} while inside were {shards}")
                if kind == "start":
                    shards[shard] = who
                elif shards.get(shard) == who:
                    del shards[shard]
        return found[:10]
