"""What the worker tells of itself: the shape of `/api/status`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

WorkerState = Literal["starting", "running", "draining", "halted", "stopped"]
TableState = Literal["idle", "queued", "running", "retrying", "blocked"]


class StuckStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's first unfinished record, when it has been the first for `stuck_after`."""

    offset: int
    seconds: float
    """How long it has been the first."""
    behind: int
    """How many records were fetched with it and since."""
    table: str | None
    """None: nobody works on the record, and nobody ever will. That is a fault of the worker."""
    lane: int | None
    state: str
    """running, retrying, halted; queued, waiting for others (as before a statement), waiting for room,
    waiting for the group (see `unconfirmed_seconds`); held back (done, and counting only when others are);
    nowhere."""
    error: str | None = None
    held_by: str | None = None
    """The record that a held back one waits for."""
    handler: str | None = None
    """Which has its batch now; None: none has."""
    handler_seconds: float | None = None
    stack: str | None = None
    """What that handler's thread is doing, the innermost call last."""


class PartitionError(msgspec.Struct, frozen=True, kw_only=True):
    """Why Kafka brings nothing more of a partition."""

    code: str
    """librdkafka's name for it, for example _BAD_COMPRESSION."""
    error: str
    seconds: float
    """Since it was first told, in which the partition brought nothing."""
    offset: int | None = None
    """Where the batch begins that cannot be read; None: the error names none."""
    unreadable: bool = False
    """The batch cannot be read, however often it is fetched: a person has to act."""


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    position: int | None
    """The next offset to be fetched."""
    committed: int | None
    """The next offset to be read after a restart, as Kafka counts it; None: nothing committed yet."""
    unfinished: int
    finished_ahead: int
    lag: int | None
    """Records between the committed offset and the partition's end; None: not known yet."""
    paused: bool
    delay_seconds: float | None = None
    standstill_seconds: float = 0.0
    """How long it has not been read although there is more and nothing keeps the worker from it."""
    error: PartitionError | None = None
    """What Kafka has told of it since it last brought something."""
    ahead: int = 0
    """Records that were fetched with the first unfinished one and since: see `max_ahead`."""
    paused_by: str | None = None
    """lanes (they are full), max_ahead, ddl_topics (others come first), format (there is none),
    schema_registry (a schema is not known yet), first_commit (Kafka has not taken where it begins); None: it
    is read."""
    first_commit_seconds: float = 0.0
    """For how long nothing of it is handled because Kafka has not taken the commit of where it begins."""
    stuck: StuckStatus | None = None
    unread: int | None = None
    """Records between the next offset to be fetched and the partition's end; None: not known yet."""
    source_time_ms: int | None = None
    """When the newest change that was fetched happened in its source; None: not told."""
    first_unfinished: int | None = None
    """The offset of the first record that is not finished: a later commit reaches up to it. None: none was
    fetched yet."""
    window: list[float] = []
    """How much is finished of each part, when what lies between `first_unfinished` and `position` is cut into
    equal parts, 40 at most; empty: nothing of it."""


class KafkaFault(msgspec.Struct, frozen=True, kw_only=True):
    """An error of Kafka's that may keep the worker from its partitions."""

    topic: str | None
    """Not among those that are read; None: it is about no topic."""
    code: str
    """librdkafka's name of it, as UNKNOWN_TOPIC_OR_PART."""
    error: str
    seconds: float
    """Since Kafka told it last: it tells some errors once."""


