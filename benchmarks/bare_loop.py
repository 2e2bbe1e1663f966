"""The lower bound: one thread consumes, and routes or decodes, with the worker's own Kafka settings.

python -m benchmarks.bare_loop BOOTSTRAP TOPIC RECORDS route|decode
"""

from __future__ import annotations

import os
import sys
import time
from typing import cast

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.processes import peak_rss_kib
from handlers import Change
from worker.configuration import Configuration
from worker.configuration.kafka_properties import consumer_settings
from worker.formats import registry
from worker.formats.interface import Record

__all__ = ["BareFigures"]

_POLL_RECORDS = 1_000
_POLL_SECONDS = 0.1


class BareFigures(msgspec.Struct, frozen=True):
    """Times from the first poll that gave records to the last; CPU of the whole process."""

    records: int
    seconds: float
    cpu_seconds: float
    cpu_at_first: float
    rss_kib: int


def main(bootstrap: str, topic: str, records: int, what: str) -> BareFigures:
    """Consume `records` records of the topic's partition 0, and `route` or fully `decode` each of them."""
    configuration = Configuration.model_validate(
        {
            "kafka": {
                "bootstrap_servers": bootstrap,
                "group_id": f"bare-{time.time_ns()}",
                "topics": [topic],
            },
            "tables": [{"match": "*", "handlers": [{"type": "log"}]}],
        }
    )
    canal = registry.get("canal")
    route, decode = canal.route, canal.decode
    decodes = what == "decode"
    consumer = Consumer(consumer_settings(configuration.kafka))
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    done, first, cpu_at_first = 0, 0.0, 0.0
    while done < records:
        messages = consumer.consume(_POLL_RECORDS, _POLL_SECONDS)
        if messages and not first:
            first, cpu_at_first = time.monotonic(), time.process_time()
        for message in messages:
            if message.error() is not None:
                continue
            if decodes:
                changes: list[Change] = []
                decode(cast(Record, message), changes)
                if changes[0].after is None:
                    raise ValueError(f"a row without its columns at offset {message.offset()}")
            else:
                route(message.value() or b"")
            done += 1
    seconds, cpu = time.monotonic() - first, time.process_time()
    peak = peak_rss_kib(os.getpid())
    consumer.close()
    return BareFigures(done, seconds, cpu, cpu_at_first, peak)


if __name__ == "__main__":
    sys.stdout.buffer.write(
        msgspec.json.encode(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
    )
