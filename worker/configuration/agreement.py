"""Keys of the configuration that must agree with each other, and Spark handlers that share a location."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any

from handlers.options.matching import topic_matcher, topics_matcher
from worker.configuration.document import KeyPath
from worker.configuration.model import Configuration
from worker.formats.registry import entry_for

_LAST_COMMIT_SECONDS = 5.0
_POLL_INTERVAL, _POLL_INTERVAL_MS = "max.poll.interval.ms", 300_000  # librdkafka's default
_NO_TOPIC = "this value needs dead_letter.topic, which is not set"
_LOGS = "_binlane"
"""A copy of the name in handlers.spark.locations, because importing that module is slow."""

_WILDCARDS = re.compile(r"[*?\[]")


def disagreements(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Yield each key that conflicts with others: (its path, the conflict)."""
    yield from _waiting(configuration)
    yield from _without_format(configuration)
    yield from _unread(configuration)
    yield from _with_shared_marks(configuration)
    for number, table in enumerate(configuration.tables):
        if table.batch.transactions == "whole" and configuration.lanes.order_by == "row":
            yield (
                ("lanes", "order_by"),
                f"tables[{number}].batch.transactions: whole needs lanes.order_by: table: with row, the rows "
                "of one transaction are in several batches",
            )
    rule = configuration.dead_letter
    if rule is None:
        for number, table in enumerate(configuration.tables):
            if table.on_failure == "dead_letter":
                yield ("tables", number, "on_failure"), _NO_TOPIC
            for name, expected in table.expect.items():
                if expected.on_failure == "dead_letter":
                    yield ("tables", number, "expect", name, "on_failure"), _NO_TOPIC
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


def _with_shared_marks(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Find handlers that would take the marks of another one of their rule for their own."""
    for number, rule in enumerate(configuration.tables):
        seen: dict[tuple[str, ...], int] = {}
        for place, entry in enumerate(rule.handlers):
            where = entry.options.get("url"), entry.options.get("marks_table") or "binlane_marks"
            first = seen.setdefault((entry.type, entry.name, *map(str, where)), place)
            if entry.type == "sql" and first != place:
                yield (
                    ("tables", number, "handlers", place),
                    f"handlers[{first}] has its name ({entry.name}), its database and its table of marks, so "
                    "each row would be written by only one of the two: give each a name of its own",
                )


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


def shared_locations(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Yield (path of the entry, the fault) for each handler that shares a location with another handler of
    its rule. A location inside the other one is shared too."""
    for number, rule in enumerate(configuration.tables):
        seen: dict[str, int] = {}
        for place, entry in enumerate(rule.handlers):
            if entry.type != "spark" or entry.options.get("mode") == "function":
                continue
            target = _target(configuration, entry.options)
            for field, name in _plain_names(rule.match).items():
                target = target.replace(f"{{{field}}}", name)
            met = next((one for one in seen if _is_within(one, target) or _is_within(target, one)), target)
            first = seen.setdefault(met, place)
            if first != place:
                where = f"the same place, {met}, and each would treat the other's changes as its own"
                if met != target:
                    where = f"{met}, so one table would be inside the other, whose VACUUM removes its files"
                yield (
                    ("tables", number, "handlers", place),
                    f"tables[{number}].handlers[{first}] keeps its tables in {where}: give one of them its "
                    f"own path, such as lake/{entry.name}/{{database}}/{{table}}",
                )


def _is_within(inner: str, outer: str) -> bool:
    """Check whether `inner` is inside `outer`, outside its hidden folders (VACUUM skips those)."""
    return inner.startswith(f"{outer}/") and inner[len(outer) + 1] not in "_."


def reserved_locations(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Yield (path of the pattern, the fault) for each rule whose tables would be in the folder of the Spark
    handler's logs."""
    for number, rule in enumerate(configuration.tables):
        names = _plain_names(rule.match)
        for entry in rule.handlers:
            of = entry.options
            in_catalog = of.get("table") or of.get("format") == "iceberg"
            if entry.type != "spark" or of.get("mode") == "function" or in_catalog:
                continue
            template = _target(configuration, entry.options)
            before = template.partition("{")[0].rpartition("/")[0]
            folder = template.removeprefix(f"{before}/").partition("/")[0]
            if _fields(folder) <= names.keys() and folder.format(**names) == _LOGS:
                yield (
                    ("tables", number, "match"),
                    f"found {rule.match}; the handler {entry.name} would keep these tables in "
                    f"{before}/{_LOGS}, which binlane uses for its own files: set table to a path such as "
                    f"{before}/of/{{database}}/{{table}}",
                )


def doubtful_locations(configuration: Configuration) -> Iterator[str]:
    """Yield a sentence for each handler without {database} in its location whose rule may match several."""
    for number, rule in enumerate(configuration.tables):
        if not _may_meet_several(rule.match):
            continue
        for place, entry in enumerate(rule.handlers):
            text = entry.options.get("path") or entry.options.get("table")
            if entry.type == "spark" and isinstance(text, str) and "database" not in _fields(text):
                yield (
                    f"tables[{number}].handlers[{place}]: {text} does not contain {{database}}, and the rule "
                    "may match tables with the same name in several databases, which cannot share a place"
                )


def _target(configuration: Configuration, options: Mapping[str, Any]) -> str:
    """Return the template of the location of a handler's tables."""
    if options.get("format") == "iceberg":
        return f"iceberg:{options.get('table') or '{database}.{table}'}"
    if options.get("table"):
        return str(options["table"])
    warehouse = str(configuration.spark.get("warehouse", "lake")).rstrip("/")
    braced = warehouse.replace("{", "{{").replace("}", "}}")
    path = str(options.get("path") or f"{braced}/{{database}}/{{table}}").rstrip("/")
    return re.sub(r"(?<!:)//+", "/", path.removeprefix("./"))


def _plain_names(match: str) -> dict[str, str]:
    """Field of a template -> its name, of those that the pattern tells as they are (`shop*`: none)."""
    names = zip(("database", "table"), match.partition(".")[::2], strict=True)
    return {field: name for field, name in names if name and not (match[0] == "/" or _WILDCARDS.search(name))}


def _may_meet_several(match: str) -> bool:
    """Whether a pattern may match tables of several databases. A regular expression may, unless it begins
    with the plain name of a database."""
    if match.startswith("/"):
        return re.match(r"/\^?[A-Za-z0-9_\-]+\\\.", match) is None
    return _WILDCARDS.search(match.partition(".")[0]) is not None


def _fields(template: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(template) if field}
