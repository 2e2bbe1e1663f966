"""`binlane init`: write a first configuration, from the first records of a topic."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import typer
from confluent_kafka import KafkaException

from handlers.kafka.librdkafka import SILENT, closed_in_time, cluster_metadata
from handlers.options.faults import nearest
from handlers.options.matching import topic_matcher
from worker.commands.output import Output
from worker.commands.sampling.guessing import PLAIN, Guess, GuessError, guessed
from worker.commands.sampling.review import Untold
from worker.configuration import Configuration, ConfigurationError, load
from worker.configuration.kafka_properties import admin_settings
from worker.configuration.secrets import is_secret_key, passwords_in
from worker.formats.interface import Record
from worker.kafka.connection import KAFKA_SECONDS, ReadFault, bounds_of, connected, reach_kafka, read_between
from worker.observing.visible_text import visible

_HANDLERS: Mapping[str, str] = {
    "sql": "sqlite:///replica.db",
    "spark": "",
    "clickhouse": "http://localhost:8123",
    "elasticsearch": "http://localhost:9200",
    "opensearch": "http://localhost:9200",
    "redis": "redis://localhost:6379/0",
    "webhook": "http://localhost:8000/changes",
    "files": "",
    "log": "",
}
"""Handler -> the URL of its target on this machine; empty if it has none."""
_OPTIONS: Mapping[str, str] = {"spark": ", mode: replica", "files": ", directory: output"}
_MOST = 500
"""The most records from which the format is guessed."""
_ANY = Guess("canal", ("any.table",), {}, 0, 0)


@dataclass(frozen=True)
class _Wanted:
    """What the file is about."""

    kafka: str
    topic: str
    handler: str
    url: str | None
    properties: Mapping[str, str]


def init(file: Path, *, url: str | None, properties: Sequence[str], **given: str | None) -> int:
    """Write the file. Returns 0, or 1 if nothing was written.

    `given`: kafka, topic and handler. Asks for what is missing, if there is a terminal."""
    output = Output("init")
    if file.exists():
        return output.failed(f"{file} exists already, and is not changed: choose another name")
    try:
        wanted = _Wanted(
            given["kafka"] or _asked("Kafka's address", "--kafka", "localhost:9092"),
            given["topic"] or _asked("Topic", "--topic", None),
            _known(given["handler"] or _asked(f"Target ({', '.join(_HANDLERS)})", "--handler", "sql")),
            url,
            _properties(properties, url),
        )
        guess = _look(
            _loaded(_text(replace(wanted, handler="log", url=None), _ANY, file), file), wanted.topic
        )
        text = _text(wanted, guess, file)
        output = Output("init", _loaded(text, file).secrets.redact)
        with file.open("x", encoding="utf-8") as written:
            written.write(text)
    except GuessError as error:
        return output.failed(error)
    except OSError as error:
        return output.failed(f"{file} cannot be written ({error.strerror})")
    except KafkaException as error:
        return output.failed(f"Kafka: {error.args[0].str()}")
    read = f"{guess.read} of {guess.records} records of {wanted.topic}"
    for line in (
        f"{file}: format {guess.format}, which reads {read}",
        f"tables: {', '.join(guess.tables)}",
        *(f"Note: {note}" for note in guess.notes),
        f"Next: binlane check {file} --connect, then: binlane run {file}",
    ):
        print(output.clean(line))
    return 0


def _known(handler: str) -> str:
    if handler not in _HANDLERS:
        near = nearest(handler, _HANDLERS)
        hint = f"; nearest: {near}" if near else ""
        raise GuessError(f"--handler: found {handler}; allowed: {', '.join(_HANDLERS)}{hint}")
    return handler


def _asked(what: str, option: str, default: str | None) -> str:
    if not sys.stdin.isatty():
        raise GuessError(f"{option} is missing, and there is no terminal to ask")
    return str(typer.prompt(what, default=default))


def _properties(properties: Sequence[str], url: str | None) -> dict[str, str]:
    """Read `NAME=VALUE`. A secret must be a variable: it would be in the file."""
    found = dict(one.partition("=")[::2] for one in properties)
    for name, value in found.items():
        if not name or not value:
            raise GuessError("--property: write NAME=VALUE, such as sasl.mechanism=PLAIN")
        if is_secret_key(name) and "${" not in value:
            raise GuessError(
                f"--property {name}: the file would contain the secret: write '{name}=${{NAME}}' with the "
                "name of a variable, or '${file:/run/secrets/name}'"
            )
    if any("${" not in password for password in passwords_in(url or "")):
        raise GuessError("--url: the file would contain the password: write '${NAME}' in its place")
    return found


def _look(configuration: Configuration, topic: str) -> Guess:
    kafka, found, *_ = (*reach_kafka(configuration), None)
    if kafka is not None and kafka.error is not None:
        raise GuessError(f"{kafka.target}: {kafka.error}")
    if found is not None and found.error is not None:
        metadata = cluster_metadata(admin_settings(configuration.kafka), KAFKA_SECONDS, SILENT)
        names = sorted(name for name in metadata.topics if not name.startswith("__"))
        near = nearest(topic, names)
        shown = ", ".join(([near] if near else []) + [name for name in names if name != near][:20])
        raise GuessError(f"topic {topic}: {found.error}; the brokers have: {shown or 'none'}")
    records = _first_records(configuration, topic)
    if not records:
        raise GuessError(f"topic {topic} has no records, and only records say what they are: send some first")
    return guessed(records, topic, Untold(()))


def _loaded(text: str, file: Path) -> Configuration:
    """Check the text as `binlane check` does. Raises ConfigurationError."""
    descriptor, name = tempfile.mkstemp(dir=file.absolute().parent, prefix=".binlane-init-", suffix=".yaml")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(text)
        return load(Path(name))
    except ConfigurationError as error:
        raise GuessError("; ".join(str(fault).replace(name, str(file)) for fault in error.faults)) from None
    finally:
        Path(name).unlink()


def _text(wanted: _Wanted, guess: Guess, file: Path) -> str:
    handler = wanted.handler
    url = wanted.url or _HANDLERS[handler]
    options = _OPTIONS.get(handler, "") + (f", url: {_yaml(url)}" if url else "")
    lines = [
        f"# Check it: binlane check {file.name} --connect    Run it: binlane run {file.name}",
        "# All keys: docs/configuration.md",
        "kafka:",
        f"  bootstrap_servers: {_yaml(wanted.kafka)}",
        f"  group_id: {_yaml(f'{wanted.topic}-{handler}')}    # Kafka stores the positions by this name",
        f"  topics: [{_yaml(wanted.topic)}]",
        *(["  properties:"] if wanted.properties else []),
        *(f"    {_yaml(name)}: {_yaml(value)}" for name, value in wanted.properties.items()),
        f"format: {guess.format}    # it reads {guess.read} of the first {guess.records} records",
    ]
    if guess.layout:
        lines += [
            "json:    # where each part is in a record: docs/formats.md, JSON of your own",
            *(f"  {name}: {_yaml(value)}" for name, value in guess.layout.items()),
            "  # operation: kind, and operations: {removed: delete} if the records say what happened",
        ]
    lines += [
        "batch: {max_wait: 500ms}    # waits this long to fill a batch",
        f"# Tables of these records: {visible(', '.join(guess.tables))}",
        "tables:    # the first match counts; others are skipped",
    ]
    # Records name the databases, so other names could mean more in a file.
    databases = dict.fromkeys(table.partition(".")[0] for table in guess.tables)
    are_plain = all(map(PLAIN.fullmatch, databases))
    for pattern in [f"{name}.*" for name in databases] if are_plain else ["*"]:
        lines += [f"  - match: {_yaml(pattern)}", f"    handlers: [{{type: {handler}{options}}}]"]
    lines += [
        "    # columns, filter and expect say which columns and rows are sent: docs/columns.md",
        "    # transform names a function of yours that changes them: docs/transforms.md",
        "# dead_letter: {topic: dead}    # records that cannot be handled; without it, they halt their table",
    ]
    if handler == "spark":
        lines += ["spark:", "  warehouse: lake    # a folder beside this file, or s3a://..., hdfs://..."]
    return "\n".join(lines) + "\n"


def _yaml(value: Any) -> str:
    """Write a value as JSON, which YAML reads."""
    return json.dumps(value, ensure_ascii=False)


def _first_records(configuration: Configuration, topic: str) -> list[Record]:
    """Return the first records of the partitions. `topic`: a name, or an expression that begins with ^."""
    records: list[Record] = []
    try:
        consumer, _ = connected(configuration)
        with closed_in_time(consumer):
            names = filter(topic_matcher(topic), consumer.list_topics(timeout=KAFKA_SECONDS).topics)
            bounds = {place: found for name in names for place, found in bounds_of(consumer, name).items()}
            begins, ends = ({place: found[at] for place, found in bounds.items()} for at in (0, 1))
            found = (record for *_, record in read_between(consumer, begins, ends) if record is not None)
            records += islice(found, _MOST)
    except ReadFault as fault:
        raise GuessError(str(fault)) from None
    return records
