"""Creates the files that halve the start of a local broker (`worker.local.broker_settings`).

Takes 15 s of CPU and 50 MB. A broker does typical work, and Java writes the loaded classes when it ends."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer

from handlers.spark.runtime.class_archive import QUIET, keep, kept, lock_of, own_folder
from handlers.spark.runtime.jars import kafka_jars
from worker.local.broker import Broker
from worker.local.broker_settings import BOOTSTRAP, place

_KEPT = 2
"""The most archives on one machine."""


def main() -> None:
    """Create the files, unless they exist. Raises OSError if nothing can be written, RuntimeError if Java
    creates no archive, BrokerError, JavaError and JarsError."""
    wanted = place(kafka_jars())
    folder = wanted.parent
    own_folder(wanted)
    with lock_of(wanted).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        bootstrap = wanted.with_suffix(".checkpoint")
        if kept(wanted) and bootstrap.exists():
            return
        with tempfile.TemporaryDirectory(prefix=f".{wanted.name}-", dir=folder) as temporary:
            made = Path(temporary, "kafka.jsa")
            found = _train(Path(temporary, "broker"), made)
            keep(made, wanted)
            whole = Path(temporary, BOOTSTRAP)
            whole.write_bytes(found)
            whole.rename(bootstrap)
        archives = sorted(folder.glob("kafka-*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
        for unused in archives[_KEPT:]:
            unused.unlink(missing_ok=True)


def _train(folder: Path, made: Path) -> bytes:
    """Run a broker until it has ended. Return the first records of its formatted folder."""
    options = (f"-XX:ArchiveClassesAtExit={made}", QUIET)
    with Broker(folder, java_options=options) as broker:
        found = (folder / "data" / BOOTSTRAP).read_bytes()
        topic = broker.create_topic("t", 2)
        servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        producer = Producer({**servers, "enable.idempotence": True, "compression.type": "lz4"})
        for number in range(10):
            producer.produce(topic, f"{number}".encode(), key=f"{number}".encode())
        producer.flush(30)
        del producer
        consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        consumer.consume(10, timeout=30)
        consumer.commit(asynchronous=False)
        consumer.close()
    return found


if __name__ == "__main__":
    main()
