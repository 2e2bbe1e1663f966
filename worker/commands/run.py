"""`binlane run`: the worker in the foreground."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException

from handlers.hanging_calls import process_ends
from handlers.kafka.librdkafka import SettingsError, explain
from handlers.loading.registry import HandlerTypeError, OptionsError
from worker.configuration import load
from worker.observing import logs
from worker.processes.beginning import forked
from worker.running.worker import Worker


def run(config: Path) -> int:
    """Return 0 (drained), 1 (stopped by an error) or 2 (unusable options). Raises ConfigurationError."""
    # Until the worker handles its signals, it starts with the current file, so a reload is not needed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    configuration = load(config)
    redact = configuration.secrets.redact
    logs.configure(configuration.logging.level, configuration.logging.format, redact=redact)
    try:
        worker = Worker(configuration, forked(configuration.lanes.processes))
    except (SettingsError, HandlerTypeError, OptionsError) as error:
        print(redact(f"{config}: {error}"), file=sys.stderr)
        return 2
    except KafkaException as error:
        print(redact(f"{config}: {explain(error)}"), file=sys.stderr)
        return 2
    code = worker.run()
    # A thread that hangs in a handler must not keep the process alive. If this hangs, see LastResort.
    try:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the reader may have closed it
                stream.flush()
        process_ends()
    finally:
        os._exit(code)
