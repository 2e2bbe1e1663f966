"""What a configuration means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from configuration.shorthand import ANY_TABLE, KAFKA, TABLES, Load
from pydantic import ValidationError

from worker.configuration import Configuration, LimitRule, TableRule, load, values


def test_defaults_are_those_of_the_documentation(read: Load, folder: Path) -> None:
    configuration = read("tables:\n  - {match: '*', handlers: [{type: 'neighbour:Copy', url: x}]}\n")
    assert configuration.name == "shop"
    assert configuration.kafka.properties == {}
    assert configuration.format == "canal"
    lanes = configuration.lanes
    assert (lanes.count, lanes.order_by, lanes.max_records) == (16, "table", 10_000)
    assert (lanes.max_bytes, lanes.work_stealing) == (256 * 1024**2, True)
    batch = configuration.batch
    assert (batch.max_records, batch.max_bytes, batch.max_wait) == (1000, 16 * 1024**2, 0.0)
    checkpoint = configuration.checkpoint
    assert (checkpoint.interval, checkpoint.directory) == (5.0, Path("state"))
    assert (checkpoint.initial, checkpoint.force) == ("earliest", False)
    assert (configuration.shutdown_timeout, configuration.revoke_timeout) == (30.0, 10.0)
    table = configuration.tables[0]
    assert (table.batch, table.on_failure, table.handlers[0].name) == (batch, "halt", "neighbour:Copy")
    retry = table.retry
    assert (retry.max_attempts, retry.initial_delay, retry.max_delay) == (10, 0.1, 30.0)
    assert (retry.multiplier, retry.jitter) == (2.0, 0.2)
    assert configuration.dead_letter is None
    assert configuration.on_undecodable == "halt"
    assert configuration.http is not None
    assert (configuration.http.host, configuration.http.port) == ("0.0.0.0", 8080)
    assert (configuration.logging.level, configuration.logging.format) == ("info", "auto")
    assert configuration.spark == {}
    assert (configuration.path, configuration.folder) == (folder / "shop.yaml", folder)


def test_all_other_keys_of_a_handler_are_its_options(read: Load) -> None:
    configuration = read(
        """
        tables:
          - match: shop.*
            handlers: [{type: "neighbour:Copy", name: copy, url: x, retries: {options: [1]}}]
        """
    )
    entry = configuration.tables[0].handlers[0]
    assert (entry.type, entry.name) == ("neighbour:Copy", "copy")
    assert entry.options == {"url": "x", "retries": {"options": [1]}}


def test_a_handler_with_another_limit_is_the_same_handler_and_another_rule(read: Load) -> None:
    def rule(more: str) -> TableRule:
        entry = f"{{type: 'neighbour:Copy', url: x{more}}}"
        return read(f"tables: [{{match: '*', handlers: [{entry}]}}]").tables[0]

    free, limited, named = rule(""), rule(", limit: {calls: 2}"), rule(", name: copy")
    assert limited.handlers[0].limit == LimitRule(calls=2, rows_per_second=None)
    assert limited.handlers[0].is_like(free.handlers[0])
    assert not named.handlers[0].is_like(free.handlers[0])
    assert not limited.is_as(free)


def test_a_table_takes_the_keys_that_it_does_not_name_from_the_default_batch(read: Load) -> None:
    configuration = read(
        """
        batch: {max_records: 7, max_wait: 1s}
        tables:
          - {match: a.*, batch: {max_wait: 2s}, handlers: [{type: "neighbour:Copy", url: x}]}
          - {match: b.*, batch: {max_records: 1000}, handlers: [{type: "neighbour:Copy", url: x}]}
          - {match: c.*, handlers: [{type: "neighbour:Copy", url: x}]}
        """
    )
    batches = [table.batch for table in configuration.tables]
    assert [(batch.max_records, batch.max_wait) for batch in batches] == [(7, 2.0), (1000, 1.0), (7, 1.0)]


def test_the_first_match_wins_and_an_unmatched_table_has_no_rule(read: Load) -> None:
    configuration = read(
        """
        tables:
          - {match: shop.orders, handlers: [{type: "neighbour:Copy", url: x}]}
          - {match: shop.*, handlers: [{type: "neighbour:Copy", url: x}]}
        """
    )
    first, second = configuration.tables
    assert configuration.rule_for("shop.orders") is first
    assert configuration.rule_for("shop.stock") is second
    assert configuration.rule_for("crm.people") is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("latest", "latest"),
        ("2026-11-01T10:00:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T10:00:00Z", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        (
            "'2026-11-01T10:00:00+08:00'",
            datetime(2026, 11, 1, 10, tzinfo=timezone(timedelta(hours=8))),
        ),
        ("{cdc.shop: {0: 1200, 1: 0}}", {"cdc.shop": {0: 1200, 1: 0}}),
        ("{cdc.shop: {'0': 1200}}", {"cdc.shop": {0: 1200}}),
    ],
)
def test_the_initial_position_is_an_end_a_time_or_offsets(read: Load, written: str, meant: object) -> None:
    assert read(f"checkpoint: {{initial: {written}}}").checkpoint.initial == meant


def test_null_means_no_http_and_no_end_of_attempts(read: Load) -> None:
    configuration = read(
        """
        http: null
        tables:
          - {match: a.*, retry: {max_attempts: null}, handlers: [{type: "neighbour:Copy", url: x}]}
        """
    )
    assert configuration.http is None
    assert configuration.tables[0].retry.max_attempts is None


def test_a_program_may_give_seconds_and_bytes() -> None:
    configuration = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:1", "group_id": "g", "topics": ["t"]},
            "tables": ANY_TABLE,
            "batch": {"max_bytes": 1000, "max_wait": 0.5},
            "checkpoint": {"directory": Path("here"), "interval": 3600},
        }
    )
    assert (configuration.batch.max_bytes, configuration.batch.max_wait) == (1000, 0.5)
    assert (configuration.checkpoint.directory, configuration.checkpoint.interval) == (Path("here"), 3600.0)


def test_a_configuration_never_changes(read: Load) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read().lanes.count = 3  # type: ignore[misc]  # what the test is about


def test_handlers_are_left_alone_by_those_who_run_none(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(KAFKA + "tables: [{match: '*', handlers: [{type: 'no_such_module:Handler'}]}]\n")
    entry = load(path, check_handlers=False).tables[0].handlers[0]
    assert entry.type == "no_such_module:Handler"


def test_properties_may_be_text_numbers_and_switches(read: Load) -> None:
    properties = "  properties: {client.id: a, session.timeout.ms: 6000, socket.keepalive.enable: true}\n"
    assert read(kafka=KAFKA + properties).kafka.properties == {
        "client.id": "a",
        "session.timeout.ms": 6000,
        "socket.keepalive.enable": True,
    }


def test_a_group_of_topics_may_have_its_own_format(read: Load) -> None:
    assert read('format: {"^cdc": canal, other: canal}').format == {"^cdc": "canal", "other": "canal"}


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        ({}, 4),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "900000 100000\n"}, 4),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "300000\n"}, 4),
    ],
)
def test_a_container_may_use_whole_cores_of_its_limit(
    files: dict[str, str], usable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert values.cores(tmp_path) == usable


@pytest.mark.parametrize(("cores", "processes"), [(1, 0), (2, 2), (8, 8), (512, 256)])
def test_a_process_for_each_core_unless_there_is_one(
    cores: int, processes: int, read: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "cores", lambda: cores)
    assert read(f"lanes: {{processes: auto}}\n{TABLES}").lanes.processes == processes
