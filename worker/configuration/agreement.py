"""Keys of the configuration that must agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from worker.configuration.faults import KeyPath
from worker.configuration.matching import topic_matcher

if TYPE_CHECKING:
    from worker.configuration.model import Configuration

__all__ = ["disagreements"]

_NO_TOPIC = "it needs dead_letter.topic, which is not set"


def disagreements(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """(path of a key, what it does not agree with) of each that cannot be as it is."""
    rule = configuration.dead_letter
    if rule is None:
        for number, table in enumerate(configuration.tables):
            if table.on_failure == "dead_letter":
                yield ("tables", number, "on_failure"), _NO_TOPIC
        if configuration.on_undecodable == "dead_letter":
            yield ("on_undecodable",), _NO_TOPIC
        return
    for key, patterns in (
        ("topics", configuration.kafka.topics),
        ("ddl_topics", configuration.kafka.ddl_topics),
    ):
        for number, pattern in enumerate(patterns):
            if topic_matcher(pattern)(rule.topic):
                yield (
                    ("dead_letter", "topic"),
                    f"kafka.{key}[{number}] matches it, and the worker would read its own dead letters; "
                    f"choose another name, or end the expression so that it does not match",
                )
                return
