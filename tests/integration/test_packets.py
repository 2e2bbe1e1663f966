"""Canal's packets, which hold rows of several tables, through whole workers."""

from __future__ import annotations

from collections.abc import Sequence

from canal_packets import packet, row, rows
from integration.checkers import NothingLost, TableOrder
from integration.process import eventually
from integration.source import Source
from integration.stage import Stage

TABLES = ("t0", "t1", "t2")
PACKETS = 300


def entry(table: str, seqs: Sequence[int]) -> bytes:
    types = {"id": "bigint", "seq": "bigint"}
    return rows(table, *[row({"id": str(seq), "seq": str(seq)}, types=types) for seq in seqs])


def send(source: Source, count: int) -> None:
    """Packets with two rows of each table, in two entries of which others' stand between."""
    for _ in range(count):
        entries = []
        for _ in range(2):
            for table in TABLES:
                seq = len(source.rows[f"shop.{table}"])
                source.rows[f"shop.{table}"].append(seq)
                entries.append(entry(table, [seq]))
        source.send(packet(*entries), partition=0)
    source.flush()


def test_what_a_killed_worker_had_done_of_several_tables_comes_again_with_all_behind_it(stage: Stage) -> None:
    source, gate = stage.source(), stage.gate()
    send(source, PACKETS)
    stuck = 2 * 100  # the first row of packet 100
    recording = stage.recording(hold={"shop.t1": str(gate)}, hold_rows={"shop.t1": [stuck]})
    # A static member: who comes after a kill need not wait until the dead one is given up.
    member = {"group.instance.id": "packets"}
    worker = stage.worker(handlers=[recording], batch={"max_records": 7}, properties=member).start()
    for table in ("shop.t0", "shop.t2"):
        eventually(lambda table=table: worker.table(table).get("finished_records") == PACKETS)
    eventually(lambda: 90 <= stage.committed()[0] <= 100, what="committed up to the packet that t1 keeps")
    [told] = worker.status()["partitions"]
    assert told["finished_ahead"] == 0, "what the other tables did behind it comes again with it"
    worker.kill9()
    gate.unlink()
    worker.start()
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder())
