"""The structure of `/api/status`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

WorkerState = Literal["starting", "running", "draining", "halted", "stopped"]
TableState = Literal["idle", "queued", "running", "retrying", "paused", "blocked"]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class StuckStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The first unfinished record of a partition, if it has been the first for `stuck_after`."""

    offset: int
    seconds: float
    """How long it has been the first unfinished record."""
    behind: int
    """The number of records that were fetched from this one on."""
    table: str | None
    """None: nothing works on the record, and nothing will. That is a fault of the worker."""
    lane: int | None
    state: str
    """running, retrying, halted; queued; waiting for others (such as a statement), waiting for room, waiting
    for the group (see `unconfirmed_seconds`). Also held back (done, but counted only after others are), or
    nowhere."""
    error: str | None = None
    held_by: str | None = None
    """The record that a held back record waits for."""
    handler: str | None = None
    """The handler that currently processes its batch; None: no handler."""
    handler_seconds: float | None = None
    stack: str | None = None
    """The stack of that handler's thread, innermost call last."""


class PartitionError(msgspec.Struct, frozen=True, kw_only=True):
    """Why Kafka returns no more records of a partition."""

    code: str
    """librdkafka's name for the error, for example _BAD_COMPRESSION."""
    error: str
    seconds: float
    """Seconds since it was first reported. The partition has returned nothing since."""
    offset: int | None = None
    """The first offset of the batch that cannot be read; None: the error names none."""
    unreadable: bool = False
    """Refetching the batch does not help: a person must act."""


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    position: int | None
    """The next offset to be fetched."""
    committed: int | None
    """The next offset to be read after a restart, as committed to Kafka; None: nothing is committed yet."""
    unfinished: int
    finished_ahead: int
    lag: int | None
    """Records between the committed offset and the partition's end; None: not known yet."""
    paused: bool
    delay_seconds: float | None = None
    standstill_seconds: float = 0.0
    """How long it has not been read although Kafka has more records and nothing else prevents it."""
    error: PartitionError | None = None
    """The error that Kafka has reported since the partition last returned something."""
    ahead: int = 0
    """Fetched records from the first unfinished one on: see `max_ahead`."""
    paused_by: str | None = None
    """Why it is paused; None: it is not. lanes (full), max_ahead, ddl_topics (others come first), format
    (none matches). Also schema_registry (a schema is not known yet), first_commit (Kafka has not accepted the
    start position)."""
    first_commit_seconds: float = 0.0
    """How long its batches have waited because Kafka has not accepted the commit of its start position."""
    stuck: StuckStatus | None = None
    head_paused_seconds: float = 0.0
    """How long its first unfinished record has been the first, because its table is paused; 0 until this
    reaches `stuck_after` or 5 minutes."""
    unread: int | None = None
    """Records between the next offset to be fetched and the partition's end; None: not known yet."""
    source_time_ms: int | None = None
    """When the newest fetched change happened in its source; None: not known."""
    first_unfinished: int | None = None
    """The offset of the first unfinished record, up to which the next commit goes. None: nothing was fetched
    yet."""
    window: list[float] = []
    """The finished share of each part between `first_unfinished` and `position`, cut into at most 40 equal
    parts; empty: there is nothing between them."""
    repeated: int = 0
    """Finished records that did not fit into the last commit's metadata. A worker that starts with an empty
    checkpoint folder repeats them."""


class KafkaFault(msgspec.Struct, frozen=True, kw_only=True):
    """An error from Kafka that may keep the worker from reading its partitions."""

    topic: str | None
    """A topic that is not being read; None: the error concerns no topic."""
    code: str
    """librdkafka's name for the error, such as UNKNOWN_TOPIC_OR_PART."""
    error: str
    seconds: float
    """Seconds since Kafka last reported it. Kafka reports some errors only once."""


class KafkaStatus(msgspec.Struct, frozen=True, kw_only=True):
    up: bool | None
    """Whether a broker can be reached; None: not known."""
    unconfirmed_seconds: float = 0.0
    """How long batches have waited because the group's coordinator accepts no commit from this worker. Its
    partitions may belong to another worker by now."""
    faults: list[KafkaFault] = []
    """The errors that `/readyz` considers."""


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    lane: int
    queued_records: int
    queued_bytes: int
    running_table: str | None
    running_seconds: float | None
    busy_seconds: float = 0.0
    offers: dict[str, int] = {}
    """Deliveries with records of the lane: `queued`, or `refused` as a whole because one of their lanes had
    no room. Refused ones are offered again."""
    batches: dict[str, int] = {}
    """Batches that the lane's processor took, by result: `finished`, `given_back` (to be retried), `halted`,
    or `spread` over shards."""
    waited_for: bool = False
    """Whether fetched records wait until others leave the lane. All lanes: their bytes are at the limit."""
    drain_seconds: float = 0.0
    """Estimated seconds until its running batch ends, from the table's earlier batches. If it has already run
    longer, as long again."""


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
    """Attempts so far for the batch that is being retried."""
    halted: bool = False
    """Whether a change that failed permanently blocks it. Otherwise, a blocked table waits for a target."""
    topic: str | None = None
    """The record at which the table is blocked or retrying; None: it is neither."""
    partition: int | None = None
    offset: int | None = None
    standing_seconds: float | None = None
    """How long its batch has failed or waited for its target or a person; None: it does neither."""
    held_seconds: float | None = None
    """How long ago its oldest unfinished record was queued; None: it has none."""
    waits_for: str | None = None
    """What a queued table waits for: `ready` (its lane's turn), `gathering` (a fuller batch), `limited` (its
    handler's limit), or `waiting for others`. Others are tables of its next statement, or its shards."""
    lane_records: int = 0
    """Its records that count against its lane's limit. Parked ones do not."""
    lane_bytes: int = 0
    calls: dict[str, tuple[int, float, float]] = {}
    """Handler -> its calls since the start, their mean seconds, and the longest."""


