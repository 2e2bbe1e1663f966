"""A worker is stopped before one of its storage operations, reads included. Another one takes its tables over
and goes on. Then the first one continues, as after a pause of its machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kill_lab import PHASES, Place, Steps

MakePlace = Callable[..., Place]
_ALL: Steps = [*[["take", number] for number in range(10)], ["merge"], ["tidy"], ["upkeep", 3600.0]]
KINDS = [
    ("replica", "delta"),
    ("changelog", "delta"),
    *((mode, "iceberg") for mode in ("replica", "history")),
]


def overtaken(place: Place, base: Path, phase: int, at: int) -> bool:
    """The other worker does all while the first one is stopped in its phase. False: it has ended before."""
    place.copied(base)
    process, ended = place.begin(PHASES[phase], at=at, kind="STOP", reads=True)
    if ended != "STOP":
        assert ended == "0", place.told
        return False
    where = f"stopped before {place.last_operation}"
    place.check_between()
    place.run(_ALL)
    place.check_end()
    assert place.shifts.go_on(process) == "0", f"{where}: {place.told}"
    place.run(_ALL)
    place.check_end()
    return True


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize("statement", ["ALTER", "TRUNCATE"])
def test_a_statement_of_a_stopped_worker_changes_no_later_rows(
    make_place: MakePlace, format_: str, statement: str
) -> None:
    place, phase = make_place("replica", format_), 1 if statement == "ALTER" else 2
    base = place.until(phase)
    commit = "os.link /lake/shop/orders/_delta_log" if format_ == "delta" else "commit_table"
    operations = place.operations(PHASES[phase], reads=True)
    first = next(at for at, each in enumerate(operations, 1) if each.startswith(commit))
    # Adding a column with a default is two commits. The files of a table are read before it loses them.
    stops = [first + 1] if statement == "ALTER" else [first - 8, first]
    for at in stops:
        assert overtaken(place, base, phase, at)


def test_a_stopped_worker_drops_no_later_table(make_place: MakePlace) -> None:
    place = make_place("replica", batches=12)
    place.run(_ALL)
    base, drop = place.copy(), [["take", 10]]
    operations = place.operations(drop, reads=True)
    first = next(
        at for at, each in enumerate(operations) if each.startswith("os.remove /lake/shop/orders/_delta_log")
    )
    place.copied(base)
    process, ended = place.begin(drop, at=first - 2, kind="STOP", reads=True)
    assert ended == "STOP", place.told
    rows: Steps = [["take", 10], ["take", 11], ["merge"]]
    place.run(rows)
    place.check_end()
    assert place.shifts.go_on(process) == "0", place.told
    place.run(rows)
    place.check_end()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("mode", "format_"), KINDS)
@pytest.mark.parametrize("phase", range(len(PHASES)))
def test_a_worker_is_stopped_before_each_operation(
    make_place: MakePlace, mode: str, format_: str, phase: int
) -> None:
    place, at = make_place(mode, format_), 1
    base = place.until(phase)
    while overtaken(place, base, phase, at):
        at += 1
    assert at > 40 or (place.lacks_statements and phase == 3)
