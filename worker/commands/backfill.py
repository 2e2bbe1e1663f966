"""`binlane backfill`: ask Debezium to send a table's rows again.

By https://debezium.io/documentation/reference/stable/configuration/signalling.html"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import SILENT
from handlers.options.matching import is_name, table_matcher
from worker.commands.output import begin
from worker.configuration import Configuration
from worker.configuration.kafka_properties import admin_settings, producer_settings
from worker.formats.gathered import Places

_SECONDS = 10.0
_ELSEWHERE = (
    "only Debezium reads such signals. Maxwell: run maxwell-bootstrap. Canal, DTS, json: copy the rows. If "
    "the topic has all records of the table, use binlane reload"
)


def backfill(config: Path, table: str, connector: str | None = None, topic: str | None = None) -> int:
    """Send the signal for an incremental snapshot. Without `connector`, print it as an SQL statement.

    `connector`: its `topic.prefix`. `topic`: its `signal.kafka.topic`. Returns 0, or 1 if nothing was sent.
    Raises ConfigurationError."""
    configuration, output = begin("backfill", config, level="warning", check_handlers=False)
    try:
        _check(configuration, table, connector)
        # Debezium reads a name as an expression, in which a point also matches itself.
        name = re.sub(r"[$?*+(){}|\[]", r"[\g<0>]", re.sub(r"[\\^]", r"\\\g<0>", table))
        data = {"data-collections": [name], "type": "incremental"}
        signal = {"id": str(uuid.uuid4()), "type": "execute-snapshot", "data": data}
        if connector is None:
            text = msgspec.json.encode(data).decode().replace("'", "''")
            print(f"INSERT INTO debezium_signal VALUES ('{signal['id']}', 'execute-snapshot', '{text}');")
        else:
            _send(configuration, topic or f"{connector}-signal", connector, msgspec.json.encode(signal))
    except LookupError as error:
        return output.failed(error)
    except KafkaException as error:
        return output.failed(f"Kafka: {error.args[0].str()}")
    return 0


def _check(configuration: Configuration, table: str, connector: str | None) -> None:
    formats = configuration.format
    if "debezium" not in (formats.values() if isinstance(formats, dict) else (formats,)):
        raise LookupError(_ELSEWHERE)
    database, _, name = table.partition(".")
    if not (database and name and is_name(table)):
        raise LookupError(f"{table!r} is not the name of one table: write database.table")
    rule = configuration.databases.get(database)
    if rule is not None and not table_matcher(rule.match)(table):
        raise LookupError(f"databases: {database} is no database of the source: name the table as there")
    if configuration.rule_for(Places(configuration.databases).label(table)) is None:
        raise LookupError(f"no rule of tables: matches {table}")
    if connector is None and re.search(r'["\\^\0-\x1f]', table):
        raise LookupError("databases read a backslash in a text differently: send it by --connector")


def _send(configuration: Configuration, topic: str, key: str, value: bytes) -> None:
    known = AdminClient(admin_settings(configuration.kafka), logger=SILENT).list_topics(timeout=_SECONDS)
    if topic not in known.topics:
        raise LookupError(f"there is no topic {topic}: --topic is the connector's signal.kafka.topic")
    sent: list[Message] = []
    producer = Producer(producer_settings(configuration.kafka), logger=SILENT)
    # Debezium reads no other partition.
    producer.produce(topic, value, key, 0, on_delivery=lambda _, message: sent.append(message))
    producer.flush(_SECONDS)
    if not sent or sent[0].error() is not None:
        raise LookupError(f"Kafka did not accept it: {sent[0].error() if sent else 'no answer'}")
    print(f"sent to {topic}: {value.decode()}")
