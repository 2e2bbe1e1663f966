"""The worker as a whole: built, started, watched, drained."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from confluent_kafka import KafkaException

from handlers import StopWorker
from handlers.hanging_calls import Bounded, GivenUp
from handlers.logs import get_logger
from offsets.stores.interface import CheckpointError
from worker.attempts.backoff import describe
from worker.certificate import Certificate, CertificateError
from worker.configuration import Configuration
from worker.fetching.routing import UndecodableHalt
from worker.http.listening import ListenError
from worker.observing import logs
from worker.observing.status import WorkerState
from worker.observing.unblock_messages import Answer, PauseRequest, UnblockRequest
from worker.partitions.membership import SharedTopics
from worker.partitions.own_store import opened
from worker.processes.beginning import Begun
from worker.processing.slow_calls import SlowCalls
from worker.running.components import Components
from worker.running.draining import Draining, LateStop
from worker.running.handler_set import OPENING_SECONDS, TargetOpenError
from worker.running.health import unhealthy, unready
from worker.running.process import Garbage, LastResort, say, stop_seconds, take_signals
from worker.running.reloading import Reloader
from worker.running.status_report import StatusReport

if TYPE_CHECKING:
    from worker.http.server import HttpServer
    from worker.running.health import Overview

log = get_logger("worker")

_STUCK_SECONDS = 60.0
_WATCH_SECONDS = 0.5


class LateStart(Exception):
    """The handlers take too long to open."""


# These errors' texts say what was found, where, and what to do. A traceback would only hide that.
_TOLD = (
    CertificateError,
    CheckpointError,
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

    Threads: fetcher, one processor per lane, committer, HTTP, Kafka commits. This object uses the main
    thread, which watches the others."""

    def __init__(self, configuration: Configuration, forked: Sequence[Begun] = ()) -> None:
        """Build the components, but start nothing. `forked`: of `Processes`. Raises SettingsError and handler
        errors."""
        self._configuration = configuration
        self._clock = clock = time.monotonic
        self._state: WorkerState = "starting"
        self._stop = threading.Event()
        # Guards `_error`.
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._signals = 0
        self._last_resort = LastResort(1)
        self.components = Components(
            configuration, clock=clock, fail=self.fail, stop=self._stop, forked=forked
        )
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
        self._draining = Draining(self.components, clock=clock, fail=self.fail, error=lambda: self._error)
        self._garbage = Garbage(clock)
        self._http: HttpServer | None = None
        self._overview: Overview | None = None

    def run(self) -> int:
        """Work until a signal or an error. Returns 0 if all that ran was finished and committed, else 1."""
        take_signals(
            {
                signal.SIGTERM: self._on_signal,
                signal.SIGINT: self._on_signal,
                signal.SIGHUP: self._reloader.want,
            }
        )
        try:
            with suppress(Exception):  # `_open_handlers` reports it
                self.components.handlers.start_processes()  # they import what they need meanwhile
            self._start_http()
            self._open_handlers()
            opened(
                self.components.local,
                stopping=self._stop,
                seconds=self._configuration.start_timeout,
                clock=self._clock,
            )
            self.components.table_pauses.adopt()
            if not self._stop.is_set():
                self._start_threads()
                self._watch()
        except GivenUp as error:
            log.warning("start_given_up", reason=str(error))
        except BaseException as error:
            self.fail(error)
        return self._drain()

    def stop(self) -> None:
        """Drain and end `run`. The process ends even if something hangs. Any thread."""
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
        """Stop because of this error. Only the first one counts. Any thread."""
        with self._lock:
            if self._error is None:
                self._error = error
        # Errors that a person can fix have a complete text. All others need their place in the code.
        exc_info = None if isinstance(error, _TOLD) else error
        thread = threading.current_thread().name
        log.error("worker_fault", error=describe(error), thread=thread, exc_info=exc_info)
        self.stop()

    def health(self) -> str | None:
        """Return why the worker is not healthy, or None if every thread makes progress."""
        if self._state != "running":
            return None
        return unhealthy(self.components, self._clock(), _STUCK_SECONDS + self._configuration.revoke_timeout)

    def started(self) -> str | None:
        """Return why the worker has not started yet. None, permanently, once its handlers are open."""
        if self._state == "starting":
            return f"starting: handler {self.components.handlers.opening} is being opened"
        return None

    def ready(self) -> str | None:
        """Return why the worker is not ready, or None if it has its partitions and the handlers are open."""
        if self._state != "running" or self._stop.is_set():
            return f"the worker is {self._shown_state()}"
        return unready(self.components)

    def _change(self, asked: UnblockRequest | PauseRequest, client: str) -> Answer:
        parts = self.components
        if self._state != "running" or self._stop.is_set():
            return Answer(result="refused", message=f"the worker is {self._shown_state()}")
        if isinstance(asked, PauseRequest):
            answer = parts.table_pauses(asked, client)
        else:
            answer = (parts.unblocking if asked.table else parts.unreadable)(asked, client)
        message = self._configuration.secrets.redact(answer.message)
        return msgspec.structs.replace(answer, message=message)

    def _shown_state(self) -> WorkerState:
        if self._stop.is_set():
            return "stopped" if self._state == "stopped" else "draining"
        if self._state == "running" and self.components.lanes.seen.halted():
            return "halted"
        if self._state == "running" and not self.components.assignments.balanced:
            return "starting"
        return self._state

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
        # Not at the top: a twentieth of a worker's imports, and some workers serve nothing.
        from worker.http.access import Access  # noqa: PLC0415
        from worker.http.app import build_app  # noqa: PLC0415
        from worker.http.server import HttpServer  # noqa: PLC0415
        from worker.observing.unblock_messages import write_order_token  # noqa: PLC0415
        from worker.running.health import Overview  # noqa: PLC0415

        orders = None if rule.token else secrets.token_urlsafe(32)
        access = Access(rule.token, rule.tls is not None, orders, (rule.host, *rule.allowed_hosts))
        self._overview = Overview(self.status, self.components.committer, self._clock)
        app = build_app(
            self.status,
            self.health,
            self.ready,
            self.components.metrics,
            self.started,
            unblock=self._change,
            pause=self._change,
            access=access,
            sources=self._overview.sources,
        )
        tls, folder = rule.tls, self._configuration.folder
        certificate = None if tls is None else Certificate(folder / tls.certificate, folder / tls.key)
        self._http = HttpServer(app, rule.host, rule.port, certificate=certificate)
        self._http.start()
        if orders is not None:  # not earlier: if another worker listens there, its token stays
            write_order_token(self._configuration.checkpoint.directory, rule.port, orders)
        if self._http.public and rule.token is None and rule.tls is None:
            log.warning(
                "http_open",
                host=rule.host,
                port=self._http.port,
                hint="anyone there can read table names, errors and figures: see http.token, http.tls",
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
        self._garbage.settle()
        self._state = "running"
        self.components.parking_lot.clear()
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
        slow_calls = SlowCalls(self.components.calls, self._clock)
        while not self._stop.wait(_WATCH_SECONDS):
            slow_calls.look()
            logs.tell_left_out()
            self._garbage.look()
            if self._overview is not None:
                self._overview.look()
            self.components.stuck.look()
            self.components.table_pauses.look()
            if self._reloader.look():
                self._configuration = self._reloader.configuration
                self.status.reconfigure(self._configuration)

    def _drain(self) -> int:
        """Finish what runs, commit, leave the group, close the handlers. Returns the exit code."""
        began = self._state == "running"
        self._state = "draining"
        log.info("draining", shutdown_timeout=self._configuration.shutdown_timeout)
        clean, halted = self._draining.run(self._configuration, began=began)
        self.components.parking_lot.close()
        self._state = "stopped"
        logs.tell_left_out(all_of_it=True)
        code = 0 if clean and self._error is None and not halted else 1
        self._last_resort.exit_with(code)
        error = describe(self._error) if self._error else None
        log.info("stopped", exit_code=code, error=error, halted_tables=halted or None)
        if self._http is not None:
            self._http.stop()
        if self._overview is not None:
            self._overview.end()
        return code
