"""The configuration changes while records flow: nothing is lost, and every row keeps its order."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.process import WorkerProcess, eventually
from integration.stage import Stage
from integration.versions import out_of_order

KEYS, VERSIONS, TABLES = 10_000, 5, 10


def version(table: str, key: int, number: int) -> bytes:
    return json.dumps(
        {
            "data": [{"id": str(key), "version": str(number)}],
            "database": "shop",
            "table": table,
            "es": 1795218962000,
            "isDdl": False,
            "mysqlType": {"id": "bigint", "version": "int"},
            "old": [{"version": str(number - 1)}] if number else None,
            "pkNames": ["id"],
            "type": "UPDATE" if number else "INSERT",
        }
    ).encode()


def rewrite(worker: WorkerProcess, *, by_signal: bool = False, **sections: Any) -> None:
    """Change the worker's file as an editor would, and wait until it is taken over."""
    taken = len(worker.logged("reloaded"))
    worker.config.update(sections)
    path = worker.folder / "binlane.yaml"
    path.with_suffix(".new").write_text(yaml.safe_dump(worker.config, sort_keys=False))
    path.with_suffix(".new").replace(path)
    if by_signal:
        assert worker.process is not None
        worker.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(worker.logged("reloaded")) > taken, what="the file is taken over")


# By table: tests/core/test_lanes_bounds_change.py and test_lane_changes.py.
@pytest.mark.parametrize("order_by", ["row", pytest.param("table", marks=pytest.mark.soak)])
def test_lanes_and_bounds_change_while_rows_flow(stage: Stage, tmp_path: Path, order_by: str) -> None:
    seen = tmp_path / "seen.txt"
    seen.touch()

    def lanes(count: int, bound: int) -> dict[str, Any]:
        return {"count": count, "max_records": bound, "order_by": order_by}

    worker = stage.worker(
        lanes=lanes(1, 10),
        handlers=[{"type": "versions:Versions", "file": str(seen)}],
    ).start()
    source = stage.source()
    # Each key's versions in order, the keys in any.
    keys = [key for key in range(KEYS) for _ in range(VERSIONS)]
    random.Random(7).shuffle(keys)
    next_version = dict.fromkeys(range(KEYS), 0)
    steps = iter([(3, 20), (1, 5), (5, 15)])
    for place, key in enumerate(keys):
        source.send(version(f"t{key % TABLES}", key, next_version[key]))
        next_version[key] += 1
        if place % 12_500 == 12_499 and (step := next(steps, None)):
            source.flush()
            rewrite(worker, lanes=lanes(*step))
            assert len(worker.status()["lanes"]) >= step[0]
    source.flush()
    stage.wait_committed_to_the_end(within=120)
    eventually(lambda: len(worker.status()["lanes"]) == 5, what="the lanes given up are gone")
    assert worker.sigterm() == 0
    assert out_of_order(seen, [(f"shop.t{key % TABLES}", key, VERSIONS) for key in range(KEYS)]) == []


