"""A row that moves to another key comes as a delete and an insert: both are given and set aside together."""

from __future__ import annotations

from collections.abc import Callable

from building import Scripted, assignment, chunk, record, runs_of, unit, work
from execution_building import Notes, steps_of
from hypothesis import given
from hypothesis import strategies as st

from handlers import Batch, PartialFailure, Rejected
from handlers.rows import is_move
from worker.attempts.steps import SetAside, Step
from worker.formats.interface import Record
from worker.units.work import Work

Place = tuple[int, int]
"""(offset, row)."""
WAYS = ["at", "partly", "partly, rejected", "alone", "error"]
PACKETS = st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=8)
"""For each record, which of its rows move."""


def packet(offset: int, moves: list[bool]) -> Record:
    rows = [{"id": str(offset * 100 + number), "n": "1"} for number in range(len(moves))]
    old = [
        {"id": str(-1 - int(str(row["id"])))} if moved else {"n": "0"}
        for row, moved in zip(rows, moves, strict=True)
    ]
    return record(offset, "a", type="UPDATE", data=rows, old=old)


def decoded(handler: Scripted, packets: list[list[bool]], rule: str) -> tuple[Work, list[list[Place]]]:
    """The batch, and its groups: what has to stay together."""
    table = unit(
        "a", handler, on_failure=rule, retry={"max_attempts": 2, "initial_delay": 1.0, "jitter": 0.0}
    )
    made = work(table, chunk(assignment(), [packet(n, moves) for n, moves in enumerate(packets)]))
    made.runs = runs_of(made)
    groups = []
    for offset, moves in enumerate(packets):
        index = 0
        for moved in moves:
            groups.append([(offset, index + half) for half in range(1 + moved)])
            index += 1 + moved
    assert [place for group in groups for place in group] == [(c.offset, c.index) for c in made.changes or ()]
    return made, groups


def script(bad: dict[Place, str], applied: list[Place]) -> Callable[[Batch], None]:
    """Applies a batch up to its first bad change, and fails at it in that change's way."""

    def handle(batch: Batch) -> None:
        places = [(change.offset, change.index) for change in batch.changes]
        at = next((number for number, place in enumerate(places) if place in bad), None)
        how = "" if at is None else bad[places[at]]
        if at is None or how.startswith("partly"):
            applied.extend(places[:at])
        if at is None:
            return
        if how.startswith("partly"):
            raise PartialFailure(at, Rejected("no") if how.endswith("rejected") else ValueError("no"))
        if how == "error":
            raise ValueError("no")
        raise Rejected("no", at=at if how == "at" else None)

    return handle


@given(data=st.data(), packets=PACKETS, rule=st.sampled_from(["dead_letter", "skip", "halt"]))
def test_both_halves_are_given_and_set_aside_together_however_a_batch_fails(
    data: st.DataObject, packets: list[list[bool]], rule: str
) -> None:
    applied: list[Place] = []
    bad: dict[Place, str] = {}
    handler = Scripted(script(bad, applied))
    made, groups = decoded(handler, packets, rule)
    places = [place for group in groups for place in group]
    bad |= data.draw(st.dictionaries(st.sampled_from(places), st.sampled_from(WAYS)))
    notes = Notes()
    (run,) = made.runs
    last = steps_of(run, made, notes)[-1]

    for batch in handler.batches:
        given_places = {(change.offset, change.index) for change in batch.changes}
        torn = [group for group in groups if 0 < len(given_places & set(group)) < len(group)]
        assert not torn, "half of a row that moves was given alone"
    failing = [group for group in groups if not bad.keys().isdisjoint(group)]
    first = next((place for place, group in enumerate(groups) if group in failing), len(groups))
    good = [place for group in groups if group not in failing for place in group]
    if rule == "halt" and failing:
        assert last is Step.HALT
        assert run.done == sum(map(len, groups[:first])), "it stands at the first half"
        good = [place for group in groups[:first] for place in group]
    else:
        assert last is Step.DONE
        assert run.finished
        assert [
            *notes.letters,
            *((c.offset, c.index) for c in map((made.changes or ()).__getitem__, notes.skips)),
        ] == [group[0] for group in failing], "one letter for both"
    assert [place for place in applied if place in good] == good, "each of the others once, in order"


def test_what_is_ordered_about_a_record_keeps_both_halves_together() -> None:
    handler = Scripted(script({(1, 1): "partly"}, []))
    made, _ = decoded(handler, [[False], [True, False], [True]], "halt")
    made.orders = {1: SetAside("dead_letter", "ann")}
    (run,), notes = made.runs, Notes()
    assert steps_of(run, made, notes)[-1] is Step.DONE
    assert notes.letters == [(1, 0)]
    assert all(not batch.changes[0].moves_key or is_move(*batch.changes[:2]) for batch in handler.batches)
