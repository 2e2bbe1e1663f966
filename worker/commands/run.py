"""`binlane run`: the worker in the foreground."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from confluent_kafka import KafkaException

from handlers.registry import HandlerTypeError, OptionsError
from worker import logs
from worker.configuration import ConfigurationError, load
from worker.kafka_settings import SettingsError, explain
from worker.supervision import Worker

__all__ = ["run"]


def run(config: Path) -> int:
    """0 drained, 1 stopped by an error, 2 unusable configuration."""
    try:
        configuration = load(config)
        logs.configure(
            configuration.logging.level,
            configuration.logging.format,
            redact=configuration.secrets.redact,
        )
        worker = Worker(configuration)
    except ConfigurationError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        return 2
    except (SettingsError, HandlerTypeError, OptionsError) as error:
        print(f"{config}: {error}", file=sys.stderr)
        return 2
    except (KafkaException, ValueError) as error:
        print(f"{config}: {explain(error)}", file=sys.stderr)
        return 2
    code = worker.run()
    # A thread that hangs in a handler must not keep the process alive.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
