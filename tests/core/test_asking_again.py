"""A handler that knows only later whether a batch is done: it is asked again, and nothing has failed."""

from __future__ import annotations

from building import Scripted, seen, unit
from processing import NOW, Stage
from structlog.testing import capture_logs

from handlers import Batch, PartialFailure
from handlers.failures import AskAgain
from offsets.types import Checkpoint
from worker.lanes.snapshot import snapshot
from worker.units.unit import UnitState


class Later(Scripted):
    """Takes each batch, and says at the call after so many that it is done."""

    def __init__(self, calls: int, seconds: float = 0.001) -> None:
        super().__init__(self._answer)
        self._left = calls
        self._seconds = seconds

    def _answer(self, batch: Batch) -> None:
        if self._left:
            self._left -= 1
            raise AskAgain(self._seconds)


def test_a_batch_is_handed_over_again_until_it_is_done_and_uses_up_no_attempt() -> None:
    stage, handler = Stage(), Later(3)
    table = unit("orders", handler, retry=NOW | {"max_attempts": 2})
    stage.offer((table, range(3)))
    with capture_logs() as logs:
        stage.run(table)
    assert handler.calls == [(1, [(0, 0), (1, 0), (2, 0)])] * 4
    assert stage.checkpoint() == Checkpoint(3)
    assert (table.failed_batches, table.error) == (0, None)
    assert not logs
    assert not stage.counted("binlane_handler_failures_total{")


def test_nothing_counts_as_finished_before_it_and_other_tables_go_on_meanwhile() -> None:
    stage = Stage()
    waiting, other = unit("waiting", Later(1, seconds=60.0)), unit("other")
    stage.offer((waiting, [0]), (other, [1]))
    stage.run(until=lambda: other.finished_records and waiting.state is UnitState.BACKOFF)
    assert stage.checkpoint().offset == 0
    assert (waiting.finished_records, waiting.error, waiting.blocked) == (0, None, False)
    [table] = snapshot(stage.lanes.seen, [waiting], 1).tables
    assert [part.state for part in table.parts] == ["running"]


def test_of_several_handlers_only_the_one_that_said_so_is_asked_again() -> None:
    stage, fine, later = Stage(), Scripted(), Later(2)
    table = unit("orders", fine, later, retry=NOW)
    stage.offer((table, range(2)))
    stage.run(table)
    assert seen(fine) == [[0, 1]]
    assert seen(later) == [[0, 1]] * 3
    assert stage.checkpoint() == Checkpoint(2)


def test_what_was_done_before_stays_done() -> None:
    answers = iter([PartialFailure(1), AskAgain(0.001), None])

    def script(batch: Batch) -> None:
        if (answer := next(answers)) is not None:
            raise answer

    stage, handler = Stage(), Scripted(script)
    table = unit("orders", handler, retry=NOW)
    stage.offer((table, range(3)))
    stage.run(table)
    assert seen(handler) == [[0, 1, 2], [1, 2], [1, 2]]
    assert stage.checkpoint() == Checkpoint(3)
