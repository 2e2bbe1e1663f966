"""What one small compressed record may take of a worker's memory: SECURITY.md says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from integration.checkers import NothingLost, NothingTwice
from integration.conftest import MakeStage
from integration.process import WorkerProcess, eventually
from integration.source import Source, canal_insert
from integration.stage import Stage

MIB = 1 << 20
ROOM = 48 * MIB
"""For all else that a worker does meanwhile."""


def peak(pid: int) -> int:
    """The most bytes that the process has had in memory at once."""
    status = Path("/proc", str(pid), "status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def begun(worker: WorkerProcess, source: Source, stage: Stage) -> tuple[int, int]:
    """Start the worker with a few records. Returns its process, and the most bytes of that so far."""
    worker.start()
    source.insert("t0", records=3)
    source.flush()
    stage.wait_rows(source.count)
    assert worker.process is not None
    return worker.process.pid, peak(worker.process.pid)


def send_small(stage: Stage, codec: str, value: bytes) -> None:
    """One record, of one batch. A topic takes no more than 1 MB of compressed bytes by default."""
    refused: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": stage.bootstrap_servers,
            "compression.type": codec,
            "message.max.bytes": 1_000_000_000,
            "batch.size": 2 * len(value),
        }
    )
    producer.produce(stage.topic, value, on_delivery=lambda error, _: refused.append(error))
    assert (producer.flush(60), refused) == (0, [None])


@pytest.mark.parametrize(
    ("codec", "text", "processes", "fault"),
    [
        ("gzip", b"a", 0, "not a Canal message"),
        ("gzip", canal_insert("t0", [7]), 1, "would take about 150 MiB, but at most 64 MiB"),
        ("lz4", canal_insert("t0", [7]), 0, "would take about 150 MiB, but at most 64 MiB"),
    ],
    ids=["gzip", "gzip-processes", "lz4"],
)
def test_a_record_takes_twice_what_it_unpacks_to_and_is_then_set_aside(
    stage: Stage, codec: str, text: bytes, processes: int, fault: str
) -> None:
    unpacked = 150 * MIB  # receive.message.max.bytes, which bounds zstd alone, is less
    lanes = {"count": 2, "max_bytes": "64MiB", "processes": processes}
    worker, source = stage.worker(on_undecodable="skip", lanes=lanes), stage.source()
    pid, before = begun(worker, source, stage)
    send_small(stage, codec, text + b" " * unpacked)
    source.insert("t0", records=3)
    source.flush()
    stage.wait_committed_to_the_end()
    [skipped] = worker.logged("record_skipped")
    assert fault in skipped["error"]
    assert peak(pid) - before >= unpacked
    for each in (pid, *(child.pid for child in psutil.Process(pid).children())):
        assert peak(each) - before <= 2 * unpacked + ROOM
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), NothingTwice())


def test_a_topic_that_compresses_by_zstd_keeps_it_within_the_bound(make_stage: MakeStage) -> None:
    stage = make_stage(**{"compression.type": "zstd"})
    bound, unpacked = 10_000_000, 80 * MIB
    properties = {"receive.message.max.bytes": bound, "fetch.max.bytes": bound // 2}
    worker, source = stage.worker(properties=properties), stage.source()
    pid, before = begun(worker, source, stage)
    send_small(stage, "gzip", b" " * unpacked)

    def error() -> Any:
        return worker.status()["partitions"][0]["error"]

    assert eventually(error, what="the batch is refused")["code"] == "_BAD_COMPRESSION"
    assert peak(pid) - before <= bound + ROOM
