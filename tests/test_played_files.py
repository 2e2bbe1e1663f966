"""`binlane.testing.play`: files of records, handled as a worker handles them, without Kafka."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from examples.example_runs import EXAMPLES, changes_of, configurations, sample_of
from played_handlers import Noting

from binlane import Batch, StopWorker
from binlane.testing import Played, play
from worker.configuration import ConfigurationError
from worker.fetching.routing import UndecodableHalt
from worker.formats.sample import SampleError


def record(table: str, *ids: int, **fields: Any) -> str:
    message = {
        "database": "shop",
        "table": table,
        "type": "INSERT",
        "isDdl": False,
        "es": 1,
        "pkNames": ["id"],
        "mysqlType": {"id": "bigint"},
        "data": [{"id": str(each)} for each in ids],
    }
    return json.dumps(message | fields)


def played(folder: Path, lines: Sequence[str], /, sections: Any = None, **rule: Any) -> Played:
    handler = {"type": "played_handlers:Noting", "name": "noting"} | rule.pop("handler", {})
    config = {
        "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["cdc"]},
        "tables": [{"match": "shop.*", "handlers": [handler], **rule}],
        "dead_letter": {"topic": "cdc.dead"},
        **(sections or {}),
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    (folder / "r.jsonl").write_text("\n".join(lines))
    return play(folder / "c.yaml", folder / "r.jsonl", seconds=20)


def noting(found: Played) -> Noting:
    handler = found.handlers["noting"]
    assert isinstance(handler, Noting)
    return handler


def test_each_table_has_its_records_in_order(tmp_path: Path) -> None:
    found = played(tmp_path, [record("t" + str(n % 3), n, n + 100) for n in range(60)])
    expected = {
        f"shop.t{each}": [id_ for n in range(each, 60, 3) for id_ in (n, n + 100)] for each in range(3)
    }
    assert noting(found).tables == expected
    assert (found.letters, found.halted) == ([], {})


def test_a_batch_is_as_the_configuration_says(tmp_path: Path) -> None:
    found = played(tmp_path, [record("t", n) for n in range(7)], batch={"max_records": 3})
    assert noting(found).calls == [(1, [0, 1, 2]), (1, [3, 4, 5]), (1, [6])]


def test_an_error_is_retried_without_a_delay(tmp_path: Path) -> None:
    retry = {"max_attempts": 10, "initial_delay": "30s", "max_delay": "60s"}
    lines = [record("t", n) for n in range(3)]
    found = played(tmp_path, lines, handler={"fails": [1], "times": 4}, retry=retry)
    assert noting(found).calls == [(5, [0, 1, 2])]


def test_the_failing_row_is_a_dead_letter(tmp_path: Path) -> None:
    lines = [record("t", 0, 1), record("t", 2, 3), record("t", 4, 5)]
    handler = {"fails": [3]}
    found = played(tmp_path, lines, handler=handler, retry={"max_attempts": 2}, on_failure="dead_letter")
    [letter] = found.letters
    assert (letter.table, letter.handler, letter.index, letter.attempts) == ("shop.t", "noting", 1, 2)
    assert (letter.source, letter.error) == ("cdc[0] offset 1 row 1", "ValueError: not this one")
    assert letter.value == lines[1].encode()
    assert noting(found).tables == {"shop.t": [0, 1, 2, 4, 5]}


def test_a_record_that_cannot_be_decoded_is_a_dead_letter(tmp_path: Path) -> None:
    found = played(tmp_path, [record("t", 0), record("t", 0, data="no rows"), record("t", 2)])
    [letter] = found.letters
    assert (letter.handler, letter.source_offset) == (None, 1)
    assert str(letter.error).startswith("undecodable record: ")
    assert noting(found).tables == {"shop.t": [0, 2]}


def test_a_table_halts_and_the_others_go_on(tmp_path: Path) -> None:
    lines = [record("bad", 7), record("bad", 8), record("good", 1)]
    found = played(
        tmp_path, lines, handler={"fails": [7]}, retry={"max_attempts": 1}, batch={"max_records": 1}
    )
    assert found.halted == {"shop.bad": "ValueError: not this one (handler noting)"}
    assert noting(found).tables == {"shop.good": [1]}


def test_what_stops_the_worker_is_raised(tmp_path: Path) -> None:
    with pytest.raises(StopWorker, match="no licence"):
        played(tmp_path, [record("t", 7)], handler={"fails": [7], "how": "stop"})
    with pytest.raises(UndecodableHalt, match="undecodable record at cdc"):
        played(tmp_path, ["{}"], {"on_undecodable": "halt"})
    with pytest.raises(SampleError):
        played(tmp_path, ["not JSON"])
    with pytest.raises(ConfigurationError):
        played(tmp_path, [], on_failure="nothing")


def test_a_target_that_stays_down_is_told_with_its_table(tmp_path: Path) -> None:
    lines = [record("t", 7), record("other", 1)]
    found = played(tmp_path, lines, handler={"fails": [7], "how": "down", "times": 3})
    assert noting(found).tables == {"shop.t": [7], "shop.other": [1]}
    (tmp_path / "c.yaml").write_text((tmp_path / "c.yaml").read_text().replace("times: 3", "times: 1000000"))
    with pytest.raises(TimeoutError, match=r"not handled within 1 s: \{'shop.t': '.*it is down"):
        play(tmp_path / "c.yaml", tmp_path / "r.jsonl", seconds=1)


@pytest.mark.parametrize("lanes", [{"order_by": "row"}, {"processes": 2}, {"count": 1}])
def test_lanes_are_those_of_the_configuration_except_for_processes(
    tmp_path: Path, lanes: dict[str, Any]
) -> None:
    found = played(tmp_path, [record("t", n % 5) for n in range(50)], {"lanes": lanes})
    assert sorted(noting(found).tables["shop.t"]) == sorted(n % 5 for n in range(50))


def test_batches_are_given_to_a_function_instead(tmp_path: Path) -> None:
    played(tmp_path, [record("t", 1)])
    batches: list[Batch] = []
    found = play(tmp_path / "c.yaml", tmp_path / "r.jsonl", instead={"noting": batches.append})
    assert [change.after for batch in batches for change in batch.changes] == [{"id": 1}]
    assert not isinstance(found.handlers["noting"], Noting)


def test_a_function_for_a_handler_that_no_table_has_is_refused(tmp_path: Path) -> None:
    played(tmp_path, [record("t", 1)])
    with pytest.raises(ValueError, match="instead: no handler is named notnig; handlers: noting"):
        play(tmp_path / "c.yaml", tmp_path / "r.jsonl", instead={"notnig": print})


def test_relative_paths_of_options_start_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    played(tmp_path, [record("t", 1)])
    config = yaml.safe_load((tmp_path / "c.yaml").read_text())
    config["tables"][0]["handlers"] = [{"type": "files", "directory": "out"}]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    play(tmp_path / "c.yaml", tmp_path / "r.jsonl", folder=tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere" / "out").rglob("*.jsonl*"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", configurations("formats"))
def test_all_formats_can_be_played(name: str, tmp_path: Path) -> None:
    """Also those that learn types from the records of a DDL topic."""
    batches: list[Batch] = []
    config = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    handlers = {entry.get("name", entry["type"]) for rule in config["tables"] for entry in rule["handlers"]}
    found = play(
        EXAMPLES / f"{name}.yaml",
        sample_of(name),
        instead=dict.fromkeys(handlers, batches.append),
        folder=tmp_path,
    )
    assert (found.letters, found.halted) == ([], {})
    by_table: dict[str, list[Any]] = {}
    for batch in batches:
        by_table.setdefault(batch.table, []).extend(change.after for change in batch.changes)
    expected: dict[str, list[Any]] = {}
    for table, change in changes_of(name):
        expected.setdefault(table, []).append(change.after)
    assert by_table == expected


def test_a_flood_of_dead_letters_halts_the_table(tmp_path: Path) -> None:
    sections = {"dead_letter": {"topic": "cdc.dead", "max_ratio": 0.002}}
    rule: dict[str, Any] = {"handler": {"fails": [0, 1, 2, 3]}, "retry": {"max_attempts": 1}}
    rule["on_failure"] = "dead_letter"
    found = played(tmp_path, [record("orders", n) for n in range(4)], sections, **rule)
    assert [letter.source_offset for letter in found.letters] == [0, 1]
    assert [letter.place.topic for letter in found.letters] == ["cdc.dead"] * 2
    assert "dead_letter.max_ratio 0.002: this would be dead letter number 3" in found.halted["shop.orders"]
