"""The worker as a whole: built, started, watched, drained."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from handlers import StopWorker
from handlers.bounded import Bounded, GivenUp
from handlers.logs import get_logger
from offsets.stores import CheckpointError
from worker.attempts.backoff import describe
from worker.certificate import Certificate, CertificateError
from worker.configuration import Configuration
from worker.fetching.routing import UndecodableHalt
from worker.http.access import Access
from worker.http.app import build_app
from worker.http.server import HttpServer, ListenError
from worker.observing.status import WorkerState
from worker.partitions.whole_share import SharedTopics
from worker.processing.slow_calls import SlowCalls
from worker.running.components import Components
from worker.running.ending import COMMIT_SECONDS, KAFKA_SECONDS, LANES_SECONDS, LastResort, say, stop_seconds
from worker.running.handler_set import OPENING_SECONDS, TargetOpenError
from worker.running.probes import unhealthy, unready
from worker.running.reloading import Reloader
from worker.running.signals import take_signals
from worker.running.status_report import StatusReport

__all__ = ["Worker"]

log = get_logger("worker")

_STUCK_SECONDS = 60.0
_WATCH_SECONDS = 0.5
_LOOK_SECONDS = 0.01

Answer = TypeVar("Answer")


class DeadEnd(Exception):
    """Only halted tables are left to work on."""


class LateStart(Exception):
    """The handlers take longer to open than they may."""


class LateStop(Exception):
    """A part of the stop took longer than it may."""


# Their text says what was found, where, and what to do: a traceback would only hide it.
_TOLD = (
    CertificateError,
    CheckpointError,
    DeadEnd,
    KafkaException,
    LateStart,
    LateStop,
    ListenError,
    SharedTopics,
    StopWorker,
    TargetOpenError,
    UndecodableHalt,
)


class Worker:
    """One worker process. `run` returns its exit code.

    Threads: fetcher, one processor a lane, committer, HTTP, Kafka commits; this object's own is the main
    one, which takes signals and watches the others.
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
        self._last_resort = LastResort(1)
        self.components = Components(configuration, clock=clock, fail=self.fail, stop=self._stop)
        self.status = StatusReport(
            configuration,
            self.components,
            state=self._shown_state,
            error=lambda: describe(self._error) if self._error else None,
            clock=clock,
            wall_clock=time.time,
        )
        self.components.metrics.attach(self.status.look)
        self._reloader = Reloader(configuration, self.components, stopped=self._stop.is_set)
        self._http: HttpServer | None = None

    def run(self) -> int:
        """Work until a signal or an error; 0 when everything that ran was finished and committed, else 1."""
        take_signals(
            {
                signal.SIGTERM: self._on_signal,
                signal.SIGINT: self._on_signal,
                signal.SIGHUP: self._reloader.want,
            }
        )
        try:
            self._start_http()
            self._open_handlers()
            if not self._stop.is_set():
                self._start_threads()
                self._watch()
        except GivenUp as error:
            log.warning("start_given_up", reason=str(error))
        except BaseException as error:
            self.fail(error)
        return self._drain()

    def stop(self) -> None:
        """Drain and end `run`: the process ends, whatever hangs. Any thread."""
        configuration = self._configuration
        self._stop.set()
        self._last_resort.arm(
            stop_seconds(
                shutdown_timeout=configuration.shutdown_timeout,
                revoke_timeout=configuration.revoke_timeout,
                closing=self.components.handlers.close_seconds,
            )
        )

    def fail(self, error: BaseException) -> None:
        """Stop because of this error; only the first one counts. Any thread."""
        with self._lock:
            if self._error is None:
                self._error = error
        # What a person can mend is told in its one line; anything else needs its place in the code.
        exc_info = None if isinstance(error, _TOLD) else error
        thread = threading.current_thread().name
        log.error("worker_fault", error=describe(error), thread=thread, exc_info=exc_info)
        self.stop()

    def health(self) -> str | None:
        """Why the worker is not healthy; None when every thread makes progress."""
        if self._state != "running":
            return None
        return unhealthy(self.components, self._clock(), _STUCK_SECONDS + self._configuration.revoke_timeout)

    def started(self) -> str | None:
        """Why the worker has not started yet; None once its handlers are open, for good."""
        if self._state == "starting":
            return f"starting: handler {self.components.handlers.opening} is being opened"
        return None

    def ready(self) -> str | None:
        """Why the worker is not ready; None when it has its partitions and the handlers are open."""
        if self._state != "running" or self._stop.is_set():
            return f"the worker is {self._shown_state()}"
        return unready(self.components)

    def _shown_state(self) -> WorkerState:
        if self._stop.is_set():
            return "stopped" if self._state == "stopped" else "draining"
        if self._state == "running" and self._halted():
            return "halted"
        if self._state == "running" and not self.components.assignments.balanced:
            return "starting"
        return self._state

    def _halted(self) -> list[str]:
        return self.components.lanes.halted()

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            say(b"second signal: stopping at once; unfinished records come again\n")
            os._exit(1)
        self.stop()

    def _start_http(self) -> None:
        rule = self._configuration.http
        if rule is None:
            return
        access = Access(rule.token, rule.tls is not None, (rule.host, *rule.allowed_hosts))
        app = build_app(
            self.status, self.health, self.ready, self.components.metrics, self.started, access=access
        )
        tls, folder = rule.tls, self._configuration.folder
        certificate = None if tls is None else Certificate(folder / tls.certificate, folder / tls.key)
        self._http = HttpServer(app, rule.host, rule.port, certificate=certificate)
        self._http.start()
        if self._http.public and rule.token is None and rule.tls is None:
            log.warning(
                "http_open",
                host=rule.host,
                port=self._http.port,
                hint="whoever reaches it reads names of tables, errors and figures: see http.token, http.tls",
            )

    def _open_handlers(self) -> None:
        handlers, seconds = self.components.handlers, self._configuration.start_timeout
        try:
            Bounded("open", handlers.open).unless(self._stop.is_set, seconds + OPENING_SECONDS)
        except TimeoutError as error:
            raise LateStart(
                f"handler {handlers.opening} has not opened ({error}); start_timeout is {seconds:g} s"
            ) from None

    def _start_threads(self) -> None:
        # Millions of records pass through; what was made until now stays, and need not be looked at again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._state = "running"
        for thread in (*self.components.processors, self.components.committer, self.components.fetcher):
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
        slow_calls = SlowCalls(self.components.calls, self._clock)
        while not self._stop.wait(_WATCH_SECONDS):
            slow_calls.look()
            self.components.stuck.look()
            if self._reloader.look():
                self._configuration = self._reloader.configuration
                self.status.configuration = self._configuration
            if self.components.lanes.pressed and self.components.lanes.dead_end():
                ends += 1
            else:
                ends = 0
            if ends > 1:
                raise DeadEnd(
                    f"the lanes are full of what waits behind halted tables: {', '.join(self._halted())}; "
                    f"mend the cause and restart, or set on_failure: skip"
                )

    def _drain(self) -> int:
        """Finish what runs, commit, leave the group, close the handlers. Each part has its time, and what
        becomes of one keeps no other from its turn."""
        began = self._state == "running"
        self._state = "draining"
        timeout = self._configuration.shutdown_timeout
        log.info("draining", shutdown_timeout=timeout)
        clean = True
        halted: list[str] = []
        if began:
            finished = self._part("lanes", timeout + LANES_SECONDS, lambda: self._finish(timeout))
            clean, halted = finished if finished is not None else (False, [])
            self._part("commit", COMMIT_SECONDS, self._commit)
            # While the partitions are still this worker's: what handlers do for them behind their batches is
            # not to go on beside their next owner.
            clean = self._close_handlers() and clean
            self.components.fetcher.close()
            self.components.fetcher.join(KAFKA_SECONDS + self._configuration.revoke_timeout)
            # Leaving the group commits once more: what Kafka refused in a rebalance it may have taken then.
            clean = clean and self.components.committer.in_kafka and not self.components.fetcher.is_alive()
        clean = self._close_handlers() and clean
        self._state = "stopped"
        code = 0 if clean and self._error is None and not halted else 1
        self._last_resort.code = code
        log.info(
            "stopped",
            exit_code=code,
            error=describe(self._error) if self._error else None,
            halted_tables=halted or None,
        )
        if self._http is not None:
            self._http.stop()
        return code

    def _part(self, name: str, seconds: float, do: Callable[[], Answer]) -> Answer | None:
        """A part of the stop. None: it failed, or is not done."""
        try:
            return Bounded(f"stop-{name}", do).within(seconds)
        except TimeoutError as error:
            self.fail(LateStop(f"stopping, {name}: {error}"))
        except BaseException as error:
            self.fail(error)
        return None

    def _finish(self, seconds: float) -> tuple[bool, list[str]]:
        """Fetch nothing more and wait for what runs: whether it was done in time, and the halted tables."""
        end = self._clock() + seconds
        if isinstance(self._error, UndecodableHalt):
            self._work_off(end)
        self.components.former.work_off(self.components.assignments.current(), end - self._clock())
        self.components.fetcher.drain()
        for processor in self.components.processors:
            processor.call_off()
        self.components.lanes.stop()
        for processor in self.components.processors:
            processor.join(max(0.0, end - self._clock()))
        # Leaving the group forgets what its partitions held.
        self.components.former.tell(self.components.assignments.current())
        return self._drained() and not self.components.former.lost, self._halted()

    def _commit(self) -> None:
        self.components.committer.stop()
        self.components.committer.commit()

    def _close_handlers(self) -> bool:
        """Unless one of them still handles a batch. Whether none failed; those that are closed stay so."""
        if any(processor.is_alive() for processor in self.components.processors):
            return True
        return self.components.handlers.close()

    def _work_off(self, end: float) -> None:
        """Finish what came before a record that stops the worker: a checkpoint that is set behind it then
        passes over nothing else."""
        while self._clock() < end and not self.components.lanes.worked_off():
            time.sleep(_LOOK_SECONDS)

    def _drained(self) -> bool:
        running = [work.unit.table.label for work in self.components.lanes.running()]
        if running:
            log.error(
                "shutdown_timeout",
                tables=running,
                hint="their handlers did not return; their unfinished records come again",
            )
        return not running
