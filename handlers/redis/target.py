"""The connection of the `redis` handler to a server: transactions, and errors sorted by how to react to
them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ClusterDownError, NoPermissionError, OutOfMemoryError, TryAgainError
from redis.retry import Retry

from handlers.api import TargetUnavailable
from handlers.failures import UnfitPlace
from handlers.logs import get_logger

log = get_logger("handlers.redis")

Command = tuple[Any, ...]
"""A command's name and its arguments: text, bytes or int."""

_SCAN_COUNT = 1_000
_URLS = "a URL such as redis://HOST:6379/0, rediss://USER:PASSWORD@HOST:6380/0 or unix:///PATH?db=0"

# First words of errors that the command did not cause: https://redis.io/docs/latest/develop/reference/
# protocol-spec/#simple-errors and src/server.c, `createSharedObjects`.
_DOWN = frozenset(
    ("BUSY", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "OOM")
)
_DOWN_ERRORS = (redis.ReadOnlyError, OutOfMemoryError, ClusterDownError, TryAgainError)
_OTHER_TYPE = "WRONGTYPE"


class CommandRefused(Exception):
    """Redis refused one command of a transaction for its content. The others were executed."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        """The command's place in the transaction, from 0."""


class RefusedByRedis(Exception):
    """Redis refused the whole request, for a reason that this module does not know."""


def check_url(url: str) -> str | None:
    """Return what a URL must look like if this one cannot be used, else None. The URL is not repeated."""
    try:
        redis.ConnectionPool.from_url(url).make_connection()  # creates an object; does not connect yet
        database = urlsplit(url).path.strip("/")
    except (ValueError, TypeError):
        return _URLS
    # redis-py reads a path that is not a number as database 0.
    return None if url.startswith("unix:") or not database or database.isdecimal() else _URLS


class RedisTarget:
    """Connections to one Redis. Any thread may use it."""

    def __init__(self, url: str, timeout: float, wait_replicas: int = 0) -> None:
        """The first use connects. `timeout`: seconds for connecting, and for each answer.
        `wait_replicas`: how many replicas must have a transaction before it counts as done."""
        self._url = url
        self._timeout = timeout
        self._wait_replicas = wait_replicas
        self._lock = Lock()  # guards the two below
        self._client: redis.Redis | None = None
        self._abandoned: set[str] = set()
        where = redis.ConnectionPool.from_url(url).connection_kwargs
        self.name = str(where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}")
        """The server's name in messages, without user and password."""

    def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Execute all commands in one MULTI, so no reader sees half of them, and return their answers.

        If the connection is broken, redis-py sends them again, so commands must be repeatable.

        Raises TargetUnavailable if the server is unreachable or accepts no writes now. Raises CommandRefused
        if one command does not fit the key's data. Raises RefusedByRedis if none was executed for another
        reason."""
        waits: list[Command] = []
        if self._wait_replicas:  # wait half of the timeout, so the answer arrives in time
            waits = [("WAIT", self._wait_replicas, round(self._timeout * 500))]
        with self._used() as client:
            # MULTI and EXEC by hand: WAIT counts replicas only on the connection that wrote.
            pipeline = client.pipeline(transaction=False)
            for command in [("MULTI",), *commands, ("EXEC",), *waits]:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's own gap
            answers: Any
            _, *queued, answers = (told := pipeline.execute(raise_on_error=False))[: len(commands) + 2]
            if isinstance(answers, redis.RedisError):  # none was executed, because one could not be queued
                raise next((each for each in queued if isinstance(each, redis.RedisError)), answers)
            if waits and isinstance(told[-1], redis.RedisError):
                raise told[-1]
            if waits and told[-1] < self._wait_replicas:
                raise TargetUnavailable(
                    f"Redis at {self.name}: {told[-1]} replicas have the written rows, but the option "
                    f"wait_replicas needs {self._wait_replicas}"
                )
        return _carried_out(answers)

    def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of string keys; None for missing ones. Raises as `transaction` does."""
        with self._used() as client:
            pipeline = client.pipeline(transaction=False)
            for key in keys:
                pipeline.get(key)
            answers = pipeline.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, redis.RedisError) and not _answer(answer).startswith(_OTHER_TYPE):
                    raise answer
        return _carried_out(answers)

    def remove(self, start: str) -> int:
        """Remove all keys that begin with `start`, and return their number. Raises as `transaction` does."""
        pattern = "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in start) + "*"
        removed, cursor = 0, 0
        with self._used() as client:
            while True:
                answer: Any = client.scan(cursor, match=pattern, count=_SCAN_COUNT)
                cursor, keys = answer
                if keys:
                    gone: Any = client.unlink(*keys)
                    removed += gone
                if not cursor:
                    return removed

    def ping(self) -> None:
        """Ping the server. Raises as `transaction` does."""
        with self._used() as client:
            client.ping()

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @contextmanager
    def _used(self) -> Iterator[redis.Redis]:
        client: redis.Redis | None = None
        try:
            client = self._current()
            yield client
        except (redis.TimeoutError, redis.ConnectionError) as error:
            if isinstance(error, redis.TimeoutError):
                self._abandon(client)
            is_login = isinstance(error, redis.AuthenticationError)
            why = "it refuses the user or the password: " if is_login else ""
            raise TargetUnavailable(f"Redis at {self.name}: {why}{_answer(error)}") from None
        except redis.RedisError as error:
            told = f"Redis at {self.name}: {_answer(error)}"
            if isinstance(error, NoPermissionError):  # may concern only this table's keys
                raise UnfitPlace(told) from None
            if isinstance(error, _DOWN_ERRORS) or _answer(error).split(" ", 1)[0] in _DOWN:
                raise TargetUnavailable(told) from None
            raise RefusedByRedis(told) from None

    def _current(self) -> redis.Redis:
        with self._lock:
            if self._client is None:
                self._client = self._new()
            if self._abandoned:
                self._end_abandoned(self._client)
            return self._client

    def _new(self) -> redis.Redis:
        return redis.Redis.from_url(
            self._url,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            # Retry once immediately, because an idle connection may have broken. Never after a timeout.
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
            client_name=f"binlane-{uuid.uuid4().hex}",
        )

    def _abandon(self, client: redis.Redis | None) -> None:
        """Mark a client that timed out: the server may still execute its commands, after later ones."""
        with self._lock:
            client = client or self._client
            if client is None:
                return
            self._abandoned.add(client.get_connection_kwargs()["client_name"])
            if self._client is client:
                self._client = None

    def _end_abandoned(self, client: redis.Redis) -> None:
        """Let the server close abandoned connections. The caller has `_lock`. Raises redis-py's errors."""
        try:
            found: Any = client.client_list()
            for each in found:
                if each["name"] in self._abandoned:
                    client.client_kill_filter(_id=each["id"])
        except redis.ResponseError as error:
            if _answer(error).split(" ", 1)[0] in _DOWN:
                raise
            log.warning("redis_connections_not_ended", server=self.name, error=_answer(error))
        self._abandoned.clear()


def _carried_out(answers: Sequence[Any]) -> list[Any]:
    """Return the answers. Raises CommandRefused for the first command that was refused."""
    for place, answer in enumerate(answers):
        if isinstance(answer, redis.ResponseError):
            raise CommandRefused(place, _answer(answer)) from None
    return list(answers)


def _answer(error: Exception) -> str:
    """Return the server's own message. redis-py puts the command, which contains the row, before it."""
    return " ".join(str(error).rpartition(" of pipeline caused error: ")[2].split())
