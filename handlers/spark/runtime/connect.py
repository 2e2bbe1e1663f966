"""A Spark that runs elsewhere, behind a Spark Connect server."""

from __future__ import annotations

import os
import threading
import warnings
from importlib import metadata
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkAssertionError, PySparkException
from pyspark.sql import SparkSession

from handlers.api import TargetUnavailable
from handlers.spark.options import SparkSection
from handlers.spark.runtime.conf import session_conf
from handlers.spark.runtime.errors import told
from handlers.spark.runtime.start import Start
from handlers.spark.runtime.versions import UnknownSpark, check_server

try:
    import grpc  # type: ignore[import-untyped]  # it has no types
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession
except ImportError as missing:
    raise RuntimeError(
        f"spark.remote needs the client of Spark Connect ({missing}): "
        "pip install '.[connect]' in binlane's folder"
    ) from None

_CHANNEL = [
    # By default, grpc finds a restored server only after pauses of up to two minutes, shared by all sessions
    # of the process.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Notice a connection that a firewall or load balancer has dropped silently.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]
_REMOTE = "SPARK_CONNECT_MODE_ENABLED"
"""If it is set, pyspark.sql.functions makes Connect's columns."""
_LOST = ("INVALID_HANDLE.", "NO_ACTIVE_SESSION", "SESSION_CHANGED")

# pyspark warns about an error that it also raises.
warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")


class ConnectServer:
    """Sessions at one server. The first session connects to it, so a worker may start before the server.

    While it does not answer, operations raise TargetUnavailable: batches wait, and nothing is lost. If the
    server no longer knows a session (it was restarted, or the session idled too long), the next `renewed` or
    `session` replaces it."""

    ui_url = None
    version: str | None = None
    """Spark's version. None until the server has answered."""
    up: bool | None = None
    """Whether the server's last answer was a success. None before the first request."""

    def __init__(self, section: SparkSection) -> None:
        """Raises RuntimeError if the Connect client is not installed, or the address is invalid."""
        assert section.remote is not None
        self.start = Start.over()
        self.master = section.remote.split(";")[0].rstrip("/")  # the rest may contain a token
        self._remote = section.remote
        self._conf = session_conf(section)
        self._lock = threading.Lock()  # guards the three below
        self._main: SparkSession | None = None
        self._generation = 0  # counts losses: sessions of earlier generations are not used again
        self._made: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()
        try:
            self._builder()
        except PySparkException as error:
            raise RuntimeError(f"spark.remote: {told(error)}") from None
        os.environ[_REMOTE] = "1"

    @property
    def session(self) -> SparkSession:
        with self._lock:
            main = self._main
        if main is None or not self._usable(main):
            main = self.fresh()
            with self._lock:
                self._main = main
        return main

    def fresh(self) -> SparkSession:
        with self._lock:
            generation = self._generation
        session: Any = ConnectSession(self._builder())
        # pyspark's own policy retries for 10 minutes. Here the worker retries, and reports it.
        session.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=1_000, jitter=100)])
        try:
            self.version = session.version
            check_server(session.version, metadata.version("pyspark"))
            for key, value in self._conf.items():
                _set(session, key, value)
        except UnknownSpark as unknown:
            self.drop(session)
            raise RuntimeError(f"spark.remote: {unknown}") from None
        except Exception as error:
            self.drop(session)
            self.raise_if_gone(error)
            raise
        with self._lock:
            self._made[session] = generation
        self.up = True
        return session  # type: ignore[no-any-return]  # one of SparkSession's two implementations

    def renewed(self, session: SparkSession) -> SparkSession:
        if self._usable(session):
            return session
        self.drop(session)
        return self.fresh()

    def drop(self, session: SparkSession) -> None:
        """Let the server forget the session."""
        with self._lock:
            known = self._made.pop(session, None) == self._generation
        remote: Any = session
        remote.release_session_on_close = known  # a lost session cannot be released
        remote.stop()

    def raise_if_gone(self, error: BaseException) -> None:
        """Raise TargetUnavailable if the server is away, or the session is lost."""
        is_wrapped = isinstance(error, PySparkException) and error.getCondition() == "RETRIES_EXCEEDED"
        if is_wrapped and error.__cause__ is not None:
            error = error.__cause__  # pyspark 4.0 wraps the last attempt's error
        if _is_lost(error):
            trouble = "has forgotten the session"
        elif _is_away(error):
            trouble = "does not answer"
        else:
            return
        self.up = False
        with self._lock:
            self._generation += 1  # a restored server knows no earlier session
        raise TargetUnavailable(f"the Spark Connect server {self.master} {trouble}: {told(error)}") from error

    def stop(self) -> None:
        """Let the server forget all sessions."""
        with self._lock:
            sessions = list(self._made)
            self._main = None
        for session in sessions:
            self.drop(session)
        os.environ.pop(_REMOTE, None)

    def _builder(self) -> Any:
        return DefaultChannelBuilder(self._remote, channelOptions=list(_CHANNEL))

    def _usable(self, session: SparkSession) -> bool:
        with self._lock:
            known = self._made.get(session) == self._generation
        remote: Any = session
        return known and not remote.is_stopped


def _set(session: Any, key: str, value: str) -> None:
    try:
        session.conf.set(key, value)
    except PySparkException as error:
        if (error.getCondition() or "").startswith("CANNOT_MODIFY"):
            raise RuntimeError(
                f"spark.conf: {key} cannot be set for a session: set it when the Connect server is started"
            ) from None
        raise


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        return condition.startswith(_LOST) or (
            isinstance(error, PySparkAssertionError) and "session identifier" in str(error)
        )
    return False


def _is_away(error: BaseException) -> bool:
    """Whether grpc reached no server, or a Spark that is shutting down."""
    code = None
    if isinstance(error, grpc.RpcError):
        code = error.code() if isinstance(error, grpc.Call) else None
    elif isinstance(error, PySparkException):
        code = getattr(error, "_grpc_status_code", None)
    if code is grpc.StatusCode.UNAVAILABLE:
        return True
    return "stopped SparkContext" in str(error) or "SparkContext was shut down" in str(error)
