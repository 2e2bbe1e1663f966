"""`binlane run`: the worker in the foreground."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from confluent_kafka import KafkaException

from handlers.registry import HandlerTypeError, OptionsError
from worker import logs
from worker.configuration import load
from worker.formats.choice import NoFormatError
from worker.kafka_settings import SettingsError, explain
from worker.supervision import Worker

__all__ = ["run"]


def run(config: Path) -> int:
    """0 drained, 1 stopped by an error, 2 unusable configuration. Raises ConfigurationError."""
    configuration = load(config)
    redact = configuration.secrets.redact
    logs.configure(configuration.logging.level, configuration.logging.format, redact=redact)
    try:
        worker = Worker(configuration)
    except (SettingsError, HandlerTypeError, OptionsError, NoFormatError) as error:
        print(redact(f"{config}: {error}"), file=sys.stderr)
        return 2
    except KafkaException as error:
        print(redact(f"{config}: {explain(error)}"), file=sys.stderr)
        return 2
    code = worker.run()
    # A thread that hangs in a handler must not keep the process alive.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
