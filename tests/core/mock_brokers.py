"""librdkafka's mock brokers, in a process of their own: with other clients in it, their end hangs or crashes
now and then, and takes all tests of the process with it.

Prints the address; ends with its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["mock_brokers"]


@contextmanager
def mock_brokers(records: int) -> Iterator[str]:
    """The address of a broker with a topic `t`, which has so many records in each of its 4 partitions."""
    command = [sys.executable, str(Path(__file__)), str(records)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, "the mock brokers did not start"
            yield address
        finally:
            process.kill()


def _serve(records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 2})
    (node,) = producer.list_topics(timeout=60).brokers.values()
    for partition in range(4):
        for _ in range(records):
            producer.produce("t", b"x", partition=partition)
    assert producer.flush(60) == 0
    print(f"{node.host}:{node.port}", flush=True)
    sys.stdin.read()
    os._exit(0)  # its own end is what hangs


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
