"""Keys of the configuration that must agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from handlers.options.matching import topic_matcher, topics_matcher
from worker.configuration.faults import KeyPath
from worker.formats.choice import entry_for

if TYPE_CHECKING:
    from worker.configuration.model import Configuration

_LAST_COMMIT_SECONDS = 5.0
_POLL_INTERVAL, _POLL_INTERVAL_MS = "max.poll.interval.ms", 300_000  # librdkafka's default
_NO_TOPIC = "this value needs dead_letter.topic, which is not set"


def disagreements(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Yield each key that conflicts with others: (its path, the conflict)."""
    yield from _waiting(configuration)
    yield from _without_format(configuration)
    yield from _unread(configuration)
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
                    f"kafka.{key}[{number}] matches this topic, so the worker would read its own dead "
                    "letters; choose another name, or change the expression so that it does not match",
                )
                return


def _unread(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    initial = configuration.checkpoint.initial
    read = topics_matcher([*configuration.kafka.topics, *configuration.kafka.ddl_topics])
    for topic in initial if isinstance(initial, dict) else ():
        if not read(topic):
            yield (
                ("checkpoint", "initial", topic),
                "no entry of kafka.topics or kafka.ddl_topics matches this topic, so it is not read; "
                "correct the name, or the intended topic is read from its beginning",
            )


def _waiting(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Check `revoke_timeout` against `max.poll.interval.ms`: a rebalance blocks the polling thread."""
    properties, revoke_timeout = configuration.kafka.properties, configuration.revoke_timeout
    try:
        interval = int(properties.get(_POLL_INTERVAL, _POLL_INTERVAL_MS))
    except (TypeError, ValueError):  # reported as a fault of the properties
        return
    least = revoke_timeout + _LAST_COMMIT_SECONDS
    if least * 1000 < interval:
        return
    own = _POLL_INTERVAL in properties
    path: KeyPath = ("kafka", "properties", _POLL_INTERVAL) if own else ("revoke_timeout",)
    yield (
        path,
        f"revoke_timeout ({revoke_timeout:g} s) and {_LAST_COMMIT_SECONDS:g} s for the last commit must be "
        f"less than {_POLL_INTERVAL} ({interval / 1000:g} s). Otherwise the group assigns the partitions to "
        "another worker while one of their batches still runs here; lower revoke_timeout, or set "
        f"kafka.properties.{_POLL_INTERVAL} to more than {least * 1000:.0f}",
    )


def _without_format(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Find named topics that no entry of `format` matches. The topics of expressions are not known here."""
    formats, kafka = configuration.format, configuration.kafka
    if isinstance(formats, str):
        return
    for key, patterns in (("topics", kafka.topics), ("ddl_topics", kafka.ddl_topics)):
        for number, pattern in enumerate(patterns):
            if not pattern.startswith("^") and entry_for(pattern, formats) is None:
                yield (
                    ("kafka", key, number),
                    f"no entry of format: matches this topic ({', '.join(formats)}); add one",
                )
