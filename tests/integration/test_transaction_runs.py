"""Transfers between accounts of one table: with `transactions: whole`, nobody ever reads half of one.

The worker is killed and stopped meanwhile. The records of a transfer come one by one, also in several polls.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from itertools import count
from pathlib import Path

import pytest
from integration.conftest import MakeStage
from integration.process import eventually
from integration.stage import Stage

ACCOUNTS = 6


def row(table: str, xid: int, number: int, *, commit: bool, **data: int) -> bytes:
    kind = {"type": "update", "old": {"balance": 0}} if number else {"type": "insert"}
    place = {"position": f"mysql-bin.000001:{xid * 1000 + number}", "xid": xid, "ts": 1_763_000_000 + xid}
    end = {"commit": True} if commit else {"xoffset": number}
    content = {"database": "shop", "table": table, "primary_key_columns": ["id"], "data": data}
    return json.dumps({**content, **kind, **place, **end}).encode()


class Reader(threading.Thread):
    """Reads the sum of all balances again and again."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.file = file
        self.ended = threading.Event()
        self.sums: dict[int, int] = {}
        """Sum -> how often it was read."""
        self.transfers = 0

    def run(self) -> None:
        while not self.ended.wait(0.001):
            try:
                with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as connection:
                    [(found, newest)] = connection.execute("SELECT sum(balance), max(seq) FROM accounts")
                connection.close()
            except sqlite3.OperationalError:  # it is not there yet, or locked
                continue
            if found is not None:
                self.sums[found] = self.sums.get(found, 0) + 1
                self.transfers = max(self.transfers, newest)


@pytest.mark.parametrize("ends", [pytest.param("told", marks=pytest.mark.soak), "not told"])
def test_no_reader_sees_half_a_transfer(stage: Stage, tmp_path: Path, ends: str) -> None:
    """`ends`: whether the last row says that it is the last one (for a table, another table's may be)."""
    source, xids, chance = stage.source(), count(1), random.Random(7)
    balances = dict.fromkeys(range(ACCOUNTS), 0)

    def send(value: bytes) -> None:
        source.send(value, key=b"shop", partition=0)
        if chance.random() < 0.2:
            source.producer.flush()
            time.sleep(chance.choice([0.0, 0.01, 0.06]))

    def transfer() -> None:
        xid, chosen = next(xids), chance.sample(range(ACCOUNTS), chance.randint(2, ACCOUNTS))
        for place, account in enumerate(chosen):
            amount = chance.randint(1, 99)
            balances[account] -= amount
            balances[chosen[place - 1]] += amount
        for place, account in enumerate(chosen):
            commit = ends == "told" and place == len(chosen) - 1
            send(row("accounts", xid, 1, commit=commit, id=account, seq=xid, balance=balances[account]))
        if ends == "not told":
            send(row("audit", xid, 0, commit=True, id=xid))

    first = next(xids)
    for account in balances:
        send(row("accounts", first, 0, commit=account == ACCOUNTS - 1, id=account, seq=first, balance=0))
    worker = stage.worker(
        handlers=[{"type": "sql", "url": f"sqlite:///{tmp_path}/replica.db", "table": "{table}"}],
        format="maxwell",
        batch={"transactions": "whole", "max_records": 20},
    )
    reader = Reader(tmp_path / "replica.db")
    reader.start()
    with source.going_on(transfer, every=0.002):
        for stops in range(3):
            worker.start()
            seen = reader.transfers
            eventually(lambda seen=seen: reader.transfers > seen + 30, within=60, every=0.01)  # type: ignore[misc]
            if stops % 2:
                assert worker.sigterm() == 0
            else:
                worker.kill9()
    worker.start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    reader.ended.set()
    reader.join()
    assert reader.sums.keys() == {0}, reader.sums
    assert reader.sums[0] > 100
    with sqlite3.connect(tmp_path / "replica.db") as connection:
        assert dict(connection.execute("SELECT id, balance FROM accounts")) == balances


def test_a_call_that_hangs_stops_and_cuts_no_small_transaction(make_stage: MakeStage) -> None:
    """With default bounds, one table fills its lane with transactions of 7 rows."""
    stage = make_stage()
    source, gate, numbers, xids = stage.source(), stage.gate(), count(1), count(1)

    def send(table: str, partition: int, rows: int = 7) -> None:
        xid = next(xids)
        for place in range(rows):
            value = row(table, xid, place, commit=place == rows - 1, id=next(numbers))
            source.send(value, key=b"k", partition=partition)

    send("held", 1, rows=1)
    for number in range(3 * 18_000):
        send(f"t{number % 64}" if number % 18_000 < 8_000 else "hot", 0)
    source.flush()
    tables = [
        {"match": "shop.held", "handlers": [stage.recording(hold={"shop.held": str(gate)})]},
        {
            "match": "*",
            "handlers": [{"type": "resting:Resting", "seconds": 0.0}],
            "batch": {"transactions": "whole"},
        },
    ]
    worker = stage.worker(tables=tables, format="maxwell", lanes={}).start()
    place, end = {"topic": stage.topic, "partition": "0"}, 3 * 18_000 * 7
    eventually(lambda: worker.metric("binlane_position", **place) == end, within=60)
    gate.unlink()
    stage.wait_committed_to_the_end()
    assert not worker.logged("transaction_cut")
    assert worker.sigterm() == 0
