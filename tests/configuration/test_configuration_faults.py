"""Each fault is one line: file and line, key path, what was found, what is allowed, the nearest spelling."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration.shorthand import KAFKA, Faults, Load

from handlers.loading.registry import BUILT_IN

TABLES = """\
tables:
  - match: shop.*
    handlers:
      - type: neighbour:Copy
        url: x
"""
TYPES = f"{', '.join(BUILT_IN)}, or an import path such as my_package.module:MyHandler"
KEYS = (
    "batch, checkpoint, databases, dead_letter, debezium, format, http, json, kafka, lanes, logging, "
    "masking, max_ahead, name, on_undecodable, revoke_timeout, schema_registry, shutdown_timeout, spark, "
    "start_timeout, stuck_after, tables, tracing"
)
INITIAL = "earliest, latest, an ISO 8601 time, or a mapping {topic: {partition: offset}}"
OFFSETS = "a mapping of partitions to offsets, such as {0: 1200, 1: 0}"
DURATION = "a duration such as 250ms, 5s, 2m or 1h"
SIZE = "a size such as 512KiB, 64MiB or 1GiB"
PROCESSES = "auto, or a whole number up to 256"
SERVERS = "host:port, several separated by commas"
TOPIC = "a topic name (letters, digits, '.', '_', '-'), or a regular expression that begins with ^"
LEVELS = "debug, info, warning, error"
SEVERAL = "one pattern: a glob, or for several tables /shop\\.(orders|items)/; or a rule for each"
NO_TOPIC = "this value needs dead_letter.topic, which is not set"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tabels: []", f"tabels: unknown key; allowed: {KEYS}; nearest: tables"),
        ("5: []", f"[5]: unknown key; allowed: {KEYS}"),
        ("name: 5", "name: found 5; allowed: text"),
        ("name: ''", 'name: found ""; allowed: text that is not empty'),
        (
            "lanes: 5",
            "lanes: found 5; allowed: a mapping with the keys count, order_by, processes, max_records, "
            "max_bytes, work_stealing, parked",
        ),
        (
            "http: false",
            "http: found false; allowed: a mapping with the keys host, port, token, tls, allowed_hosts; "
            "or null",
        ),
        (
            "dead_letter: shop.dead",
            'dead_letter: found "shop.dead"; allowed: a mapping with the keys topic, max_ratio; or null',
        ),
        ("logging: {level: DEBUG}", f'logging.level: found "DEBUG"; allowed: {LEVELS}; nearest: debug'),
        ("lanes: {count: many}", 'lanes.count: found "many"; allowed: a whole number'),
        ("lanes: {count: '8'}", 'lanes.count: found "8"; allowed: a whole number; nearest: 8'),
        ("lanes: {count: 0}", "lanes.count: found 0; allowed: at least 1"),
        ("lanes: {processes: 257}", "lanes.processes: found 257; allowed: at most 256"),
        ("lanes: {processes: true}", "lanes.processes: found true; allowed: a whole number"),
        ("lanes: {processes: '2'}", 'lanes.processes: found "2"; allowed: a whole number; nearest: 2'),
        ("lanes: {processes: Auto}", f'lanes.processes: found "Auto"; allowed: {PROCESSES}; nearest: auto'),
        ("lanes: {count: 5000}", "lanes.count: found 5000; allowed: at most 1024"),
        ("lanes: {count: true}", "lanes.count: found true; allowed: a whole number"),
        ("lanes: {count: 1.5}", "lanes.count: found 1.5; allowed: a whole number"),
        ("lanes: {order_by: tabel}", 'lanes.order_by: found "tabel"; allowed: table, row; nearest: table'),
        ("lanes: {max_bytes: 64MB}", f'lanes.max_bytes: found "64MB"; allowed: {SIZE}; nearest: 64MiB'),
        ("lanes: {max_bytes: 0MiB}", f'lanes.max_bytes: found "0MiB"; allowed: {SIZE}, at least 1B'),
        ("lanes: {max_bytes: 1000}", f"lanes.max_bytes: found 1000; allowed: {SIZE}"),
        (
            "lanes: {work_stealing: yes}",
            'lanes.work_stealing: found "yes"; allowed: true or false; nearest: true',
        ),
        ("batch: {max_wait: 5}", f"batch.max_wait: found 5; allowed: {DURATION}; nearest: 5s"),
        ("batch: {max_wait: 500}", f"batch.max_wait: found 500; allowed: {DURATION}; nearest: 500ms"),
        ("shutdown_timeout: 120", f"shutdown_timeout: found 120; allowed: {DURATION}; nearest: 2m"),
        ("revoke_timeout: 30000", f"revoke_timeout: found 30000; allowed: {DURATION}; nearest: 30s"),
        (
            "spark: {driver_memory: 2GiB}",
            'spark.driver_memory: found "2GiB"; allowed: a size as Java writes it, such as 512m or 2g; '
            "nearest: 2g",
        ),
        (
            "spark: {packages: [hadoop-aws]}",
            'spark.packages[0]: found "hadoop-aws"; allowed: Maven coordinates, group:artifact:version',
        ),
        (
            "spark: {remote: 'spark:15002'}",
            'spark.remote: found "spark:15002"; allowed: the address of a Spark Connect server, '
            "sc://host:port; nearest: sc://spark:15002",
        ),
        ("batch: {max_wait: 5 sec}", f'batch.max_wait: found "5 sec"; allowed: {DURATION}; nearest: 5s'),
        ("batch: {max_wait: -5s}", f'batch.max_wait: found "-5s"; allowed: {DURATION}'),
        ("batch: {max_wait: null}", f"batch.max_wait: found null; allowed: {DURATION}"),
        (
            "checkpoint: {interval: 0s}",
            f'checkpoint.interval: found "0s"; allowed: {DURATION}, more than 0',
        ),
        (
            "checkpoint: {directory: ''}",
            'checkpoint.directory: found ""; allowed: the path of a folder',
        ),
        (
            "checkpoint: {initial: earlyest}",
            f'checkpoint.initial: found "earlyest"; allowed: {INITIAL}; nearest: earliest',
        ),
        ("checkpoint: {initial: 5}", f"checkpoint.initial: found 5; allowed: {INITIAL}"),
        ("checkpoint: {initial: {a: 5}}", f"checkpoint.initial: found a mapping; allowed: {OFFSETS}"),
        ("checkpoint: {initial: {a: {0: -1}}}", f"checkpoint.initial: found a mapping; allowed: {OFFSETS}"),
        (
            "format: kanal",
            'format: found "kanal"; allowed: canal, debezium, maxwell, dts, json; nearest: canal',
        ),
        ("on_undecodable: ignore", 'on_undecodable: found "ignore"; allowed: halt, skip, dead_letter'),
        ("http: {port: 70000}", "http.port: found 70000; allowed: at most 65535"),
        (
            "logging: {level: warn}",
            'logging.level: found "warn"; allowed: debug, info, warning, error; nearest: warning',
        ),
        (
            "logging: {format: jsn}",
            'logging.format: found "jsn"; allowed: auto, json, console; nearest: json',
        ),
        (
            "spark: {mastr: local}",
            "spark.mastr: unknown key; "
            "allowed: concurrency, conf, driver_memory, iceberg, master, packages, remote, single_writer, "
            "start, ui, views, warehouse; "
            "nearest: master",
        ),
        ("tables: {}", "tables: found a mapping; allowed: a list, each entry after a dash"),
    ],
)
def test_a_fault_of_a_section_is_told_in_one_line(faults: Faults, text: str, line: str) -> None:
    assert faults(text) == [f"shop.yaml:5: {line}"]


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (
            "match: orders",
            'match: found "orders"; allowed: a glob on database.table, with both names; nearest: "*.orders"',
        ),
        ("match: 5", f"match: found 5; allowed: {SEVERAL}"),
        ("match: [shop.orders, shop.items]", f"match: found a list; allowed: {SEVERAL}"),
        ("handlers: {type: log}", "handlers: found a mapping; allowed: a list, each entry after a dash"),
        (
            "match: /shop.(/",
            'match: found "/shop.(/"; allowed: a regular expression '
            "(missing ), unterminated subpattern at position 5)",
        ),
        ("on_failure: stop", 'on_failure: found "stop"; allowed: halt, skip, dead_letter'),
        ("retry: {max_attempts: 0}", "retry.max_attempts: found 0; allowed: at least 1"),
        ("retry: {jitter: 2}", "retry.jitter: found 2; allowed: at most 1"),
        ("retry: {multiplier: 0.5}", "retry.multiplier: found 0.5; allowed: at least 1"),
        (
            "retry: {atempts: 5}",
            "retry.atempts: unknown key; "
            "allowed: initial_delay, jitter, max_attempts, max_delay, multiplier; nearest: max_attempts",
        ),
        ("batch: {max_records: 0}", "batch.max_records: found 0; allowed: at least 1"),
        (
            "handler: []",
            "handler: unknown key; "
            "allowed: batch, columns, deleted_column, deletes, expect, filter, "
            "ghost_tables, handlers, match, on_failure, retry, "
            "slow_after; nearest: handlers",
        ),
    ],
)
def test_a_fault_of_a_table_is_told_in_one_line(faults: Faults, key: str, line: str) -> None:
    good = {"match": "shop.*", "handlers": "[{type: 'neighbour:Copy', url: x}]"}
    name, _, value = key.partition(": ")
    entry = "".join(f"\n    {k}: {v}" for k, v in {**good, name: value}.items()).replace("    ", "  - ", 1)
    (told,) = faults(f"tables:{entry}\n")
    assert told.split(": ", 1)[1] == f"tables[0].{line}"


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("{}", "type: missing; required"),
        ("log", 'found "log"; allowed: a mapping with the handler\'s type and options, such as {type: log}'),
        ("{type: 5}", "type: found 5; allowed: text"),
        ("{type: sprak}", f'type: found "sprak": there is no such handler; allowed: {TYPES}; nearest: spark'),
        (
            "{type: neighbour.Copy, url: x}",
            'type: found "neighbour.Copy": there is no such handler; '
            f"allowed: {TYPES}; nearest: neighbour:Copy",
        ),
        (
            "{type: 'neighbour:Copi', url: x}",
            'type: found "neighbour:Copi": the module neighbour has no Copi; '
            "allowed: Copy, Typed; nearest: neighbour:Copy",
        ),
        (
            "{type: 'neighbour:Options'}",
            'type: found "neighbour:Options": Options does not inherit from binlane.Handler; '
            "allowed: a class that inherits from it",
        ),
        ("{type: 'neighbour:Copy'}", "url: missing; required"),
        (
            "{type: 'neighbour:Copy', url: x, retry: 1}",
            "retry: unknown key; allowed: url, retries; nearest: retries",
        ),
        (
            "{type: 'neighbour:Typed', password: x, sise: 1}",
            "sise: unknown key; allowed: password, size; nearest: size",
        ),
        ("{type: 'neighbour:Typed', password: x, size: 3}", "size: found 3: 3 is odd"),
        ("{type: 'neighbour:Typed', password: x, size: big}", 'size: found "big"; allowed: a whole number'),
        ("{type: 'neighbour:Typed', password: [hunter2]}", "password: found ***; allowed: text"),
        ("{type: 'neighbour:Copy', url: x, name: ''}", 'name: found ""; allowed: text that is not empty'),
        ("{type: log, limit: {calls: 0}}", "limit.calls: found 0; allowed: at least 1"),
        (
            "{type: log, limit: {rows_per_sec: 9}}",
            "limit.rows_per_sec: unknown key; allowed: calls, rows_per_second; nearest: rows_per_second",
        ),
    ],
)
def test_a_fault_of_a_handler_is_told_in_one_line(faults: Faults, entry: str, line: str) -> None:
    text = f"tables:\n  - match: shop.*\n    handlers:\n      - {entry}\n"
    place = "tables[0].handlers[0]" + (": " if line.startswith("found") else ".")
    assert faults(text) == [f"shop.yaml:8: {place}{line}"]


def test_a_module_that_is_nowhere_is_told_with_where_it_was_looked_for(faults: Faults, folder: Path) -> None:
    assert faults(TABLES.replace("neighbour:", "neighbor:")) == [
        'shop.yaml:8: tables[0].handlers[0].type: found "neighbor:Copy": '
        f"there is no module neighbor on PYTHONPATH or in {folder}; allowed: {TYPES}"
    ]


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ("", "shop.yaml:1: tables: missing; required"),
        ("tables: []", "shop.yaml:5: tables: found an empty list; allowed: a list of at least 1"),
        ("tables:", "shop.yaml:5: tables: found null; allowed: a list"),
    ],
)
def test_without_tables_every_record_would_be_passed_over_so_a_rule_is_required(
    faults: Faults, tables: str, told: str
) -> None:
    assert faults(tables=tables) == [told]


def test_a_table_needs_a_handler(faults: Faults) -> None:
    assert faults("tables: [{match: '*', handlers: []}]") == [
        "shop.yaml:5: tables[0].handlers: found an empty list; allowed: a list of at least 1"
    ]


@pytest.mark.parametrize(
    ("kafka", "lines"),
    [
        ("\n", ["shop.yaml:2: kafka: missing; required"]),
        (
            "kafka: {}",
            [
                f"shop.yaml:1: kafka.{key}: missing; required"
                for key in ("bootstrap_servers", "group_id", "topics")
            ],
        ),
        (
            KAFKA.replace("[cdc.shop]", "cdc.shop"),
            ['shop.yaml:4: kafka.topics: found "cdc.shop"; allowed: a list; nearest: [cdc.shop]'],
        ),
        (
            KAFKA.replace("localhost:9092", "[localhost:9092]"),
            [f"shop.yaml:2: kafka.bootstrap_servers: found a list; allowed: {SERVERS}"],
        ),
        (
            KAFKA.replace("localhost:9092", "kafka://localhost:9092"),
            [
                'shop.yaml:2: kafka.bootstrap_servers: found "kafka://localhost:9092"; '
                f"allowed: {SERVERS}; nearest: localhost:9092"
            ],
        ),
        (
            KAFKA.replace("[cdc.shop]", "[]"),
            ["shop.yaml:4: kafka.topics: found an empty list; allowed: a list of at least 1"],
        ),
        (
            KAFKA.replace("[cdc.shop]", "[ok, cdc.*]"),
            [f'shop.yaml:4: kafka.topics[1]: found "cdc.*"; allowed: {TOPIC}; nearest: ^cdc.*'],
        ),
        (
            KAFKA + "  properties: {client.id: [a]}",
            ["shop.yaml:5: kafka.properties.client.id: found a list; allowed: text, a number, true or false"],
        ),
        (
            KAFKA + "  properties: {isolation.level: none}",
            [
                "shop.yaml:5: kafka.properties.isolation.level: "
                'Invalid value for configuration property "isolation.level"'
            ],
        ),
        (
            KAFKA + "  properties: {enable.auto.commit: true}",
            [
                "shop.yaml:5: kafka.properties.enable.auto.commit: binlane sets this property itself ("
                "an offset is committed only when its record is finished; see checkpoint.interval): remove it"
            ],
        ),
    ],
)
def test_a_fault_of_the_kafka_section_is_told(faults: Faults, kafka: str, lines: list[str]) -> None:
    assert faults(kafka=kafka) == lines


def test_what_an_iceberg_table_cannot_have_is_refused(faults: Faults) -> None:
    handler = "{type: spark, mode: replica, format: iceberg, partition_by: [weeks(a)]}"
    [told] = faults(f"tables: [{{match: '*', handlers: [{handler}]}}]")
    assert told == (
        "shop.yaml:5: tables[0].handlers[0]: 'weeks(a)' is no partition, or the second of its column; "
        "allowed: a column, years(c), months(c), days(c), hours(c), bucket(N, c), truncate(N, c)"
    )


def test_dead_letters_without_a_topic_are_refused(faults: Faults) -> None:
    told = faults(f"on_undecodable: dead_letter\n{TABLES}    on_failure: dead_letter\n")
    assert told == [
        f'shop.yaml:5: on_undecodable: found "dead_letter"; {NO_TOPIC}',
        f'shop.yaml:11: tables[0].on_failure: found "dead_letter"; {NO_TOPIC}',
    ]


@pytest.mark.parametrize(
    ("topics", "key"),
    [
        ("topics: ['^cdc\\.']", "topics[0]"),
        ("topics: [a, cdc.dead]", "topics[1]"),
        ("topics: [a]\n  ddl_topics: ['^cdc']", "ddl_topics[0]"),
    ],
)
def test_a_dead_letter_topic_that_the_worker_itself_would_read_is_refused(
    faults: Faults, topics: str, key: str
) -> None:
    [told] = faults("dead_letter: {topic: cdc.dead}", kafka=KAFKA.replace("topics: [cdc.shop]", topics))
    assert f'dead_letter.topic: found "cdc.dead"; kafka.{key} matches this topic' in told


def test_a_topic_without_a_format_is_refused(faults: Faults) -> None:
    [told] = faults("format: {other: canal, '^rest': canal}")
    assert told == (
        'shop.yaml:4: kafka.topics[0]: found "cdc.shop"; no entry of format: matches this topic (other, '
        "^rest); add one"
    )


def test_a_dead_letter_topic_is_one_topic(faults: Faults) -> None:
    assert faults("dead_letter: {topic: ^cdc.dead}") == [
        'shop.yaml:5: dead_letter.topic: found "^cdc.dead"; '
        "allowed: a topic name (letters, digits, '.', '_', '-')"
    ]


def test_an_option_called_mode_of_another_handler_is_its_own_affair(faults: Faults) -> None:
    entry = "{type: 'neighbour:Copy', url: x, mode: replica}"
    assert faults(f"tables: [{{match: '*', handlers: [{entry}]}}]") == [
        "shop.yaml:5: tables[0].handlers[0].mode: unknown key; allowed: url, retries"
    ]


def test_all_faults_are_told_at_once_in_the_order_of_the_file(faults: Faults) -> None:
    told = faults("lanes: {count: 0}\nformat: kanal\nhttp: {prt: 1}\n" + TABLES.replace("Copy", "Copi"))
    assert [line.split(": ")[:2] for line in told] == [
        ["shop.yaml:5", "lanes.count"],
        ["shop.yaml:6", "format"],
        ["shop.yaml:7", "http.prt"],
        ["shop.yaml:11", "tables[0].handlers[0].type"],
    ]


def test_all_properties_are_judged_whatever_else_is_wrong(faults: Faults) -> None:
    properties = "{isolation.level: none, client.idd: a, enable.auto.commit: true, client.rack: a}"
    told = faults(
        "on_failure: skip\non_undecodable: dead_letter", kafka=f"{KAFKA}  properties: {properties}\n"
    )
    assert sorted(line.split(": ")[1] for line in told) == [
        "kafka.properties.client.idd",
        "kafka.properties.enable.auto.commit",
        "kafka.properties.isolation.level",
        "on_failure",
    ]
    told = faults("on_undecodable: dead_letter", kafka=f"{KAFKA}  properties: {properties}\n")
    assert len(told) == 4
    assert any(line.endswith(NO_TOPIC) for line in told)


def test_a_property_that_another_one_needs_is_told_once(faults: Faults) -> None:
    properties = "{security.protocol: sasl_ssl, sasl.mechanism: XYZ}"
    [told] = faults(kafka=f"{KAFKA}  properties: {properties}\n")
    assert "SASL mechanism" in told


@pytest.mark.parametrize("servers", ["a:9092;b:9092", "a:9092 b:9092", "a:9092, b:9092 c:9092"])
def test_brokers_that_are_not_divided_by_commas_are_refused(faults: Faults, servers: str) -> None:
    [told] = faults(kafka=KAFKA.replace("localhost:9092", servers))
    assert told == (
        f'shop.yaml:2: kafka.bootstrap_servers: found "{servers}"; allowed: host:port, several separated '
        "by commas"
    )


def test_brokers_may_have_spaces_behind_their_commas(read: Load) -> None:
    servers = "a:9092, b:9092 ,c:9092"
    assert read(kafka=KAFKA.replace("localhost:9092", servers)).kafka.bootstrap_servers == servers


def test_a_topic_to_begin_at_that_is_not_read_is_refused(faults: Faults) -> None:
    [told] = faults("checkpoint:\n  initial: {cdc.shop: {0: 5}, cdc.shpo: {0: 5}}")
    assert "checkpoint.initial.cdc.shpo: " in told
    assert "no entry of kafka.topics or kafka.ddl_topics matches this topic" in told


def test_a_long_value_is_cut(faults: Faults) -> None:
    assert faults(f"on_undecodable: {'x' * 100}") == [
        f'shop.yaml:5: on_undecodable: found "{"x" * 59}...; allowed: halt, skip, dead_letter'
    ]


@pytest.mark.parametrize(
    ("text", "interval", "told"),
    [
        (
            "revoke_timeout: 40s",
            "8000",
            "kafka.properties.max.poll.interval.ms: found 8000; revoke_timeout (40 s)",
        ),
        ("", "15000", "to more than 15000"),  # the default of revoke_timeout
        ("revoke_timeout: 295s", None, 'revoke_timeout: found "295s"; revoke_timeout (295 s)'),
    ],
)
def test_a_rebalance_that_may_wait_longer_than_the_group_does_is_refused(
    text: str, interval: str | None, told: str, faults: Faults
) -> None:
    properties = (
        ""
        if interval is None
        else f"  properties: {{max.poll.interval.ms: {interval}, session.timeout.ms: 6000}}\n"
    )
    (line,) = faults(text, kafka=KAFKA + properties)
    assert told in line


def test_a_rebalance_that_waits_less_long_than_the_group_is_taken(read: Load) -> None:
    properties = "  properties: {max.poll.interval.ms: 15001, session.timeout.ms: 6000}\n"
    assert read("revoke_timeout: 10s", kafka=KAFKA + properties).revoke_timeout == 10
    assert read("revoke_timeout: 294s").revoke_timeout == 294


@pytest.mark.parametrize(
    ("entry", "lines"),
    [
        (
            "{type: files, directory: x, rotate_every: 600, rotate_bytes: 5}",
            [
                f"rotate_bytes: found 5; allowed: {SIZE}",
                f"rotate_every: found 600; allowed: {DURATION}; nearest: 10m",
            ],
        ),
        (
            "{type: spark, mode: replica, shared_segments: 1, merge: {max_age: 10}}",
            [
                f"shared_segments: found 1; allowed: {DURATION}; nearest: 1s",
                f"merge.max_age: found 10; allowed: {DURATION}; nearest: 10s",
            ],
        ),
        (
            "{type: sql, url: 'sqlite:///x', timeout: 5}",
            [f"timeout: found 5; allowed: {DURATION}; nearest: 5s"],
        ),
    ],
)
def test_durations_and_sizes_of_handlers_have_units_too(faults: Faults, entry: str, lines: list[str]) -> None:
    told = faults(f"tables: [{{match: '*', handlers: [{entry}]}}]")
    assert sorted(told) == sorted(f"shop.yaml:5: tables[0].handlers[0].{line}" for line in lines)
