"""Sending dead letters through the handlers of their tables again, one at a time."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import msgspec

from handlers import Batch, Change, Handler, PartialFailure, StopWorker
from handlers.loading.registry import HandlerTypeError, OptionsError, create
from handlers.loading.user_code import refuse_unrun
from handlers.options.matching import topics_matcher
from handlers.rows import borders, with_own_rows
from worker.attempts.backoff import describe
from worker.column_rules.applying import bring_under, decode_under
from worker.column_rules.transforms import FAULTS
from worker.configuration import Configuration, HandlerEntry
from worker.configuration.formats import formats_of
from worker.configuration.kafka_properties import consumer_settings
from worker.dead_letters.topic import DeadLetter
from worker.fetching.ddl_history import DDLHistory
from worker.formats.interface import Apart, Skip, UndecodableRecord
from worker.formats.registry import NoFormatError
from worker.units.table import routed

_LONGEST_TOPIC = 249


class ReplayFault(Exception):
    """Why a letter was not applied, in one sentence."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What replaying a letter would do."""

    letter: DeadLetter
    database: str
    name: str
    changes: tuple[Change, ...]
    entries: tuple[HandlerEntry, ...] = ()
    skipped: str | None = None
    """Why its record has no change to apply."""

    @property
    def table(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def rows(self) -> frozenset[str] | None:
        """The rows that it concerns. None: the whole table, or rows without a key."""
        keys = [change.key for change in self.changes]
        return None if any(key is None for key in keys) else frozenset(map(repr, keys))


def replayed_topic(letter: DeadLetter) -> str:
    """Return the topic of a replayed change: one for each letter.

    Targets store how far each partition was applied. A separate topic makes each letter independent: a target
    applies one after a later one, and skips one that it already has."""
    own = f"@{letter.offset}"
    return letter.place.topic[: _LONGEST_TOPIC - len(own)] + own


class Reader:
    """Reads letters with the present configuration: their table, changes and handlers."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._formats = formats_of(configuration)
        if configuration.kafka.ddl_topics:
            has_ddl = topics_matcher(configuration.kafka.ddl_topics)
            settings = consumer_settings(configuration.kafka)
            history = DDLHistory(settings, has_ddl, self._formats.of_assigned, stopping=threading.Event())
            history.read(lambda: None)

    def changes(self, letter: DeadLetter) -> Plan:
        """Return its table and changes, with the letter's own position. Raises ReplayFault."""
        if letter.topic is None:
            raise ReplayFault("its headers do not name its source topic")
        record = letter.original()
        found: list[Change] = []
        try:
            format_ = self._formats.of(letter.topic)
            route = routed(format_, record)
            if isinstance(route, Skip):
                return Plan(letter, "", letter.table or "", (), skipped=route.reason)
            if isinstance(route, Apart):
                tables = dict.fromkeys(f"{own.database}.{own.table}" for own, _ in route.parts)
                raise ReplayFault(
                    f"its record has changes of several tables ({', '.join(tables)}), because it could not "
                    "be split when it was set aside: have it read again from its topic"
                )
            rule = self._configuration.rule_for(f"{route.database}.{route.table}")
            rules = (None, None) if rule is None else (rule.row_rules, rule.statement_rules)
            decode_under(format_, record, found, *rules, alone=route.alone)
        except NoFormatError as error:
            raise ReplayFault(str(error)) from None
        except UndecodableRecord as fault:
            raise ReplayFault(f"undecodable record: {fault}") from None
        if not found:
            return Plan(letter, route.database, route.table, (), skipped="it contains no change")
        if letter.index is not None:
            parts = [found[first:end] for first, end in pairwise(borders(found, 0, len(found)))]
            # Half of a key change would remove the old row, or lack the values that are in it.
            named = [part for part in parts if any(change.index == letter.index for change in part)]
            found = [change for part in named for change in part]
            if not found:
                raise ReplayFault(f"its record has no row {letter.index}")
        try:
            transform = None if rule is None else rule.transforming
            bring_under(*rules, found, 0, transform, database=route.database, table=route.table)
        except FAULTS as fault:
            raise ReplayFault(f"column rules: {fault}") from None
        if not found:
            return Plan(letter, route.database, route.table, (), skipped="the table's rules leave it out")
        expected = None if rule is None else rule.expectations
        unmet = None if expected is None else expected.unmet(found, f"{route.database}.{route.table}")
        if unmet is not None and unmet.action != "warn":
            raise ReplayFault(str(unmet))
        own = {"topic": replayed_topic(letter), "partition": letter.place.partition, "offset": letter.offset}
        changes = tuple(msgspec.structs.replace(change, **own) for change in found)
        return Plan(letter, route.database, route.table, changes)

    def plan(self, letter: DeadLetter) -> Plan:
        """Return what replaying it would do. Raises ReplayFault."""
        plan = self.changes(letter)
        if plan.skipped is not None:
            return plan
        rule = self._configuration.rule_for(plan.table)
        if rule is None:
            raise ReplayFault(f"no rule of tables: matches {plan.table}")
        entries = [entry for entry in rule.handlers if letter.handler in (None, entry.name)]
        if not entries:
            names = ", ".join(entry.name for entry in rule.handlers)
            raise ReplayFault(f"{plan.table} has no handler {letter.handler} now; it has {names}")
        return Plan(letter, plan.database, plan.name, plan.changes, tuple(entries))


@dataclass
class _Failed:
    """Rows whose letters failed, by table; None for all rows. Later letters must not overtake them."""

    rows: dict[str, list[tuple[str, frozenset[str] | None]]] = field(default_factory=dict)

    def add(self, plan: Plan) -> None:
        self.rows.setdefault(plan.table, []).append((plan.letter.name, plan.rows))

    def before(self, plan: Plan) -> str | None:
        """Return the failed letter that this one must wait for."""
        for name, rows in self.rows.get(plan.table, ()):
            if rows is None or plan.rows is None or rows & plan.rows:
                return name
        return None


class Replay:
    """Opens the handlers that letters need, and closes them at its end. One thread."""

    def __init__(self, configuration: Configuration, topic_id: str | None = None) -> None:
        """`topic_id`: the dead-letter topic's id. A recreated topic has other letters at the same offsets."""
        self._configuration = configuration
        self._topic_id = topic_id
        self._handlers: list[tuple[HandlerEntry, Handler]] = []
        self._failed = _Failed()
        self._stopped: list[BaseException] = []  # fatal errors of handlers' threads

    def apply(self, plan: Plan) -> None:
        """Apply the letter's changes with its handlers. Raises ReplayFault, and StopWorker."""
        if self._stopped:
            raise StopWorker(str(self._stopped[0])) from self._stopped[0]
        earlier = self._failed.before(plan)
        if earlier is not None:
            self._failed.add(plan)
            raise ReplayFault(f"not tried: {earlier}, which failed, has an earlier change of its row")
        try:
            for entry in plan.entries:
                self._handle(entry, plan)
        except ReplayFault:
            self._failed.add(plan)
            raise

    def close(self) -> Iterator[tuple[str, BaseException]]:
        """Close the handlers. Yields (name, error) of each that failed to close."""
        while self._handlers:
            entry, handler = self._handlers.pop()
            try:
                handler.close()
            except (Exception, SystemExit) as error:
                yield entry.name, error

    def _handle(self, entry: HandlerEntry, plan: Plan) -> None:
        handler = self._opened(entry)
        letter = plan.letter
        topic = replayed_topic(letter)
        batch = Batch(
            plan.table,
            with_own_rows(plan.changes),
            database=plan.database,
            name=plan.name,
            positions={(topic, letter.place.partition): (letter.offset, letter.offset)},
            records=1,
            topic_ids={} if self._topic_id is None else {topic: self._topic_id},
            replay_of=letter.stood_at,
        )
        try:
            refuse_unrun(handler.handle(batch), handler)
        except StopWorker:
            raise
        except PartialFailure as failure:
            if failure.done != len(plan.changes):
                raise ReplayFault(f"handler {entry.name}: {describe(failure.cause or failure)}") from failure
        except (Exception, SystemExit) as error:
            raise ReplayFault(f"handler {entry.name}: {describe(error)}") from error

    def _opened(self, entry: HandlerEntry) -> Handler:
        for known, handler in self._handlers:
            if known is entry:
                return handler
        configuration = self._configuration
        try:
            made = create(entry, configuration.folder)
            made.open(
                configuration.context_for(
                    entry,
                    lane=0 if made.per_lane else None,
                    stop_worker=self._stopped.append,
                    handles=partial(configuration.handles, entry),
                )
            )
        except (HandlerTypeError, OptionsError) as error:
            raise ReplayFault(f"handler {entry.name}: {error}") from None
        except (Exception, SystemExit) as error:
            raise ReplayFault(f"handler {entry.name} could not open: {describe(error)}") from error
        self._handlers.append((entry, made))
        return made


def in_order(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Sort letters by the time they were written, and always by offset within a partition."""
    by_partition: dict[int, list[DeadLetter]] = {}
    for letter in letters:
        by_partition.setdefault(letter.place.partition, []).append(letter)
    return list(heapq.merge(*by_partition.values(), key=lambda letter: letter.time or ""))


def by_failure(letters: Iterable[DeadLetter]) -> list[list[DeadLetter]]:
    """Group letters of the same failure at the place of the first one, which represents the others."""
    found: dict[tuple[object, ...], dict[str, DeadLetter]] = {}
    for letter in letters:
        found.setdefault(letter.about, {}).setdefault(letter.name, letter)
    return [list(alike.values()) for alike in found.values()]
