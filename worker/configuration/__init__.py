"""The configuration: one YAML file. All its sections are checked before the worker starts or reloads it."""

from worker.configuration.faults import ConfigurationError, Fault
from worker.configuration.loading import load
from worker.configuration.model import Configuration
from worker.configuration.secrets import Secrets
from worker.configuration.sections import (
    CheckpointRule,
    DeadLetterRule,
    HttpRule,
    KafkaRule,
    LanesRule,
    LoggingRule,
    TlsRule,
    TracingRule,
)
from worker.configuration.table_rules import BatchRule, HandlerEntry, LimitRule, RetryRule, TableRule

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
    "LimitRule",
    "LoggingRule",
    "RetryRule",
    "Secrets",
    "TableRule",
    "TlsRule",
    "TracingRule",
    "load",
]
