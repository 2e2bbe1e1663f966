"""Warnings about a valid configuration that probably does not do what was intended."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from handlers.mysql.online_changes import ghosts_of
from handlers.options.matching import covers
from handlers.options.values import format_size
from worker.configuration.agreement import doubtful_locations
from worker.configuration.model import Configuration
from worker.configuration.table_rules import TableRule


def doubts(configuration: Configuration) -> Iterator[str]:
    """Yield one sentence for each warning."""
    yield from _behind_wider_rules(configuration.tables)
    yield from _shown_ghosts(configuration)
    for number, rule in enumerate(configuration.tables):
        yield from _doubtful_patterns(number, rule)
        yield from _gathered(number, rule, configuration)
        yield from _twins(number, rule)
        yield from _unfilled(number, rule, configuration)
        yield from _in_dead_letters(number, rule, configuration)
        yield from _without_effect(number, rule)
    yield from _unused_sections(configuration)
    yield from doubtful_locations(configuration)
    yield from _unreachable_warehouse(configuration)
    reason = single_worker(configuration)
    if reason is not None:
        yield (
            f"{reason}: never run two workers at once (in Kubernetes use a StatefulSet with one replica; a "
            "Deployment runs two while a pod is drained, and in a rolling update)"
        )


def single_worker(configuration: Configuration) -> str | None:
    """Return why only one worker may run with this configuration; None if several can share the work."""
    if configuration.kafka.ddl_topics:
        return "with kafka.ddl_topics one worker must read all partitions"
    if configuration.spark.get("single_writer") is True and _keeps_spark_tables(configuration):
        return "spark.single_writer promises that one worker at a time writes the tables"
    return None


def _behind_wider_rules(rules: list[TableRule]) -> Iterator[str]:
    for number, rule in enumerate(rules):
        for before, wider in enumerate(rules[:number]):
            if covers(wider.match, rule.match):
                yield (
                    f"tables[{number}] ({rule.match}) is never used: the first match wins, and "
                    f"tables[{before}] ({wider.match}) matches all of its tables. Put the narrower rule first"
                )
                break


def _shown_ghosts(configuration: Configuration) -> Iterator[str]:
    """Find ghost tables (gh-ost, pt-online-schema-change) whose rules hide less than the original table's."""
    for number, rule in enumerate(configuration.tables):
        hiding = rule.row_rules
        if hiding is None or rule.ghost_tables or rule.match.startswith("/"):  # a regex gives no table name
            continue
        for ghost in ghosts_of(rule.match):
            other = configuration.rule_for(ghost)
            if other and not hiding.hides_no_more_than(other.row_rules):
                yield (
                    f"tables[{number}] ({rule.match}) has ghost_tables: false, and {other.match} matches "
                    f"{ghost}: an online schema change shows there what the table's rules hide, and its last "
                    "statement is refused; set ghost_tables: true, or give both the same rules"
                )
                break


def _doubtful_patterns(number: int, rule: TableRule) -> Iterator[str]:
    if "%" in rule.match and not rule.match.startswith("/"):
        yield (
            f"tables[{number}].match ({rule.match}): in a glob, % is an ordinary character; use * for any "
            "characters"
        )


def _gathered(number: int, rule: TableRule, configuration: Configuration) -> Iterator[str]:
    for into, one in configuration.databases.items():
        if covers(one.match, rule.match) and not fnmatchcase(into, rule.match.partition(".")[0]):
            yield (
                f"tables[{number}] ({rule.match}) is never used: databases.{into} ({one.match}) takes all of "
                f"its tables, whose rules must match {into}.TABLE"
            )


def _twins(number: int, rule: TableRule) -> Iterator[str]:
    names = [entry.name for entry in rule.handlers]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield (
                f"tables[{number}]: {names.count(name)} handlers are called {name}: metrics show them as "
                "one, and a dead letter of one is replayed to all; give each its own name"
            )


def _unused_sections(configuration: Configuration) -> Iterator[str]:
    formats = configuration.format
    used = set(formats.values()) if isinstance(formats, dict) else {formats}
    for section, field in (("debezium", "debezium"), ("json", "json_layout")):
        if section not in used and field in configuration.model_fields_set:
            yield (
                f"{section} describes records of the format {section}, but format "
                f"({', '.join(sorted(used))}) uses it for no topic: set it there, or remove {section}"
            )
    if configuration.schema_registry is not None and "debezium" not in used:
        yield (
            f"schema_registry is only used for the format debezium, but format ({', '.join(sorted(used))}) "
            "uses it for no topic: remove schema_registry"
        )


def _in_dead_letters(number: int, rule: TableRule, configuration: Configuration) -> Iterator[str]:
    rules, letters = rule.row_rules, configuration.dead_letter
    if letters is None or rules is None or not (rules.plans.hides or rules.filter is not None):
        return
    of_rows = (expected.on_failure for expected in rule.expect.values())
    if "dead_letter" in (rule.on_failure, configuration.on_undecodable, *of_rows):
        yield (
            f"tables[{number}] ({rule.match}) hides columns or rows, but its dead letters contain the "
            f"source's whole records: let only users who may read the source's topics read {letters.topic}, "
            "or set on_failure and on_undecodable to halt or skip"
        )


def _without_effect(number: int, rule: TableRule) -> Iterator[str]:
    filter_ = None if rule.row_rules is None else rule.row_rules.filter
    for comparison in () if filter_ is None else filter_.with_null:
        yield (
            f"tables[{number}].filter: {comparison} is never true, as in SQL; write IS NULL or IS NOT NULL"
        )


def _unfilled(number: int, rule: TableRule, configuration: Configuration) -> Iterator[str]:
    lanes, batch = configuration.lanes, rule.batch
    waits = " and waits for max_wait each time" if batch.max_wait else ""
    if lanes.max_records < batch.max_records:
        yield (
            f"tables[{number}].batch.max_records ({batch.max_records}) is more than a lane can hold "
            f"(lanes.max_records, {lanes.max_records}): a batch never fills{waits}"
        )
    if lanes.max_bytes < batch.max_bytes:
        yield (
            f"tables[{number}].batch.max_bytes ({format_size(batch.max_bytes)}) is more than all lanes can "
            f"hold (lanes.max_bytes, {format_size(lanes.max_bytes)}): a batch never fills{waits}"
        )


def _unreachable_warehouse(configuration: Configuration) -> Iterator[str]:
    spark = configuration.spark
    if not _keeps_spark_tables(configuration) or urlsplit(str(spark.get("warehouse", "lake"))).scheme not in (
        "",
        "file",
    ):
        return
    master, remote = str(spark.get("master", "local[2]")), spark.get("remote")
    where = "the Connect server" if remote else f"the executors of {master}"
    if remote or not master.startswith("local"):
        yield (
            f"spark.warehouse ({spark.get('warehouse', 'lake')}) is a folder: {where} must have it at the "
            "same path, such as on a shared volume; or set a location that all can reach, such as hdfs://..."
        )


def _keeps_spark_tables(configuration: Configuration) -> bool:
    return any(
        entry.type == "spark" and entry.options.get("mode") != "function"
        for rule in configuration.tables
        for entry in rule.handlers
    )
