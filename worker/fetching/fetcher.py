"""The fetcher: the one thread that polls Kafka, routes records, and makes calls that others request."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from worker.fetching.polls import MOST_RECORDS, POLL_SECONDS
from worker.fetching.receiving import Receiver
from worker.kafka.errors import Stopping
from worker.kafka.group import leave
from worker.partitions.stage import Stage

_MOMENT = 0.004
"""Seconds between checks whether the processors still have enough work."""


class Fetcher(threading.Thread):
    """Polls until stopped, then keeps the membership alive until `close`."""

    def __init__(
        self,
        consumer: Consumer,
        receiver: Receiver,
        *,
        prepare: Sequence[Callable[[Beat], object]],
        leaves: bool,
        beat: Beat,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`prepare`: called in order before anything is fetched, with a function to call during long work.
        The last one joins the group. `leaves`: see `close_stays`."""
        super().__init__(name="fetcher", daemon=True)
        self._consumer = consumer
        self._receiver = receiver
        self._stages = receiver.stages
        self._backpressure = receiver.backpressure
        self._prepare = prepare
        self._leaves = leaves
        self._beat = beat
        self._fail = fail
        self._draining = threading.Event()
        self._closing = threading.Event()

    @property
    def beat(self) -> float:
        """Time of the thread's last round."""
        return self._beat.at

    def drain(self) -> None:
        """Fetch nothing more, but stay a member of the group."""
        self._backpressure.pauses.drain()
        self._draining.set()

    def close(self) -> None:
        """Leave the group and end the thread."""
        self.drain()
        self._closing.set()

    def run(self) -> None:
        try:
            for step in self._prepare:
                step(self._beat)
            while not self._draining.is_set():
                now = self._go_round()
                if not self._may_read(now):
                    self._backpressure.stay()
                elif self._backpressure.is_full:
                    self._backpressure.wait()
                elif self._backpressure.poll_pause.goes_on:
                    self._draining.wait(_MOMENT)
                else:
                    self._read_on()
        except Stopping:
            pass
        except BaseException as error:
            self._fail(error)
        try:
            self._idle_until_closed()
            if self._leaves:
                leave(self._consumer, self._stay)
            self._consumer.close()
        except BaseException as error:
            self._fail(error)

    def _go_round(self) -> float:
        """Do, between two polls, what only this thread may do with the consumer. Returns the time."""
        now = self._beat()
        for stage in self._stages:
            stage.between_polls(now)
        return now

    def _may_read(self, now: float) -> bool:
        return all(stage.may_read(now) for stage in self._stages)

    def _read_on(self) -> None:
        """Route messages left over from an earlier poll; poll again only if there are none."""
        polls = self._backpressure.polls
        if polls.waiting:
            self._receiver.receive(polls.waiting.popleft())
        else:
            for stage in self._stages:
                stage.before_poll()
            messages = polls.next()
            if messages and not self._may_read(self._beat.now()):
                polls.waiting.append(messages)  # partitions were revoked by that poll
            else:
                self._receiver.receive(messages)
        self._backpressure.poll_pause.polled()

    def _idle_until_closed(self) -> None:
        """Stay in the group without fetching, so that others do not start records that still run here."""
        backpressure = self._backpressure
        while backpressure.backlog and not self._draining.is_set():  # a record behind it stops the worker
            self._go_round()
            backpressure.wait()
        backpressure.end()
        while not self._closing.is_set():
            self._stay()

    def _stay(self) -> None:
        self._go_round()
        self._consumer.consume(MOST_RECORDS, POLL_SECONDS)


class Beat:
    """Called by its thread in each round. Any thread may read `at`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock
        self.at = clock()
        """Time of the last round, by the clock. In the future while a step may take long."""

    def __call__(self, allowance: float = 0.0) -> float:
        """Extend the watchdog's deadline by `allowance` seconds. Returns the time."""
        now = self.now()
        self.at = now + allowance
        return now


@dataclass(slots=True)
class _Request:
    do: Callable[[], None]
    claimed: threading.Lock = field(default_factory=threading.Lock)
    """Taken once: by the thread that runs it, or by the one that no longer wants it."""
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Requests(Stage):
    """One thread serves, any thread asks."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def ask(self, do: Callable[[], None], *, give_up: Callable[[], bool]) -> bool:
        """Have `do` called, and wait for that. Raises what it raises. Returns False if `give_up` returned
        True before it was started: it is then never called."""
        request = _Request(do)
        self._waiting.put(request)
        while not request.done.wait(0.1):
            if give_up() and request.claimed.acquire(blocking=False):
                return False
        if request.error is not None:
            raise request.error
        return True

    def between_polls(self, now: float) -> None:
        """Run the requested calls."""
        while True:
            try:
                request = self._waiting.get_nowait()
            except queue.Empty:
                return
            if not request.claimed.acquire(blocking=False):
                continue
            try:
                request.do()
            except BaseException as error:
                request.error = error
            request.done.set()
