"""Targets that are down, and handlers that hang: their tables wait and say so, others do not."""

from __future__ import annotations

import time

from integration.checkers import NeverTwoAtOnce, NothingLost, NothingTwice, TableOrder
from integration.letters import judging
from integration.process import eventually
from integration.stage import Stage

IMPATIENT = {"max_attempts": 2, "initial_delay": "20ms", "max_delay": "200ms"}
OUTAGE = 5.0


def test_an_outage_burns_no_attempts_delays_no_other_table_and_loses_nothing(stage: Stage) -> None:
    down = stage.gate()
    away = {
        "match": "shop.away*",
        "handlers": [judging(stage, "away", down_while=str(down))],
        "retry": IMPATIENT,
    }
    near = {"match": "shop.near", "handlers": [judging(stage, "near")], "retry": IMPATIENT}
    source = stage.source()
    for table in ("away1", "away2", "away3"):
        source.insert(table, records=20)
    source.flush()
    # One lane: a batch that waits must not hold it.
    worker = stage.worker(tables=[away, near], lanes={"count": 1}).start()
    begin = time.monotonic()
    eventually(lambda: worker.metric("binlane_tables_blocked") == 3)
    status = worker.status()
    assert status["state"] == "running"
    assert {table["state"] for table in status["tables"]} == {"blocked"}
    assert all("connection refused (handler away)" in table["error"] for table in status["tables"])
    assert worker.metric("binlane_target_up", handler="away") == 0
    assert worker.metric("binlane_target_up", handler="near") == 1
    [target] = [each for each in status["targets"] if not each["up"]]
    assert (target["handler"], target["error"]) == ("away", "connection refused")
    assert worker.healthy()
    assert worker.ready()

    def wait_near(rows: int) -> None:
        eventually(lambda: len(stage.run.seqs().get("shop.near", [])) == rows, every=0.005)

    slowest = 0.0
    while time.monotonic() - begin < OUTAGE:
        source.insert("near")
        source.flush()
        sent = time.monotonic()
        wait_near(len(source.rows["shop.near"]))
        slowest = max(slowest, time.monotonic() - sent)
        time.sleep(0.05)
    assert slowest < 1.5, "the way through a worker that does nothing else"
    probes = [event for event in stage.run.events() if event["event"] == "down"]
    assert 10 < len(probes) < 60, "one for all three tables, every 200 ms"

    down.unlink()
    eventually(lambda: stage.run.handled() == source.count, within=3)
    stage.wait_committed_to_the_end()
    assert {event["attempt"] for event in stage.run.events() if event["event"] == "start"} == {1}
    assert len(worker.logged("target_down")) == len(worker.logged("target_up")) == 1
    assert worker.logged("target_up")[0]["down_seconds"] >= OUTAGE - 1
    assert worker.metric("binlane_target_up", handler="away") == 1
    assert worker.metric("binlane_tables_blocked") == 0
    assert worker.sigterm() == 0
    near_rows = {"shop.near": source.rows.pop("shop.near")}
    stage.check(NothingLost(near_rows, ["near"]), NothingLost(source.rows, ["away"]))
    stage.check(TableOrder(), NothingTwice(), NeverTwoAtOnce())


def test_a_worker_stops_and_starts_during_an_outage(stage: Stage) -> None:
    down = stage.gate()
    handlers = [judging(stage, "near"), judging(stage, "away", down_while=str(down))]
    table = {"match": "*", "handlers": handlers, "retry": IMPATIENT}
    source = stage.source()
    source.insert("t0", records=20)
    source.flush()
    worker = stage.worker(tables=[table]).start()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    assert worker.sigterm() == 0
    assert stage.committed()[0] <= 0
    worker.start()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    down.unlink()
    stage.wait_committed_to_the_end()
    assert [row["seq"] for row in stage.run.rows("away")] == source.rows["shop.t0"]
    assert worker.sigterm() == 0


def test_a_handler_that_hangs_is_reported_with_its_stack(stage: Stage) -> None:
    stuck = stage.gate()
    table = {"match": "*", "slow_after": "600ms"}
    alone = {**table, "match": "shop.t0", "handlers": [judging(stage, "alone", stuck_while=str(stuck))]}
    one_of_two = {
        **table,
        "handlers": [judging(stage, "quick"), judging(stage, "one-of-two", stuck_while=str(stuck))],
    }
    source = stage.source()
    source.insert("t0", records=3)
    source.insert("t1", records=3)
    source.flush()
    worker = stage.worker(tables=[alone, one_of_two]).start()
    eventually(lambda: len(worker.logged("handler_slow")) >= 4, what="two reports of each")
    stuck.unlink()
    stage.wait_committed_to_the_end()
    logged = worker.logged("handler_slow")
    assert {line["handler"] for line in logged} == {"alone", "one-of-two"}
    for name, offset in (("alone", 0), ("one-of-two", 3)):
        mine = [line for line in logged if line["handler"] == name]
        assert mine[0]["seconds"] >= 0.6
        assert mine[1]["seconds"] >= 1.2
        assert mine[0]["position"].startswith(f"{stage.topic}[0] offset {offset}")
        assert mine[0]["stack_of_handler"].endswith("in _apply\n    time.sleep(0.02)\n")
        assert mine[0]["level"] == "warning"
    assert worker.sigterm() == 0
