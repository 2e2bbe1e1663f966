"""Sends sample records to their topics, in the file's order: python examples/play.py FILE...

A file is JSON lines, as `binlane check --sample` reads them. Topics that are missing are made. A record that
names no partition goes to partition 0, so that the order of a topic is that of the file.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from worker.formats.interface import Record
from worker.formats.sample import SampleError, read_samples

SECONDS = 10
MADE: Any = Message
QUIET = logging.Logger("play", level=logging.CRITICAL)  # librdkafka would log each attempt to connect


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("files", nargs="*", type=Path, metavar="FILE")
    arguments.add_argument(
        "--bootstrap", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or "localhost:9092"
    )
    arguments.add_argument("--topic", default="example", help="of records that name none")
    arguments.add_argument("--to", metavar="TOPIC", help="send all records to this topic instead")
    arguments.add_argument(
        "--make", action="append", default=[], metavar="TOPIC", help="one more topic to make; needs no FILE"
    )
    options = arguments.parse_args()
    if not options.files and not options.make:
        arguments.error("name a FILE to send, or a topic to --make")
    try:
        records = [record for file in options.files for record in read_samples(file, options.topic)]
        if options.to:
            records = [moved(record, options.to) for record in records]
        make_topics(options.bootstrap, records, options.make)
        send(options.bootstrap, records)
    except SampleError as error:
        raise SystemExit(f"play.py: {error}") from None
    except KafkaException as error:
        raise SystemExit(
            f"play.py: Kafka at {options.bootstrap}: {error.args[0].str()}; does it run there? "
            f"--bootstrap HOST:PORT names another one"
        ) from None
    if not records and options.make:
        print(f"topics exist now: {', '.join(sorted(options.make))}")
        return
    topics = ", ".join(sorted({record.topic() for record in records}))
    print(f"{len(records)} records sent to {topics}")


def moved(record: Record, topic: str) -> Record:
    place = topic, record.partition(), record.offset()
    return MADE(*place, record.key(), record.value(), record.headers())


def make_topics(bootstrap: str, records: list[Record], more: list[str]) -> None:
    partitions = dict.fromkeys(more, 1)
    for record in records:
        partitions[record.topic()] = max(partitions.get(record.topic(), 1), record.partition() + 1)
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET)
    admin.list_topics(timeout=5)  # says sooner than what comes next that nobody answers
    asked = admin.create_topics([NewTopic(*topic) for topic in partitions.items()])
    for made in asked.values():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def send(bootstrap: str, records: list[Record]) -> None:
    """Raises KafkaException for a record that the broker does not take."""
    # Without idempotence a batch that is sent again overtakes the next one.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}, logger=QUIET)
    refused: list[KafkaError] = []
    for record in records:
        producer.produce(
            record.topic(),
            record.value(),
            record.key(),
            record.partition(),
            headers=list(record.headers() or ()),
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    if producer.flush(SECONDS):
        raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
    if refused:
        raise KafkaException(refused[0])


if __name__ == "__main__":
    main()
