"""The worker as a whole: built, started, watched, drained."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from types import FrameType

from confluent_kafka import Consumer, KafkaException

from handlers import StopWorker
from offsets.stores import CheckpointError, FileStore, PolledKafkaStore
from worker.assignment import Assignments
from worker.committer import Committer
from worker.configuration import Configuration
from worker.execution import describe
from worker.fetcher import Fetcher
from worker.formats.choice import FormatChoice
from worker.handler_set import HandlerSet
from worker.http.app import build_app
from worker.http.server import HttpServer, ListenError
from worker.kafka_errors import KafkaErrors, client_logger
from worker.kafka_settings import consumer_settings
from worker.lanes import Lanes
from worker.logs import get_logger
from worker.metrics import Metrics
from worker.processor import Processor
from worker.rebalance import Rebalancer
from worker.routing import Router, UndecodableHalt
from worker.status import WorkerState
from worker.status_report import StatusReport
from worker.tables import TableBook
from worker.unit import UnitState

__all__ = ["Worker"]

log = get_logger("worker")

_KAFKA_DEADLINE = 10.0
_STUCK_SECONDS = 60.0
_WATCH_SECONDS = 0.5


class DeadEnd(Exception):
    """Only halted tables are left to work on."""


# Their text says what was found, where, and what to do: a traceback would only hide it.
_TOLD = (CheckpointError, DeadEnd, KafkaException, ListenError, StopWorker, UndecodableHalt)


class Worker:
    """One worker process. `run` returns its exit code.

    Threads: fetcher, one processor a lane, committer, HTTP, Kafka commits; this object's own is the main one, which
    takes signals and watches the others.
    """

    def __init__(self, configuration: Configuration) -> None:
        """Raises SettingsError and handler errors: nothing is started yet."""
        self._configuration = configuration
        self._clock = clock = time.monotonic
        self._state: WorkerState = "starting"
        self._stop = threading.Event()
        # Guards `_error`.
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._signals = 0
        lanes, checkpoint = configuration.lanes, configuration.checkpoint
        self.metrics = Metrics()
        self._handlers = HandlerSet(configuration)
        self._errors = KafkaErrors(clock)
        settings = consumer_settings(configuration)
        self._kafka = PolledKafkaStore(_KAFKA_DEADLINE)
        self._consumer = Consumer(
            settings,
            error_cb=self._errors.report,
            on_commit=self._kafka.answered,
            logger=client_logger(),
        )
        self._assignments = Assignments()
        self._book = TableBook(configuration, self._handlers.of)
        self._lanes = Lanes(
            lanes.count,
            max_records=lanes.max_records,
            max_bytes=lanes.max_bytes,
            work_stealing=lanes.work_stealing,
            clock=clock,
        )
        skip = configuration.on_undecodable == "skip"
        self._processors = [
            Processor(
                number,
                self._lanes,
                self.metrics,
                skip_undecodable=skip,
                clock=clock,
                random=random.random,
                fail=self.fail,
            )
            for number in range(lanes.count)
        ]
        self._local = FileStore(checkpoint.directory, configuration.kafka.group_id)
        self._committer = Committer(
            self._assignments,
            self._local,
            self._kafka,
            interval=checkpoint.interval,
            metrics=self.metrics,
            clock=clock,
            fail=self.fail,
        )
        self._fetcher = Fetcher(
            self._consumer,
            configuration.kafka.topics,
            assignments=self._assignments,
            router=Router(self._book, self.metrics, skip_undecodable=skip),
            lanes=self._lanes,
            errors=self._errors,
            store=self._kafka,
            metrics=self.metrics,
            max_records=lanes.max_records,
            max_bytes=lanes.max_bytes,
            clock=clock,
            fail=self.fail,
        )
        strategy = str(settings.get("partition.assignment.strategy", ""))
        self._fetcher.rebalancer = Rebalancer(
            configuration,
            assignments=self._assignments,
            book=self._book,
            lanes=self._lanes,
            committer=self._committer,
            local=self._local,
            kafka=self._kafka,
            format_of=FormatChoice(configuration.format).of,
            metrics=self.metrics,
            incremental="cooperative" in strategy or settings.get("group.protocol") == "consumer",
            changed=self._fetcher.changed,
            settled=self._errors.settled,
            stopping=self._stop,
        )
        self.status = StatusReport(
            configuration.name,
            assignments=self._assignments,
            lanes=self._lanes,
            book=self._book,
            committer=self._committer,
            state=self._shown_state,
            error=lambda: describe(self._error) if self._error else None,
            paused=lambda: self._fetcher.paused,
            redact=configuration.secrets.redact,
            lane_max_records=lanes.max_records,
            max_bytes=lanes.max_bytes,
            clock=clock,
            wall_clock=time.time,
        )
        self.metrics.attach(self.status)
        self._http: HttpServer | None = None

    def run(self) -> int:
        """Work until a signal or an error; 0 when everything that ran was finished and committed, else 1."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        opened = False
        try:
            self._start_http()
            self._handlers.open()
            opened = True
            if not self._stop.is_set():
                self._start_threads()
                self._watch()
        except Exception as error:
            self.fail(error)
        return self._drain(opened=opened)

    def stop(self) -> None:
        """Drain and end `run`. Any thread."""
        self._stop.set()

    def fail(self, error: BaseException) -> None:
        """Stop because of this error; only the first one counts. Any thread."""
        with self._lock:
            if self._error is None:
                self._error = error
        # What a person can mend is told in its one line; anything else needs its place in the code.
        exc_info = None if isinstance(error, _TOLD) else error
        thread = threading.current_thread().name
        log.error("worker_fault", error=describe(error), thread=thread, exc_info=exc_info)
        self._stop.set()

    def health(self) -> str | None:
        """Why the worker is not healthy; None when every thread makes progress."""
        if self._state != "running":
            return None
        now = self._clock()
        patience = _STUCK_SECONDS + self._configuration.revoke_timeout
        for thread in (self._fetcher, self._committer):
            if not thread.is_alive():
                return f"the {thread.name} thread is dead"
            if now - thread.beat > patience:
                return f"the {thread.name} thread has made no progress for {now - thread.beat:.0f} s"
        dead = [thread.name for thread in self._processors if not thread.is_alive()]
        return f"dead threads: {', '.join(dead)}" if dead else None

    def ready(self) -> str | None:
        """Why the worker is not ready; None when it has its partitions and the handlers are open."""
        if self._state != "running":
            return f"the worker is {self._state}"
        trouble = self._errors.trouble({a.partition.topic for a in self._assignments.current()})
        if not self._assignments.balanced:
            return f"no partitions assigned yet{': ' + trouble if trouble else ''}"
        return trouble if trouble and not self._assignments.current() else None

    def _shown_state(self) -> WorkerState:
        if self._state == "running" and self._halted():
            return "halted"
        if self._state == "running" and not self._assignments.balanced:
            return "starting"
        return self._state

    def _halted(self) -> list[str]:
        return [unit.table.label for unit in self._book.all() if unit.state is UnitState.HALTED]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            os.write(2, b"second signal: stopping at once; unfinished records come again\n")
            os._exit(1)
        self._stop.set()

    def _start_http(self) -> None:
        rule = self._configuration.http
        if rule is None:
            return
        app = build_app(self.status, self.health, self.ready, self.metrics)
        self._http = HttpServer(app, rule.host, rule.port)
        self._http.start()

    def _start_threads(self) -> None:
        # Millions of records pass through; what was made until now stays, and need not be looked at again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._state = "running"
        for thread in (*self._processors, self._committer, self._fetcher):
            thread.start()
        log.info(
            "worker_started",
            name=self._configuration.name,
            group=self._configuration.kafka.group_id,
            topics=self._configuration.kafka.topics,
            lanes=self._configuration.lanes.count,
        )

    def _watch(self) -> None:
        ends = 0
        while not self._stop.wait(_WATCH_SECONDS):
            if self._lanes.pressed and self._lanes.dead_end(self._book.all()):
                ends += 1
            else:
                ends = 0
            if ends > 1:
                raise DeadEnd(
                    f"the bounds of the lanes are full of records of halted tables: {', '.join(self._halted())}; "
                    f"mend the cause and restart, or set on_failure: skip"
                )

    def _drain(self, *, opened: bool) -> int:
        """Finish what runs, commit, leave the group, close the handlers."""
        began = self._state == "running"
        self._state = "draining"
        timeout = self._configuration.shutdown_timeout
        log.info("draining", shutdown_timeout=timeout)
        end = self._clock() + timeout
        clean = True
        halted: list[str] = []
        if began:
            self._fetcher.drain()
            for processor in self._processors:
                processor.call_off()
            self._lanes.stop()
            for processor in self._processors:
                processor.join(max(0.0, end - self._clock()))
            clean = self._drained()
            halted = self._halted()  # leaving the group forgets what its partitions held
            self._committer.stop()
            clean = self._committer.commit() and clean
            self._fetcher.close()
            self._fetcher.join(_KAFKA_DEADLINE + self._configuration.revoke_timeout)
            clean = clean and not self._fetcher.is_alive()
        if opened and not any(processor.is_alive() for processor in self._processors):
            clean = self._handlers.close() and clean
        self._state = "stopped"
        code = 0 if clean and self._error is None and not halted else 1
        log.info(
            "stopped",
            exit_code=code,
            error=describe(self._error) if self._error else None,
            halted_tables=halted or None,
        )
        if self._http is not None:
            self._http.stop()
        return code

    def _drained(self) -> bool:
        with self._lanes.lock:
            running = [lane.running.unit.table.label for lane in self._lanes.lanes if lane.running]
        if running:
            log.error(
                "shutdown_timeout",
                tables=running,
                hint="their handlers did not return; their unfinished records come again",
            )
        return not running
