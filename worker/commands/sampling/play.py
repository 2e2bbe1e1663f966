"""A file of records played through a configuration in memory, with the worker's own lanes and processors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Message

from handlers import Batch, Handler
from handlers.options.matching import topics_matcher
from handlers.testing import Calling
from offsets.restore import Start
from offsets.types import TopicPartition
from worker.commands.sampling.sample import default_topic
from worker.configuration import Configuration, TableRule, load
from worker.configuration.formats import formats_of
from worker.dead_letters.topic import DeadLetter, read_letter
from worker.dead_letters.writing import DeadLetters
from worker.fetching.routing import Router
from worker.formats.decoding import learn
from worker.formats.interface import SeparateDDL
from worker.formats.sample import read_samples
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.processing.failures import FailureRules
from worker.processing.processor import Processor
from worker.running.handler_set import HandlerSet
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.table_book import TableBook

_JOIN_SECONDS = 10.0
_SEND: Any = Message


@dataclass(frozen=True, slots=True)
class Played:
    """What became of the records. `halted`: table -> error. `handlers`: by name; they are closed."""

    letters: list[DeadLetter]
    halted: dict[str, str]
    handlers: dict[str, Handler]


def play(
    config: Path | str,
    records: Path | str,
    *,
    instead: Mapping[str, Callable[[Batch], object]] | None = None,
    folder: Path | str | None = None,
    seconds: float = 60.0,
) -> Played:
    """Handle the records of a file as a worker does, but without Kafka and without delays between attempts.

    `records`: a file as for `binlane check --sample`. `instead`: name of a handler -> what gets its batches
    instead, such as a list's `append`. `folder`: where relative paths in options start.

    Raises what would stop the worker, ConfigurationError, SampleError, TimeoutError after `seconds`, and
    ValueError if no handler has a name in `instead`."""
    configuration, path = load(Path(config)), Path(config)
    configuration = configuration.model_copy(update={"tables": [*map(_soon, configuration.tables)]})
    if folder is not None:
        configuration.read_from(Path(folder) / path.name, configuration.secrets, configuration.hidden)
    lanes, errors, clock = Lanes(configuration.lanes, time.monotonic), list[BaseException](), time.monotonic
    handlers, metrics, letters = HandlerSet(configuration, fail=errors.append), Metrics(), _Letters()
    if unknown := set(instead or {}) - (names := {bound.name for bound in handlers.bound()}):
        raise ValueError(
            f"instead: no handler is named {', '.join(sorted(unknown))}; handlers: {', '.join(sorted(names))}"
        )
    for bound in handlers.bound():
        if bound.name in (instead or {}):
            bound.objects = (Calling((instead or {})[bound.name]),)
    book, action = TableBook(configuration, handlers.of), configuration.on_undecodable
    dead_letters = None
    if (rule := configuration.dead_letter) is not None:
        of_lanes: Any = {"finished": lambda: lanes.seen.finished_records, "back": lanes.unblock}
        of_lanes |= {"metrics": metrics, "redact": configuration.secrets.redact, "random": random.random}
        dead_letters = DeadLetters(rule, {}, worker="played", producer=lambda *_, **__: letters, **of_lanes)
    shared: Any = {"clock": clock, "random": random.random, "fail": errors.append}
    shared["rules"] = FailureRules(on_undecodable=action, dead_letters=dead_letters)
    processors = [Processor(number, lanes, metrics, **shared) for number in range(len(lanes.lanes))]
    end = clock() + seconds

    def wait(until: Callable[[], bool]) -> None:
        while not until() and not errors:
            if clock() > end:
                late = {unit.table.label: unit.error for unit in book.all() if not unit.at_rest}
                raise TimeoutError(f"not handled within {seconds:g} s: {late}")
            time.sleep(0.001)

    try:
        handlers.open()
        for processor in processors:
            processor.start()
        for delivery in _polls(configuration, Router(book, metrics, on_undecodable=action), Path(records)):
            wait(lambda delivery=delivery: lanes.offer(delivery))  # type: ignore[misc]
        wait(lanes.worked_off)
    finally:
        lanes.stop()
        for processor in filter(Processor.is_alive, processors):
            processor.call_off()
            processor.join(_JOIN_SECONDS)
        handlers.close()
    for error in errors:
        raise error
    halted = lanes.seen.halted()
    reasons = {unit.table.label: str(unit.error) for unit in book.all() if unit.table.label in halted}
    return Played(letters.written, reasons, {bound.name: bound.of(0) for bound in handlers.bound()})


def _soon(rule: TableRule) -> TableRule:
    """Return the rule without delays between attempts."""
    return rule.model_copy(update={"retry": rule.retry.model_copy(update={"initial_delay": 0.0})})


def _polls(configuration: Configuration, router: Router, file: Path) -> Iterator[Delivery]:
    """Yield the records in the file's order, as if each poll brought those of one partition."""
    formats, has_ddl = formats_of(configuration), topics_matcher(configuration.kafka.ddl_topics)
    assignments: dict[TopicPartition, Assignment] = {}
    samples = read_samples(file, default_topic(configuration))
    for place, run in groupby(samples, lambda one: TopicPartition(one.topic(), one.partition())):
        format_ = formats.of_assigned(place.topic)
        records = list(run)
        for record in records if has_ddl(place.topic) else ():
            learn(cast(SeparateDDL, format_), record)
        new = Assignment(place, 1, Start("earliest", (), "initial", "played"), format_)
        assignment = assignments.setdefault(place, new)
        delivery = Delivery()
        router.route(assignment, records, delivery)
        yield from delivery.pieces(configuration.lanes.max_records, configuration.lanes.max_bytes)


class _Letters:
    """Keeps what a producer would send to the dead-letter topic."""

    def __init__(self) -> None:
        self.written: list[DeadLetter] = []

    def produce(self, topic: str, *, on_delivery: Callable[[None, Message], None], **sent: Any) -> None:
        made = _SEND(topic, 0, len(self.written), **sent)
        self.written.append(read_letter(made))
        on_delivery(None, made)