class TargetStatus(msgspec.Struct, frozen=True, kw_only=True):
    handler: str
    """`__dead_letter__`: the dead-letter topic; `__schema_registry__`: the schema registry."""
    up: bool
    error: str | None = None
    """The handler's error when it last found its target down."""
    down_seconds: float | None = None
    missing_topic: str | None = None
    """The name of the dead-letter topic, if it is down because the topic does not exist."""
    waiting: int = 0
    """How many tables (or shards) wait because of the handler's `limit`."""
    waited_seconds: float = 0.0
    """The duration of all such waits that have ended."""


class UnmatchedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that no rule matches."""

    table: str
    nearest: str | None
    """The `match` that was probably meant; None: no match is similar."""


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """Records that the worker read since its start and passed to no handler."""

    unmatched_records: int = 0
    """Records of unmatched tables. This field and the tables start again at each reload."""
    unmatched_tables: list[UnmatchedTable] = []
    """At most a hundred, those with a `nearest` first."""
    more_tables: bool = False
    """There are more than these."""
    undecodable_letters: int = 0
    """Undecodable records that became dead letters."""
    undecodable_skipped: int = 0
    undecodable_error: str | None = None
    """The error of the latest undecodable record."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Tables, or one handler of them, that a person has paused."""

    table: str
    """A pattern, such as `match` of a table's rule."""
    handler: str | None = None
    """None: all handlers."""
    by: str
    """Who paused it, in their own words."""
    since: _Time
    until: _Time | None = None
    """When it ends by itself; None: never."""
    reason: str | None = None

    def ended(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until

    @property
    def name(self) -> str:
        return self.table if self.handler is None else f"{self.table} (handler {self.handler})"

    @property
    def told(self) -> str:
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        reason = "" if self.reason is None else f": {self.reason}"
        return f"paused by {self.by} since {self.since:%Y-%m-%d %H:%M:%S} UTC{until}{reason}"


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Means of the last minute, or of the seconds since the start."""

    rate: float
    """Records finished per second."""
    lag_growth: float | None
    """Records per second by which it grows (negative: shrinks). None: not known, or lately it was normal."""
    waiting: float = 0.0
    """The share of the time in which fetched records waited for room in the lanes."""


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
    """`{"handler", "type"}` and the handler's own status (`Handler.status`), if it has one."""
    error: str | None = None
    tables_omitted: int = 0
    """How many more tables there are. `tables` contains at most 1,000: those with problems first, then the
    busy ones, then the most recently used."""
    finished_records: int | None = None
    """Records finished by all tables since the worker started."""
    unmatched_records: int = 0
    """Records of unmatched tables since the worker started. They are skipped and finished."""
    lane_max_records: int | None = None
    """The most records that a lane may contain (`lanes.max_records`)."""
    max_bytes: int | None = None
    """The most bytes that all lanes together may contain (`lanes.max_bytes`)."""
    passed_over: PassedOver | None = None
    """None: not known, because the worker's version is older."""
    pauses: list[Pause] = []
    config: str | None = None
    """The configuration file, as given on the worker's command line."""
    waiting_seconds: float = 0.0
    """How long fetched records have waited for room in the lanes."""
    pace: Pace | None = None
    """None: not known yet."""


@dataclass(frozen=True, slots=True)
class Look:
    """The status, and totals over all tables at that moment, including those not in the status."""

    status: WorkerStatus
    finished: Sequence[tuple[str, int]]
    """(table, records finished) of each table that ever had a record. Tables no longer tracked are under the
    name that they count under."""
    standing: int
    """Number of tables that stand still: they retry, wait for their target, are halted, or wait for these."""
    halted: int = 0
    """Tables with a permanently failed change."""
    target_down: int = 0
    """Other tables that wait for a target."""
    blocked_records: int = 0
    """Fetched and unfinished records that another worker would not help. They belong to tables that stand
    still, or wait for room behind them."""
    parked: tuple[int, int, float] = (0, 0, 0.0)
    """Records of tables that stand still, in files; the files' bytes; and the seconds since the oldest record
    was queued."""
    held_up: bool = False
    """Whether reading has stopped because fetched records wait for room that only such tables could free."""
    expectations: Sequence[tuple[str, str]] = ()
    """(table, rule) of each expectation of the known tables."""
