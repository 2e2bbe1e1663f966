"""Tables of which one handler waits for its limit, is paused, fails or has no target, and others do not."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from building import Scripted, record, unit
from processing import Stage, raising
from test_limited_tables import Stepped, limited
from test_table_pauses import Folder

from handlers import Batch, TargetUnavailable
from handlers.failures import AskAgain
from worker.attempts import table_pauses
from worker.attempts.limit import Limit
from worker.attempts.steps import SetAside
from worker.configuration import LimitRule
from worker.lanes.parking import stands
from worker.lanes.record_location import set_aside
from worker.lanes.snapshot import snapshot
from worker.processing.failures import FailureRules
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "state")


@pytest.fixture
def stage(folder: Folder) -> Stepped:
    stage = Stepped()
    folder.pauses._look_again = partial(stage.lanes.unblock, pauses=True)
    stage.processor._failures._rules = FailureRules(pauses=folder.pauses)
    return stage


def state(stage: Stepped, table: Unit) -> str:
    return snapshot(stage.lanes.seen, [table], 1).tables[0].state


@pytest.mark.parametrize("other", ["paused", "failing", "down for this table"])
def test_a_limited_handler_gets_its_turn_while_another_of_its_table_stands(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(table_pauses, "_AGAIN_SECONDS", 0.05)
    stage, calls, ended = Stage(4, pauses=folder.pauses), [0], threading.Event()

    def busy(_batch: Batch) -> None:
        calls[0] += 1
        ended.wait(0.004)

    script = {"failing": raising(ValueError("no")), "paused": lambda _batch: None}.get(
        other, raising(TargetUnavailable("locked", retry_after=0.05, others_go_on=True))
    )
    retry = {"max_attempts": None, "initial_delay": 0.02, "max_delay": 0.02}
    first = Scripted(busy)
    table = unit("t0", first, Scripted(script), retry=retry)
    others = [unit(f"t{n}", Scripted(busy), batch={"max_records": 1}) for n in range(1, 4)]
    limited(Limit(LimitRule(calls=1)), table, *others)
    if other == "paused":
        assert folder.ask("shop.t0", handler="h1").result == "paused"
    stage.offer(*((each, range(n * 1_000, n * 1_000 + 500)) for n, each in enumerate(others)))
    stage.start()
    stage.wait(lambda: calls[0] > 20)
    stage.offer((table, [5_000]))
    before = calls[0]
    stage.wait(lambda: first.calls or calls[0] > before + 200)
    ended.set()
    stage.stop()
    assert first.calls, "200 calls of three other tables came first"


def test_a_table_that_waits_for_its_limit_notices_that_it_is_paused_and_resumed(
    folder: Folder, stage: Stepped
) -> None:
    """Its records are parked meanwhile, as those of other paused tables."""
    table, first = unit("orders"), unit("first")
    limited(Limit(LimitRule(rows_per_second=1)), table, first)
    stage.source.offer((first, 90), value=record(0).value())
    stage.step()
    stage.source.offer((table, 95), value=record(0).value())
    stage.step()
    assert (state(stage, table), stands(table)) == ("queued", False)
    folder.ask("shop.orders")
    stage.step()
    assert (state(stage, table), stands(table)) == ("paused", True)
    folder.ask("shop.orders", "resume")
    stage.step()
    assert (state(stage, table), stands(table), table.error) == ("queued", False, None)
    stage.run()
    assert table.at_rest


def test_pauses_of_others_use_up_no_attempts(folder: Folder, stage: Stepped) -> None:
    """One handler of a table is paused, another one fails: its attempts are 60 s apart."""
    failing, other = Scripted(raising(ValueError("no"))), Scripted()
    retry = {"initial_delay": 60, "max_delay": 60, "max_attempts": 5}
    table = unit("orders", failing, other, retry=retry)
    folder.ask("shop.orders", handler="h1")
    stage.source.offer((table, 1), value=record(0).value())
    stage.step()
    for number in range(10):
        folder.ask(f"crm.t{number}")
        stage.step()
    assert (table.state, len(failing.calls), table.failed_batches) == (UnitState.BACKOFF, 1, 1)
    folder.ask("shop.orders", "resume", handler="h1")
    stage.step()
    assert (len(other.calls), len(failing.calls)) == (1, 1)


def test_a_result_is_asked_for_though_the_question_waits_for_a_limit_and_a_pause(
    folder: Folder, stage: Stepped
) -> None:
    """What a handler has accepted is not paused."""
    answers: list[BaseException | None] = [AskAgain(0.05), None]

    def script(_: Batch) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    table, another = unit("orders", Scripted(script)), unit("another")
    limit = limited(Limit(LimitRule(calls=1)), table, another)
    stage.source.offer((table, 1), value=record(0).value())
    stage.step()
    assert limit.start(another, 1, stage.clock.now)
    stage.clock.now += 0.1
    stage.lanes.schedule.ran_out(stage.clock.now)
    stage.step()
    assert table.state is UnitState.LIMITED
    folder.ask("shop.orders")
    limit.ended()
    stage.lanes.schedule.permits.serve(limit)
    stage.step()
    assert table.at_rest


def test_a_record_is_set_aside_at_once_though_another_handler_waits_for_its_limit(stage: Stepped) -> None:
    retry = {"initial_delay": 60, "max_delay": 60, "jitter": 0.0}
    table = unit("orders", Scripted(), Scripted(raising(ValueError("no"))), retry=retry)
    assert limited(Limit(LimitRule(calls=1)), table).start(unit("another"), 1, stage.clock.now)
    stage.source.offer((table, 1), value=record(0).value())
    stage.step()
    assert table.state is UnitState.LIMITED
    work = stage.lanes.schedule.kept[table]
    assert set_aside(stage.lanes, table, work, 0, SetAside("skip", "ann"))
    stage.step()
    assert work.runs[1].finished


def test_a_target_that_is_back_lets_no_table_decode_that_only_waits_for_its_limit(
    stage: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [unit(f"t{number}", Scripted()) for number in range(5)]
    assert limited(Limit(LimitRule(calls=1)), *tables).start(unit("another"), 1, stage.clock.now)
    stage.source.offer(*((each, 5) for each in tables), value=record(0).value())
    stage.step()
    monkeypatch.setattr(Work, "_decode_again", lambda _work: pytest.fail("it is decoded again"))
    stage.lanes.unblock()
    stage.step()


def test_a_result_is_asked_for_though_another_handler_failed_and_the_table_is_paused(
    folder: Folder, stage: Stepped
) -> None:
    asked = list[float]()

    def accepts(_batch: Batch) -> None:
        asked.append(stage.clock.now)
        if len(asked) < 3:
            raise AskAgain(0.01)

    retry = {"initial_delay": 1, "max_delay": 1, "jitter": 0.0}
    table = unit("orders", Scripted(accepts), Scripted(raising(ValueError("no"), times=1)), retry=retry)
    stage.source.offer((table, 1), value=record(0).value())
    stage.step()
    assert folder.ask("shop.orders").result == "paused"
    timers = stage.lanes.schedule.timers
    for _ in range(20):
        stage.step()
        if timers:
            stage.clock.now = timers.next_due()
            stage.lanes.schedule.let_run(timers.due(stage.clock.now))
    assert len(asked) == 3