def test_batches_handlers_and_patterns_change(stage: Stage, tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    rule = {"match": "shop.t0", "handlers": [{"type": "versions:Versions", "file": str(first)}]}
    worker = stage.worker(tables=[rule]).start()
    source = stage.source()
    source.send(version("t0", 1, 0))
    source.send(version("t1", 1, 0))
    source.flush()
    stage.wait_committed_to_the_end()
    assert first.read_text().startswith("shop.t0 1 0 1")
    rewrite(
        worker,
        by_signal=True,
        tables=[{"match": "shop.t1", "handlers": [{"type": "versions:Versions", "file": str(second)}]}],
    )
    source.send(version("t0", 1, 1))
    source.send(version("t1", 1, 1))
    source.flush()
    stage.wait_committed_to_the_end()
    assert "shop.t1 1 1 1" in second.read_text()
    assert len(first.read_text().splitlines()) == 1
    eventually(lambda: worker.logged("handler_closed"), what="the handler that nobody has any more is closed")
    assert worker.metric("binlane_reloads_total", result="success") == 1
    assert worker.sigterm() == 0


def test_a_table_is_said_to_wait_for_none_but_its_handlers_of_now(stage: Stage) -> None:
    before, after = ({**stage.recording(), "name": name} for name in ("before", "after"))
    worker = stage.worker(handlers=[before]).start()
    source = stage.source()

    def handled() -> set[str]:
        source.insert("t0", records=3)
        source.flush()
        stage.wait_committed_to_the_end()
        return set(worker.table("shop.t0")["calls"])

    assert handled() == {"before"}
    rewrite(worker, tables=[{**worker.config["tables"][0], "handlers": [after]}])
    assert handled() == {"after"}
    assert worker.sigterm() == 0


def test_a_handler_that_stays_is_neither_closed_nor_opened_again(stage: Stage, tmp_path: Path) -> None:
    seen = tmp_path / "seen.txt"
    rule = {"match": "shop.*", "handlers": [{"type": "versions:Versions", "file": str(seen)}]}
    worker = stage.worker(tables=[rule]).start()
    source = stage.source()
    for number in range(2):
        source.send(version("t0", 1, number))
        source.flush()
        stage.wait_committed_to_the_end()
        rewrite(worker, tables=[{**rule, "batch": {"max_records": 10 + number}}])
    # It counts its batches: the second one is its second.
    assert [line.split()[3] for line in seen.read_text().splitlines()] == ["1", "2"]
    assert worker.logged("handler_closed") == []


def test_a_halted_table_goes_on_when_its_rule_is_mended(stage: Stage) -> None:
    gate = stage.gate()
    rule = {"match": "*", "handlers": [stage.recording(fail={"shop.t0": [1]}, fail_while=str(gate))]}
    worker = stage.worker(
        tables=[{**rule, "retry": {"max_attempts": 1}}],
    ).start()
    source = stage.source()
    source.insert("t0", records=3)
    source.flush()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked", what="the table is blocked")
    gate.unlink()
    rewrite(worker, tables=[{**rule, "retry": {"max_attempts": 2}}])
    stage.wait_committed_to_the_end()
    assert stage.run.seqs()["shop.t0"][-2:] == [1, 2]
    assert worker.sigterm() == 0


BROKEN = [
    ("tables: [", "binlane.yaml"),
    ("lanes: {count: none}", "lanes.count"),
    ("tables: []", "tables: found an empty list"),
    ("tables: [{match: '*', handlers: [{type: nothing:There}]}]", "tables[0].handlers[0].type"),
]


def test_a_broken_file_changes_nothing(stage: Stage) -> None:
    worker = stage.worker().start()
    path = worker.folder / "binlane.yaml"
    whole = path.read_text()
    for broken, told in BROKEN:
        before = len(worker.logged("reload_refused"))
        path.write_text(broken if told == "binlane.yaml" else f"{_without(whole, broken)}\n{broken}\n")
        refused = eventually(
            lambda n=before: worker.logged("reload_refused")[n:], what=f"{broken} is refused"
        )
        assert any(told in line["fault"] for line in refused)
    source = stage.source()
    source.insert("t0", records=5)
    source.flush()
    stage.wait_committed_to_the_end()
    assert worker.metric("binlane_reloads_total", result="refused") == len(BROKEN)
    assert worker.sigterm() == 0


def test_a_handler_that_cannot_open_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    worker = stage.worker().start()
    rule = {
        "match": "*",
        "handlers": [{"type": "versions:Versions", "file": str(tmp_path / "missing" / "seen.txt")}],
    }
    path = worker.folder / "binlane.yaml"
    path.write_text(yaml.safe_dump({**worker.config, "tables": [rule]}))
    eventually(lambda: worker.logged("reload_refused"), what="the file is refused")
    source = stage.source()
    source.insert("t0", records=5)
    source.flush()
    stage.wait_rows(5)
    assert worker.sigterm() == 0


def test_what_cannot_change_says_so_and_the_rest_is_taken_over(stage: Stage) -> None:
    worker = stage.worker().start()
    kafka = {**worker.config["kafka"], "group_id": "another"}
    rewrite(worker, kafka=kafka, lanes={**worker.config["lanes"], "count": 2})
    eventually(lambda: worker.logged("reload_needs_restart"), what="it is told right behind that")
    assert worker.logged("reload_needs_restart")[0]["keys"] == ["kafka.group_id"]
    assert worker.logged("reloaded")[0]["changed"] == ["lanes.count"]
    assert worker.sigterm() == 0


def _without(text: str, line: str) -> str:
    """The file without the section that `line` replaces."""
    section = line.partition(":")[0]
    content = yaml.safe_load(text)
    del content[section]
    return str(yaml.safe_dump(content, sort_keys=False))


def test_more_room_for_parked_records_needs_no_restart(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=1)
    source.flush()
    table = {"match": "*", "handlers": [stage.recording(fail={"shop.t0": [0]})], "on_failure": "halt"}
    lanes: dict[str, Any] = {"count": 1, "max_records": 1_000, "parked": "100KiB"}
    worker = stage.worker(tables=[table | {"retry": {"max_attempts": 1}}], lanes=lanes).start()
    eventually(lambda: worker.metric("binlane_tables_halted") == 1, what="it is halted")
    source.insert("t0", records=5_999)
    source.flush()
    eventually(lambda: worker.metric("binlane_parked_full") == 1, what="the partition is paused")
    rewrite(worker, by_signal=True, lanes=lanes | {"parked": "1GiB"})
    eventually(lambda: worker.metric("binlane_blocked_records") == 6_000, what="all is read")
    assert worker.metric("binlane_parked_full") == 0
    assert worker.sigterm() == 1
