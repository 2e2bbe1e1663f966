"""The sections of the configuration beside its tables. Docstrings of fields are the schema's descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from handlers.options.section import Section
from handlers.options.values import (
    Duration,
    PositiveDuration,
    PositiveSize,
    PropertyValue,
    Servers,
    duration,
    size,
)
from worker.configuration.values import (
    AccessToken,
    DatabaseUrl,
    FilePath,
    HeaderValue,
    HttpUrl,
    Initial,
    TopicName,
    TopicPattern,
)


class KafkaRule(Section):
    """Where the change records come from."""

    bootstrap_servers: Servers
    """Brokers to begin with: host:port, several divided by commas."""
    group_id: str = Field(min_length=1)
    """The consumer group. Workers of one group share the partitions."""
    topics: list[TopicPattern] = Field(min_length=1)
    """Topic names, or regular expressions that begin with ^."""
    ddl_topics: list[TopicPattern] = Field(default=[])
    """Those of the topics that carry the DDL of the tables in the others (Debezium, Maxwell): DDL and
    truncates then keep their places among the rows of all partitions. One worker must read them all."""
    properties: dict[str, PropertyValue] = Field(default={})
    """Any other librdkafka property (TLS, SASL, group.instance.id, group.protocol ...)."""


class LanesRule(Section):
    """How records are handled side by side."""

    count: int = Field(default=16, ge=1, le=1024)
    """How many lanes, and so how many batches at once."""
    order_by: Literal["table", "row"] = "table"
    """What keeps its order: a table, or a row (database, table and primary key)."""
    max_records: int = Field(default=10_000, ge=1)
    """Records queued and running, each lane."""
    max_bytes: PositiveSize = size("256MiB")
    """Bytes queued and running, the whole worker."""
    work_stealing: bool = True
    """Idle lanes take over tables from full ones."""


class JournalRule(Section):
    """Where each partition was at which time, kept beside the local checkpoint file."""

    flush: Duration | None = duration("1m")
    """How often it is flushed to the disk, which counts after a power loss only; 0s: at each checkpoint,
    null: when the system does."""
    max_age: PositiveDuration = duration("168h")
    """Older ones are removed, a file at a time."""
    max_bytes: PositiveSize = size("64MiB")
    """The oldest are removed beyond this."""


class CheckpointRule(Section):
    """How the position is kept."""

    interval: PositiveDuration = duration("5s")
    """Time between commits."""
    directory: FilePath = Field(default=Path("state"), json_schema_extra={"default": "state"})
    """Folder of the local checkpoint file and the journal; a relative one starts at the working directory."""
    url: DatabaseUrl | None = None
    """A database that keeps the checkpoints in place of the local file: the URL of a PostgreSQL, MySQL,
    MariaDB or SQLite."""
    initial: Initial = Field(default="earliest")
    """Where a group without a position begins: earliest, latest, an ISO 8601 time, or offsets."""
    force: bool = False
    """true: begin at `initial` whatever the stores say."""
    journal: JournalRule | None = Field(default_factory=JournalRule)
    """Where each partition was at which time; null: not kept."""


class DeadLetterRule(Section):
    """Where records go that cannot be handled."""

    topic: TopicName
    """The dead-letter topic: a name that no entry of kafka.topics matches."""
    max_ratio: float = Field(default=0.1, gt=0, le=1)
    """More than this share of the last 1,000 records: halt."""


class TlsRule(Section):
    """The certificate that the HTTP server shows. A changed file is read anew."""

    certificate: FilePath
    """A PEM file: the certificate, and those between it and its authority. A relative path starts at the
    configuration's folder."""
    key: FilePath
    """A PEM file: its private key, without a password."""


class HttpRule(Section):
    """Where status, probes and metrics are served, and to whom."""

    host: str = Field(default="0.0.0.0", min_length=1)
    """Address to listen on."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port to listen on; 0: any free one, logged as http_listening."""
    token: AccessToken | None = None
    """What all but the probes ask for: as a bearer token, or as the password of any user."""
    tls: TlsRule | None = None
    """All but the probes are served over TLS only; null: all without it."""
    allowed_hosts: list[str] = Field(default=[])
    """Further names that requests may be addressed to: binlane.example.org, *.example.org, or * for any."""


class LoggingRule(Section):
    """What is logged, and how it looks."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged."""
    format: Literal["auto", "json", "console"] = "auto"
    """auto: coloured lines on a terminal, JSON elsewhere."""


class TracingRule(Section):
    """Spans of what is handled, told to a collector (OpenTelemetry, OTLP over HTTP)."""

    endpoint: HttpUrl | None = None
    """The collector's URL, http://collector:4318 say; null: as OTEL_EXPORTER_OTLP_ENDPOINT tells, else
    http://localhost:4318."""
    headers: dict[str, HeaderValue] = Field(default={})
    """What each request to it has beside, such as Authorization; secret, whatever their names are."""
    sample_ratio: float | None = Field(default=None, ge=0, le=1)
    """The share of batches that are traced; null: as OTEL_TRACES_SAMPLER tells, else 0.01."""
    records_per_second: int = Field(default=100, ge=0)
    """So many records, at most, whose own traces (header traceparent) are gone on with each second."""
    timeout: PositiveDuration = duration("10s")
    """How long the collector may take for a request."""
