"""A handler's run for tests: who watches it, handlers that fail as chosen, batches of so many records."""

from __future__ import annotations

from collections.abc import Callable

from building import Scripted, assignment, chunk, record, runs_of, unit, work

from handlers import Batch, PartialFailure
from worker.attempts.retry_and_split import HandlerRun
from worker.attempts.steps import Step
from worker.units.work import Work

__all__ = ["Notes", "batch_of", "failing_at", "partly", "steps_of"]


class Notes:
    """The processor's ear: what it is told."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.skips: list[int] = []
        self.letters: list[tuple[int, int]] = []
        """(offset, row) of each change that became a dead letter."""
        self.attempts: list[int] = []
        """For each of them, what it says of its attempts."""
        self.refuse: BaseException | None = None
        """What keeps dead letters from being written."""
        self.downs: list[str] = []
        self.held: list[str] = []
        self.ups: list[float] = []
        self.stop = False

    def call(self, work: Work, run: HandlerRun, batch: Batch) -> None:
        run.handler.handle(batch)

    def failed(self, handler: str, error: BaseException) -> None:
        self.failures.append(str(error))

    def target_down(self, handler: str, error: BaseException) -> None:
        self.downs.append(str(error))

    def held_up(self, work: Work, handler: str, error: BaseException) -> None:
        self.held.append(str(error))

    def target_up(self, handler: str, seconds: float) -> None:
        self.ups.append(seconds)

    def skipped(self, work: Work, handler: str, place: int, error: BaseException) -> None:
        self.skips.append(place)

    def dead_letter(self, work: Work, handler: str, place: int, error: BaseException, attempts: int) -> None:
        if self.refuse is not None:
            raise self.refuse
        assert work.changes is not None
        change = work.changes[place]
        self.letters.append((change.offset, change.index))
        self.attempts.append(attempts)

    def paused(self, work: Work, handler: str) -> None:
        return None

    def called_off(self, work: Work) -> bool:
        return self.stop


def failing_at(*bad: int) -> Callable[[Batch], None]:
    """Raises for a batch that holds one of these offsets, whole and unsaid which."""

    def script(batch: Batch) -> None:
        if any(change.offset in bad for change in batch.changes):
            raise ValueError("a bad one among them")

    return script


def partly(*bad: int) -> Callable[[Batch], None]:
    """Applies up to the first bad offset and says so."""

    def script(batch: Batch) -> None:
        for done, change in enumerate(batch.changes):
            if change.offset in bad:
                raise PartialFailure(done, ValueError(f"bad: {change.offset}"))

    return script


def batch_of(handler: Scripted, count: int, **rules: object) -> tuple[Work, HandlerRun]:
    retry = {"max_attempts": rules.pop("attempts", 3), "initial_delay": 1.0, "jitter": 0.0}
    table = unit("a", handler, retry=retry, **rules)  # type: ignore[arg-type]  # one dict for many types
    made = work(table, chunk(assignment(), [record(n) for n in range(count)]))
    return made, runs_of(made)[0]


def steps_of(run: HandlerRun, made: Work, notes: Notes) -> list[Step]:
    """Steps until the batch is done or cannot go on."""
    steps = [run.step(made, notes, lambda: 0.5)]
    while steps[-1] is Step.RETRY and len(steps) < 100:
        steps.append(run.step(made, notes, lambda: 0.5))
    return steps
