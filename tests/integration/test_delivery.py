"""Every record arrives, in order, and the committed offset says so."""

from __future__ import annotations

from integration.checkers import NeverTwoAtOnce, NothingLost, NothingTwice, TableOrder
from integration.conftest import MakeStage
from integration.process import eventually
from integration.stage import Stage


def test_every_row_of_fifty_tables_arrives_in_order_and_the_offset_reaches_the_end(
    make_stage: MakeStage,
) -> None:
    stage = make_stage(partitions=4)
    source = stage.source()
    for round_ in range(100):
        for table in range(50):
            source.insert(f"t{table}", rows=1 + (round_ + table) % 7)
    source.flush()
    assert source.count >= 20_000 - 100

    worker = stage.worker().start()
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()

    assert worker.sigterm() == 0
    assert stage.committed() == stage.ends()
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice(), NeverTwoAtOnce())


def test_status_and_metrics_tell_what_was_done(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=30)
    source.insert("t1", records=10)
    source.send(None, key=b"a tombstone")
    source.flush()

    worker = stage.worker(name="told").start()
    stage.wait_rows(40)
    stage.wait_committed_to_the_end()

    eventually(lambda: worker.status()["partitions"][0]["lag"] == 0)
    status = worker.status()
    assert (status["name"], status["state"]) == ("told", "running")
    partition = status["partitions"][0]
    assert (partition["topic"], partition["partition"]) == (stage.topic, 0)
    assert (partition["position"], partition["committed"], partition["unfinished"]) == (41, 41, 0)
    tables = {table["table"]: table["finished_records"] for table in status["tables"]}
    assert tables == {"shop.t0": 30, "shop.t1": 10}
    assert worker.metric("binlane_records_finished_total", table="shop.t0") == 30
    assert worker.metric("binlane_records_consumed_total", topic=stage.topic, partition="0") == 41
    assert worker.metric("binlane_records_skipped_total", reason="tombstone") == 1
    assert worker.metric("binlane_committed", topic=stage.topic, partition="0") == 41


def test_a_table_that_no_pattern_matches_is_skipped_and_finished(stage: Stage) -> None:
    source = stage.source()
    source.insert("wanted", records=5)
    source.insert("other", records=5)
    source.flush()

    worker = stage.worker(tables=[{"match": "shop.wanted", "handlers": [stage.recording()]}]).start()
    stage.wait_committed_to_the_end()

    assert worker.metric("binlane_records_skipped_total") == 5
    assert stage.run.seqs() == {"shop.wanted": [0, 1, 2, 3, 4]}


def test_an_offset_waits_for_all_handlers_of_its_table(stage: Stage) -> None:
    hold = stage.gate()
    handlers = [
        stage.recording(name="quick"),
        stage.recording(name="slow", hold={"shop.t0": str(hold)}, hold_rows={"shop.t0": [3]}),
    ]
    source = stage.source()
    source.insert("t0", records=10)
    source.insert("t1", records=10)
    source.flush()

    worker = stage.worker(handlers=handlers, batch={"max_records": 1}).start()
    eventually(lambda: worker.table("shop.t1").get("finished_records") == 10)
    eventually(lambda: stage.committed()[0] == 3, what="committed: the rows before the one held")
    assert [row["seq"] for row in stage.run.rows("quick") if row["table"] == "shop.t0"] == [0, 1, 2, 3]
    assert stage.committed()[0] == 3

    hold.unlink()
    stage.wait_committed_to_the_end()
    stage.check(
        NothingLost(source.rows, handlers=["quick", "slow"]), TableOrder(), NothingTwice(), NeverTwoAtOnce()
    )


def test_transaction_markers_and_aborted_records_do_not_stop_the_commit(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    source = stage.source(transactional_id=stage.topic)
    worker = stage.worker().start()
    for _ in range(3):
        source.insert_and_abort("t0", records=7)
        source.producer.begin_transaction()
        for table in range(6):
            source.insert(f"t{table}", records=10)
        source.flush()
        source.producer.commit_transaction(30)
    source.insert_and_abort("t0", records=7)
    source.insert_and_abort("t1", records=7)

    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())


def test_a_partial_failure_repeats_only_what_was_not_done(stage: Stage) -> None:
    failing = stage.gate()
    handler = stage.recording(fail={"shop.t0": [5]}, fail_while=str(failing), partial=True)
    table = {"match": "*", "handlers": [handler], "retry": {"max_attempts": None, "initial_delay": "50ms"}}
    source = stage.source()
    source.insert("t0", rows=10)
    source.insert("t0", records=5)
    source.flush()

    worker = stage.worker(tables=[table]).start()
    eventually(lambda: worker.table("shop.t0").get("failed_batches", 0) >= 3)
    failing.unlink()
    stage.wait_committed_to_the_end()

    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())


def test_a_drain_finishes_the_batch_that_runs_and_commits_it(stage: Stage) -> None:
    hold = stage.gate()
    source = stage.source()
    source.insert("t0", records=3)
    source.flush()
    handler = stage.recording(hold={"shop.t0": str(hold)}, hold_rows={"shop.t0": [1]})
    worker = stage.worker(handlers=[handler]).start()
    eventually(stage.run.rows)

    worker.terminate()
    eventually(lambda: worker.status()["state"] == "draining")
    assert not worker.ready()
    assert worker.healthy()
    hold.unlink()

    assert worker.wait() == 0
    assert stage.committed() == {0: 3}
    assert [event["event"] for event in stage.run.events()][-2:] == ["close", "gone"]
    stage.check(NothingLost(source.rows), NothingTwice())


def test_a_second_signal_stops_at_once(stage: Stage) -> None:
    hold = stage.gate()
    source = stage.source()
    source.insert("t0")
    source.flush()
    worker = stage.worker(handlers=[stage.recording(hold={"shop.t0": str(hold)})]).start()
    eventually(lambda: [event for event in stage.run.events() if event["event"] == "start"])

    worker.terminate()
    eventually(lambda: worker.status()["state"] == "draining")
    worker.terminate()

    assert worker.wait(within=3) != 0
    assert stage.run.rows() == []
