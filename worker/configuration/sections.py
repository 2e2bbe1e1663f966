"""The sections of the configuration, except tables. The schema's descriptions are the fields' docstrings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from handlers.options.shared import Section
from handlers.options.values import (
    Duration,
    PositiveDuration,
    PositiveSize,
    PropertyValue,
    Servers,
    duration,
    size,
)
from worker.configuration import values


class KafkaRule(Section):
    """The source of the change records."""

    bootstrap_servers: Servers
    """The first brokers to connect to: host:port, separated by commas."""
    group_id: str = Field(min_length=1)
    """The consumer group. Workers of one group share the partitions."""
    topics: list[values.TopicPattern] = Field(min_length=1)
    """Topic names, or regular expressions that begin with ^."""
    ddl_topics: list[values.TopicPattern] = Field(default=[])
    """The topics with the DDL of tables in other topics (Debezium, Maxwell). DDL and truncates then keep
    their order among the rows of all partitions. One worker must read all of them."""
    properties: dict[str, PropertyValue] = Field(default={})
    """Any other librdkafka property (TLS, SASL, group.instance.id, group.protocol ...)."""


class LanesRule(Section):
    """Settings of the lanes, which handle batches in parallel."""

    count: int = Field(default=16, ge=1, le=1024)
    """Number of lanes, and so of batches that run at once."""
    order_by: Literal["table", "row"] = "table"
    """What keeps its order: a table, or a row (database, table and primary key)."""
    processes: values.Processes = Field(default=0)
    """Number of child processes that decode batches and run handlers. 0: the worker's own threads do both.
    With auto, each core that the worker may use has one, unless it is the only core."""
    max_records: int = Field(default=10_000, ge=1)
    """The most records queued and running in each lane."""
    max_bytes: PositiveSize = size("256MiB")
    """The most bytes queued and running in the whole worker."""
    work_stealing: bool = True
    """Let idle lanes take over tables from full lanes."""
    parked: PositiveSize = size("4GiB")
    """The most bytes on disk, in `checkpoint.directory`, of records behind tables that stand still."""


class JournalRule(Section):
    """A history of each partition's positions, stored beside the local checkpoint file."""

    flush: Duration | None = duration("1m")
    """How often the journal is flushed to disk, which matters only after a power loss; 0s: at each
    checkpoint, null: when the operating system does."""
    max_age: PositiveDuration = duration("168h")
    """Entries older than this are removed, one file at a time."""
    max_bytes: PositiveSize = size("64MiB")
    """The oldest entries are removed if the journal exceeds this size."""


class CheckpointRule(Section):
    """How positions are stored."""

    interval: PositiveDuration = duration("5s")
    """Time between commits."""
    directory: values.FilePath = Field(default=Path("state"), json_schema_extra={"default": "state"})
    """Folder of the local checkpoint file and the journal, relative to the working directory."""
    url: values.DatabaseUrl | None = None
    """A database that stores the checkpoints instead of the local file: the URL of a PostgreSQL, MySQL,
    MariaDB or SQLite database."""
    initial: values.Initial = Field(default="earliest")
    """Where a group without a stored position starts: earliest, latest, an ISO 8601 time, or offsets."""
    force: bool = False
    """true: start at `initial` and ignore stored positions."""
    journal: JournalRule | None = Field(default_factory=JournalRule)
    """A history of each partition's positions; null: not kept."""


class DeadLetterRule(Section):
    """The topic for records that cannot be handled."""

    topic: values.TopicName
    """The dead-letter topic: a name that no entry of kafka.topics matches."""
    max_ratio: float = Field(default=0.1, gt=0, le=1)
    """If more than this share of the last 1,000 records became dead letters, further failures halt."""


class TlsRule(Section):
    """The certificate of the HTTP server. A changed file is reloaded."""

    certificate: values.FilePath
    """A PEM file with the certificate, followed by any intermediate certificates. A relative path starts at
    the configuration's folder."""
    key: values.FilePath
    """A PEM file with the private key, without a password."""


class HttpRule(Section):
    """The HTTP server for status, probes and metrics, and who may use it."""

    host: str = Field(default="0.0.0.0", min_length=1)
    """The address to listen on."""
    port: int = Field(default=8080, ge=0, le=65535)
    """The port to listen on; 0: any free port, logged as http_listening."""
    token: values.AccessToken | None = None
    """The token that every request except probes needs, as a bearer token or as the password of any user."""
    tls: TlsRule | None = None
    """TLS for everything except the probes; null: plain HTTP."""
    allowed_hosts: list[str] = Field(default=[])
    """Additional host names that requests may use: binlane.example.org, *.example.org, or * for any."""


class LoggingRule(Section):
    """What is logged, and in which format."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged."""
    format: Literal["auto", "json", "console"] = "auto"
    """auto: coloured lines on a terminal, JSON elsewhere."""


class TracingRule(Section):
    """Spans of handled batches, sent to a collector (OpenTelemetry, OTLP over HTTP)."""

    endpoint: values.HttpUrl | None = None
    """The collector's URL, such as http://collector:4318; null: the value of OTEL_EXPORTER_OTLP_ENDPOINT,
    else http://localhost:4318."""
    headers: dict[str, values.HeaderValue] = Field(default={})
    """Additional headers of each request, such as Authorization. All their values are secret."""
    sample_ratio: float | None = Field(default=None, ge=0, le=1)
    """The share of batches that are traced; null: the value of OTEL_TRACES_SAMPLER, else 0.01."""
    records_per_second: int = Field(default=100, ge=0)
    """The most records per second whose own traces (header traceparent) are continued."""
    timeout: PositiveDuration = duration("10s")
    """The timeout of a request to the collector."""
