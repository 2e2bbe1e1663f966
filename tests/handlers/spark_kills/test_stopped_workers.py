"""A worker is stopped before one of its storage operations, reads included. Another one takes its tables over
and goes on. Then the first one continues, as after a pause of its machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kill_lab import PHASES, Place, Steps, in_a_bucket
from servers.s3_server import S3Server

MakePlace = Callable[..., Place]
KINDS = [
    *((mode, "delta") for mode in ("replica", "changelog")),
    *((mode, "iceberg") for mode in ("replica", "history", "changelog")),
]


def overtaken(place: Place, base: Path, steps: Steps, at: int, *, first: int = 0) -> bool:
    """The other worker does all, from a batch on, while the first one is stopped in its steps. False: that
    one has ended before."""
    place.copied(base)
    return taken_over(place, steps, at, first=first)


def taken_over(place: Place, steps: Steps, at: int, *, first: int = 0) -> bool:
    """The same, from what the place has now on."""
    rest: Steps = [
        *[["take", number] for number in range(first, 10)],
        ["merge"],
        ["tidy"],
        ["upkeep", 3600.0],
    ]
    process, ended = place.begin(steps, at=at, kind="STOP", reads=True)
    if ended != "STOP":
        assert ended == "0", place.told
        return False
    where = f"stopped before {place.last_operation}"
    place.check_between()
    place.run(rest)
    place.check_end()
    assert place.shifts.go_on(process) == "0", f"{where}: {place.told}"
    place.run(rest)
    place.check_end()
    return True


def test_a_default_of_a_stopped_worker_replaces_no_later_values(make_place: MakePlace) -> None:
    """To add a column with a default is two commits. What waits is merged before."""
    place = make_place("replica")
    base = place.until(1)
    commits = place.places_of("os.link /lake/shop/orders/_delta_log", PHASES[1])
    assert overtaken(place, base, PHASES[1], commits[1] + 1)


def test_a_truncate_of_a_stopped_worker_removes_no_later_rows(make_place: MakePlace) -> None:
    """The table knows only the last statement, and another one came after it."""
    place, truncate = make_place("replica", "iceberg"), [["take", 6]]
    place.run([*PHASES[0], ["take", 2], ["take", 3], ["merge"]])
    base = place.copy()
    [commit] = place.places_of("commit_table", truncate)
    place.copied(base)
    looks = [at for at in place.places_of("load_table", truncate) if at < commit]
    assert overtaken(place, base, truncate, looks[-1], first=6)


_DROP: Steps = [["take", 10]]
_MADE_AGAIN: Steps = [["take", 10], ["take", 11], ["merge"], ["tidy"]]


def dropped(make_place: MakePlace) -> tuple[Place, Path]:
    """A table whose DROP comes next."""
    place = make_place("replica", batches=12)
    place.run([step for steps in PHASES for step in steps])
    return place, place.copy()


def drops_no_later_table(place: Place, base: Path, at: int) -> bool:
    """A worker is stopped in a DROP, while another one goes on with it and makes the table again. False: it
    has ended before."""
    place.copied(base)
    process, ended = place.begin(_DROP, at=at, kind="STOP", reads=True)
    if ended != "STOP":
        assert ended == "0", place.told
        return False
    where = f"stopped before {place.last_operation}"
    place.run(_MADE_AGAIN)
    place.check_end()
    ended = place.shifts.go_on(process)
    assert ended == "0" or "Java" in place.told, f"{where}: {place.told}"  # the table is gone as it looks
    place.run(_MADE_AGAIN)
    place.check_end()
    return True


def test_a_stopped_worker_drops_no_later_table(make_place: MakePlace) -> None:
    place, base = dropped(make_place)
    [move] = place.places_of("rename", _DROP)
    for at in (move, move + 4):
        assert drops_no_later_table(place, base, at)


def test_a_dropped_table_needs_no_spark(make_place: MakePlace) -> None:
    """Nor does a folder that a writer of a dropped table has made again. This test has no Java."""
    place, _ = dropped(make_place)
    place.run([*_DROP, ["upkeep", 0.0]])
    Path(place.lake, "shop/orders/_delta_log").mkdir(parents=True)
    place.run([["merge"], ["upkeep", 0.0], ["let_go"]])
    place.run(_MADE_AGAIN)
    place.check_end()


def test_a_stopped_worker_rejects_no_row_for_the_files_of_another_one(make_place: MakePlace) -> None:
    """It was about to look whether the table's place is free."""
    place = make_place("replica")
    for at in place.places_of("os.scandir /lake/shop/orders", [["take", 0]]):
        place.forget()
        place.folder.mkdir()
        assert taken_over(place, [["take", 0]], at)


def test_a_stopped_worker_makes_no_dropped_table_again(make_place: MakePlace) -> None:
    """It was about to make the table, whose DROP another worker has followed by then."""
    place = make_place("replica", batches=12)
    at = place.places_of("os.mkdir /lake/shop/orders", PHASES[0])[0]
    place.forget()
    process, ended = place.begin(PHASES[0], at=at, kind="STOP", reads=True)
    assert ended == "STOP", place.told
    place.run([*[["take", number] for number in range(11)], ["merge"], ["tidy"]])
    assert place.shifts.go_on(process) == "0", place.told
    assert not place.table_rows()
    place.run(_MADE_AGAIN)
    place.check_end()


def test_a_stopped_worker_takes_no_table_back_that_another_one_has_made_since(make_place: MakePlace) -> None:
    """It has made the table, and was about to look whether that was dropped before."""
    place, steps = make_place("replica", batches=12), [["take", 0], ["merge"]]
    at = place.places_of("os.scandir /lake/_binlane/shop/orders/pending/_table", steps)[-1]
    place.forget()
    process, ended = place.begin(steps, at=at, kind="STOP", reads=True)
    assert ended == "STOP", place.told
    rest: Steps = [*[["take", number] for number in range(12)], ["merge"], ["tidy"]]
    place.run(rest)
    place.check_end()
    assert place.shifts.go_on(process) == "0", place.told
    place.check_end()
    place.run(rest)
    place.check_end()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_worker_is_stopped_before_each_operation_of_a_drop(make_place: MakePlace) -> None:
    place, base = dropped(make_place)
    at = 1
    while drops_no_later_table(place, base, at):
        at += 1
    assert at > 40


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("mode", "format_"), KINDS)
@pytest.mark.parametrize("phase", range(len(PHASES)))
def test_a_worker_is_stopped_before_each_operation(
    make_place: MakePlace, mode: str, format_: str, phase: int
) -> None:
    place, at = make_place(mode, format_), 1
    base = place.until(phase)
    while overtaken(place, base, PHASES[phase], at):
        at += 1
    assert at > 40 or (place.lacks_statements and phase == 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["replica", "changelog"])
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_worker_is_stopped_before_each_request_of_a_bucket(
    make_place: MakePlace, s3: S3Server, monkeypatch: pytest.MonkeyPatch, mode: str, format_: str
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    base = make_place(mode).until(1) if format_ == "delta" else None
    at = 1
    while taken_over(in_a_bucket(make_place, s3, mode, format_, base), PHASES[1], at):
        at += 1
    assert at > 40
