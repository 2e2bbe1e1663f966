"""The configuration: one YAML file. All its sections are checked before the worker starts or reloads it."""

from worker.configuration.document import ConfigurationError, Fault
from worker.configuration.loading import load
from worker.configuration.model import Configuration
from worker.configuration.secrets import Secrets
from worker.configuration.sections import DeadLetterRule, LanesRule, TracingRule
from worker.configuration.table_rules import HandlerEntry, LimitRule, RetryRule, TableRule

__all__ = [
    "Configuration",
    "ConfigurationError",
    "DeadLetterRule",
    "Fault",
    "HandlerEntry",
    "LanesRule",
    "LimitRule",
    "RetryRule",
    "Secrets",
    "TableRule",
    "TracingRule",
    "load",
]
