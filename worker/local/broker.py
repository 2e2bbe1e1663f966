"""A real single-node Kafka for development, demos and tests."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from handlers.spark.runtime.jars import kafka_jars
from handlers.spark.runtime.versions import find_java
from worker.local import broker_guard
from worker.local.broker_settings import (
    BOOTSTRAP,
    HOST,
    JVM_OPTIONS,
    NODE,
    accepts_connections,
    bootstrap_of,
    free_port,
    is_free,
    java_options,
    write_settings,
)

_START_SECONDS = 120
_STOP_SECONDS = 15
_ANSWER_SECONDS = 30
_POLL_SECONDS = 0.05
_LOG_LINES = 5


class BrokerError(RuntimeError):
    """The broker cannot start, or an operation failed. The message explains why."""


class Broker:
    """One Kafka node (KRaft) in a separate process, on 127.0.0.1. A context manager: starts, then closes.

    `directory` contains its data, settings and log, which survive restarts. Without it, a temporary folder is
    used, and removed by `close` or when this process ends. `port` is any free one unless given, and does not
    change. `overrides` are broker settings by Kafka's names, `java_options` Java's, instead of the class
    archive.

    The Java process ends with this one, however this one ends (see `worker.local.broker_guard`). A broker
    belongs to one thread."""

    def __init__(
        self,
        directory: Path | None = None,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        *,
        java_options: Sequence[str] | None = None,
    ) -> None:
        self.port = port or free_port()
        self._overrides = dict(overrides or {})
        self._java_options = java_options
        self._temporary = directory is None
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="binlane-broker-"))).absolute()
        # Removed at the latest when this process ends. If it is killed, the guard does it.
        self._remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        if directory is not None:
            self._remove.detach()
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._log_begin = 0

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:PORT`, also known before the start."""
        return f"{HOST}:{self.port}"

    @property
    def log_path(self) -> Path:
        """The broker's own log: warnings and errors of every start."""
        return self.directory / "broker.log"

    @property
    def pid(self) -> int:
        """The process id of Java. Raises BrokerError if the broker was not started."""
        if self._pid is None:
            raise BrokerError("the broker is not running")
        return self._pid

    @property
    def running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Start the broker, and return when it answers.

        Raises BrokerError (with the most informative log lines), JavaError or JarsError."""
        if self.running:
            raise BrokerError(f"the broker at {self.bootstrap_servers} is already running")
        self._let_go()
        if not is_free(self.port):
            raise BrokerError(f"port {self.port} of {HOST} is in use: choose another, or stop its process")
        jars = kafka_jars()
        java = [str(find_java().executable), *JVM_OPTIONS, "-cp", os.pathsep.join(map(str, jars))]
        log_settings = write_settings(self.directory, self.port, self._overrides)
        java.append(f"-Dlog4j2.configurationFile={log_settings}")
        self._log_begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            if not (self.directory / "data" / "meta.properties").exists():
                self._format(java, bootstrap_of(jars, self._overrides), log.fileno())
            options = java_options(jars) if self._java_options is None else self._java_options
            command = [*java, *options, "kafka.Kafka", "server.properties"]
            self._guard, self._pid = broker_guard.guarded(
                command, _STOP_SECONDS, log.fileno(), self.directory, temporary=self._temporary
            )
        try:
            self._wait_until_it_answers()
        except BrokerError as fault:
            self.stop()
            raise BrokerError(f"{fault}: {self.telling_log_lines()}") from None

    def stop(self) -> None:
        """Stop the broker cleanly; after 15 s, kill it. Does nothing if it is not running."""
        self._let_go()

    def kill(self) -> None:
        """Kill the broker as a power cut would (SIGKILL). Its data stays for the next start."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
        self._let_go()

    def restart(self) -> None:
        """Stop and start it, at the same address and with the same data. Raises as `start` does."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it, and remove a temporary folder."""
        self.stop()
        self._remove()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic, wait until every partition is writable, and return its name.

        `config`: the topic's settings by Kafka's names, with `_` for each dot: `cleanup_policy="compact"`.
        Raises BrokerError."""
        admin = self._admin()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        deadline = time.monotonic() + _ANSWER_SECONDS
        try:
            admin.create_topics([topic], operation_timeout=_ANSWER_SECONDS)[name].result(_ANSWER_SECONDS)
            while time.monotonic() < deadline:
                found = admin.list_topics(name, timeout=_ANSWER_SECONDS).topics[name].partitions
                if len(found) == partitions and all(part.leader == NODE for part in found.values()):
                    return name
                time.sleep(_POLL_SECONDS)
        except KafkaException as fault:
            raise BrokerError(f"topic {name!r} cannot be created: {fault.args[0].str()}") from fault
        raise BrokerError(f"topic {name!r} has partitions without a leader after {_ANSWER_SECONDS} s")

    def telling_log_lines(self) -> str:
        """Return the last log lines of this start: errors, if there are any. One line, for people."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_begin)
            return _telling(log.read().decode(errors="replace"))

    def _admin(self) -> AdminClient:
        # log_level 0: refused connections of a starting broker need no log line.
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _format(self, java: list[str], bootstrap: bytes | None, log: int) -> None:
        """Format the data folder. `bootstrap`: what Kafka's tool would write in a JVM; None: not known."""
        cluster = _new_id()
        if bootstrap is not None:
            data = self.directory / "data"
            data.mkdir(exist_ok=True)
            (data / BOOTSTRAP).write_bytes(bootstrap)
            # The last file, because it marks the folder as formatted.
            lines = f"cluster.id={cluster}", f"directory.id={_new_id()}", f"node.id={NODE}", "version=1"
            (data / "meta.properties").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
            return
        command = [*java, "kafka.tools.StorageTool", "format"]
        command += ["--cluster-id", cluster, "--config", "server.properties"]
        run = subprocess.run(
            command, cwd=self.directory, stdout=log, stderr=subprocess.PIPE, text=True, check=False
        )
        if run.returncode:
            raise BrokerError(f"{self.directory} cannot be formatted for Kafka: {_telling(run.stderr)}")

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise BrokerError("Kafka stopped while it started")
            if accepts_connections(self.port):
                with contextlib.suppress(KafkaException):
                    if self._admin().list_topics(timeout=1).brokers:
                        return
            time.sleep(_POLL_SECONDS)
        raise BrokerError(f"Kafka does not answer at {self.bootstrap_servers} after {_START_SECONDS} s")

    def _let_go(self) -> None:
        """Tell the guard to end Java, and wait until both have ended."""
        guard, self._guard, self._pid = self._guard, None, None
        if guard is None:
            return
        broker_guard.end(guard)
        try:
            guard.wait(_STOP_SECONDS + 5)
        except subprocess.TimeoutExpired:
            guard.kill()  # then the kernel kills Java
            guard.wait()


def _new_id() -> str:
    """Create an id like Kafka's UUIDs. None begins with a dash, which tools would read as an option."""
    return f"i{urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip('=')[1:]}"


def _telling(output: str) -> str:
    """Return the lines that explain a failure: errors and causes, else the last lines."""
    lines = [line.strip() for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith("at ")]  # without stack traces
    wrong = [line for line in lines if re.search(r"ERROR|FATAL|Exception|Error:", line)]
    return " | ".join((wrong or lines)[-_LOG_LINES:]) or "without an error message"