class KafkaStatus(msgspec.Struct, frozen=True, kw_only=True):
    up: bool | None
    """Whether a broker can be reached; None: not known."""
    quiet_seconds: float
    """Since the last poll that brought a record, or the end of a partition."""
    unconfirmed_seconds: float = 0.0
    """For how long batches have waited because the group's coordinator takes no commit of this worker, whose
    partitions may be another's by now."""
    faults: list[KafkaFault] = []
    """What `/readyz` knows of errors."""


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    lane: int
    queued_records: int
    queued_bytes: int
    running_table: str | None
    running_seconds: float | None
    busy_seconds: float = 0.0
    records_fill: float = 0.0
    """Its records as a share of `lanes.max_records`. Above 1: one record or delivery was larger, or the bound
    became smaller."""
    bytes_fill: float = 0.0
    """Its bytes as a share of `lanes.max_bytes`, which all lanes share."""
    offers: dict[str, int] = {}
    """Deliveries with records of the lane: `queued`, and `refused`, whole, for want of room in any lane of
    theirs; then they are offered again."""
    batches: dict[str, int] = {}
    """Those that the lane's processor took, by how they ended: `finished`, `given_back` to be tried again,
    `halted`, or `spread` over shards."""


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    lane: int
    finished_records: int
    failed_batches: int
    state: TableState
    error: str | None
    delay_seconds: float | None
    queued_records: int = 0
    attempt: int = 0
    """Attempts so far of the batch that is being retried."""
    halted: bool = False
    """It is blocked by a change that failed for good; else, if it is blocked, by a target that is down."""
    topic: str | None = None
    """Of the record that it stands at, while it is blocked or being retried; None: it does not stand."""
    partition: int | None = None
    offset: int | None = None


class TargetStatus(msgspec.Struct, frozen=True, kw_only=True):
    handler: str
    """`__dead_letter__`: the dead-letter topic; `__schema_registry__`: the schema registry."""
    up: bool
    error: str | None = None
    """What the handler said of its target when it found it down last."""
    down_seconds: float | None = None
    missing_topic: str | None = None
    """Of the dead-letter topic: its name, when it is down because it does not exist."""


class UnmatchedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that no rule matches."""

    table: str
    nearest: str | None
    """The `match` that was probably meant to; None: none looks like it."""


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker read since its start, and no handler got."""

    unmatched_records: int = 0
    """Of tables that no rule matches; this and the tables since the last reload, if there was one."""
    unmatched_tables: list[UnmatchedTable] = []
    """A hundred at most, those with a `nearest` first."""
    more_tables: bool = False
    """There are more of them."""
    undecodable_letters: int = 0
    """Undecodable records that became dead letters."""
    undecodable_skipped: int = 0
    undecodable_error: str | None = None
    """What was told of the latest of them."""


class CheckpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    last_success: str | None
    """ISO 8601, UTC."""
    last_error: str | None


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: WorkerState
    version: str
    uptime_seconds: float
    partitions: list[PartitionStatus]
    lanes: list[LaneStatus]
    tables: list[TableStatus]
    checkpoint: CheckpointStatus
    kafka: KafkaStatus | None = None
    targets: list[TargetStatus] = []
    handlers: list[dict[str, Any]] = []
    """`{"handler", "type"}` and what the handler tells of itself (`Handler.status`), if it does."""
    error: str | None = None
    tables_omitted: int = 0
    """How many more tables there are: `tables` holds 1,000 at most, first those in trouble, then the busy
    ones, then those that were used last."""
    finished_records: int | None = None
    """By all tables since the worker started."""
    unmatched_records: int = 0
    """Of tables that no rule matches, since the worker started: passed over, and finished."""
    lane_max_records: int | None = None
    """How many records a lane may hold (`lanes.max_records`): what its queue is measured against."""
    max_bytes: int | None = None
    """How many bytes the lanes may hold together (`lanes.max_bytes`)."""
    passed_over: PassedOver | None = None
    """None: not known, of an earlier version."""
    config: str | None = None
    """The configuration's file, as the worker was given it."""


@dataclass(frozen=True, slots=True)
class Look:
    """The status, and what is counted of all tables at that moment, told or not."""

    status: WorkerStatus
    finished: Sequence[tuple[str, int]]
    """(table, records finished) of each that ever had a record; of those let go of, by the name that they
    count under."""
    blocked: int
    """Tables that stand still."""
    halted: int = 0
    """Those of them of which a change failed for good; the others wait for a target."""
    blocked_records: int = 0
    """Fetched and unfinished records that no further worker would help: those of tables that stand still, or
    of which a batch has been failing for `stuck_after`, and what waits for room behind them."""
    held_up: bool = False
    """Nothing is read on: what was fetched waits for room that only such tables could give."""
