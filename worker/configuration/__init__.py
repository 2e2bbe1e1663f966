"""The worker's configuration: one YAML file, checked as a whole before anything starts."""

from worker.configuration.faults import ConfigurationError, Fault
from worker.configuration.loading import load
from worker.configuration.model import Configuration
from worker.configuration.parts import (
    CheckpointRule,
    DeadLetterRule,
    HttpRule,
    KafkaRule,
    LanesRule,
    LoggingRule,
    TlsRule,
)
from worker.configuration.secrets import Secrets
from worker.configuration.tables import BatchRule, HandlerEntry, RetryRule, TableRule

__all__ = [
    "BatchRule",
    "CheckpointRule",
    "Configuration",
    "ConfigurationError",
    "DeadLetterRule",
    "Fault",
    "HandlerEntry",
    "HttpRule",
    "KafkaRule",
    "LanesRule",
    "LoggingRule",
    "RetryRule",
    "Secrets",
    "TableRule",
    "TlsRule",
    "load",
]
