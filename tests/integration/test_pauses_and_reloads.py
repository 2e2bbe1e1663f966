"""Pauses, limits, reloads, kills, stops and failures of two workers at once."""

from __future__ import annotations

import random
import signal
import time

import pytest
import yaml
from integration.checkers import NeverTwoAtOnce, NothingLost, TableOrder
from integration.conftest import MakeStage
from integration.letters import binlane
from integration.process import WorkerProcess, eventually

SECONDS = 40
LIMITS = (None, {"calls": 1}, {"calls": 2}, {"rows_per_second": 400}, {"calls": 2, "rows_per_second": 800})


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("seed", "order_by"), [(0, "table"), (1, "table"), (2, "table"), (3, "table"), (4, "row"), (5, "row")]
)
def test_whatever_happens_at_once_nothing_is_lost_or_out_of_order(
    make_stage: MakeStage, seed: int, order_by: str
) -> None:
    chance = random.Random(seed)
    stage = make_stage(3)
    source, gate = stage.source(), stage.gate()
    tables = [f"t{n}" for n in range(9)]

    def rules(limit: object, records: int) -> list[dict[str, object]]:
        more = {} if limit is None else {"limit": limit}
        first = stage.recording(
            row_sleep=0.0005,
            fail={"shop.t1": list(range(50, 5000, 150)), "shop.t5": [70]},
            fail_while=str(gate),
            partial=bool(seed % 2),
            **more,
        ) | {"name": "one"}
        second = stage.recording() | {"name": "two"}
        return [
            {"match": "shop.t8", "handlers": [first, second], "batch": {"max_records": records}},
            {
                "match": "*",
                "handlers": [first],
                "batch": {"max_records": records},
                "retry": {"max_attempts": 3, "initial_delay": "50ms", "max_delay": "500ms"},
            },
        ]

    def lanes(count: int) -> dict[str, object]:
        return {
            "count": count,
            "max_records": 300,
            "order_by": order_by,
            "parked": chance.choice(["64KiB", "1GiB"]),
            "work_stealing": chance.random() < 0.7,
        }

    workers = [stage.worker(f"w{n}", tables=rules(None, 50), lanes=lanes(4)).start() for n in range(2)]
    paused: set[tuple[str, ...]] = set()

    def reload(worker: WorkerProcess, limit: object, records: int) -> None:
        worker.config["tables"] = rules(limit, records)
        worker.config["lanes"] = lanes(chance.choice([1, 2, 4, 8]))
        path = worker.folder / "binlane.yaml"
        path.with_suffix(".new").write_text(yaml.safe_dump(worker.config, sort_keys=False))
        path.with_suffix(".new").replace(path)
        if worker.process is not None and worker.process.poll() is None:
            worker.process.send_signal(signal.SIGHUP)

    def everywhere(command: str, *more: str) -> None:
        for worker in workers:
            for _ in range(3):
                done = binlane(worker, command, worker.url, *more)
                if done.returncode == 0 or "there is no pause" in done.stderr:
                    break
                time.sleep(0.3)

    with source.going_on(
        lambda: source.insert(chance.choice(tables), records=chance.choice([1, 1, 5])), every=0.004
    ):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            event = chance.random()
            worker = chance.choice(workers)
            if event < 0.4:
                what: tuple[str, ...] = ("--table", f"shop.{chance.choice(tables)}")
                if chance.random() < 0.3:
                    what += ("--handler", "one")
                if what in paused:
                    paused.discard(what)
                    everywhere("resume", *what)
                else:
                    paused.add(what)
                    everywhere("pause", *what)
            elif event < 0.7:
                limit, records = chance.choice(LIMITS), chance.choice([5, 50, 200])
                for each in workers:
                    reload(each, limit, records)
            elif event < 0.82:
                assert worker.sigterm() in (0, 1), "1: a table is halted"
                assert worker.logged("worker_fault") == []
                worker.start()
            elif event < 0.9:
                worker.kill9()
                worker.start()
            else:
                for what in paused:
                    everywhere("resume", *what)
                paused.clear()
            time.sleep(chance.choice([0.1, 0.5, 1.5]))
    gate.unlink()
    for what in paused:
        everywhere("resume", *what)
    for each in workers:
        reload(each, {"calls": 2}, 100)
    eventually(lambda: not any(each.status()["pauses"] for each in workers), within=20)
    time.sleep(1)
    for each in workers:
        reload(each, None, 101)  # what is halted is retried
    both = {"shop.t8": source.rows["shop.t8"]}
    eventually(lambda: stage.run.handled() >= source.count + len(both["shop.t8"]), within=90)
    stage.wait_committed_to_the_end()
    eventually(lambda: all(each.metric("binlane_parked_bytes") == 0 for each in workers), within=20)
    for each in workers:
        assert each.metric("binlane_tables_blocked") == 0
        assert each.healthy()
    stage.check(NothingLost(source.rows, ["one"]), NothingLost(both, ["two"]))
    if order_by == "table":
        stage.check(TableOrder(), NeverTwoAtOnce())
    assert [each.sigterm() for each in workers] == [0, 0]
