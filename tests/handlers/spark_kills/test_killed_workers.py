"""A worker is killed before one of its storage operations, or the store refuses some of them. The next one
gets the changes from an earlier position on, in other batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kill_lab import PHASES, Place, Steps, in_a_bucket
from servers.s3_server import S3Server

from handlers.spark.log.stores.interface import FilesError

MakePlace = Callable[..., Place]
_AGAIN: Steps = [
    *(["take", 0, 1], ["take", 2, 3], ["take", 4], ["take", 5, 6, 7], ["take", 8, 9]),
    *(["merge"], ["tidy"], ["merge"], ["upkeep", 0.0]),
]
KINDS = [
    *((mode, "delta") for mode in ("replica", "changelog")),
    *((mode, "iceberg") for mode in ("replica", "history", "changelog")),
]
ERRORS = ("ENOSPC", "EACCES", "EIO")


def killed(place: Place, phase: int, at: int) -> bool:
    """Kill a worker there, and let the next one do all. False: it has ended before."""
    _, ended = place.begin(PHASES[phase], at=at)
    if ended != "KILL":
        assert ended == "0", place.told
        return False
    where = place.last_operation
    place.check_between()
    place.run(_AGAIN)
    place.check_end()
    assert where.startswith(f"{at} ")
    return True


def refused(place: Place, phase: int, at: int, error: str) -> bool:
    """Let some operations fail from there on. The same worker tries again, and the next one does all."""
    _, ended = place.begin(PHASES[phase], at=at, kind=error, span=3, reads=True)
    assert ended == "0", f"{place.last_operation}: {place.told}"
    is_beyond = int(place.last_operation.split()[0]) < at
    place.check_between()
    place.run(_AGAIN)
    place.check_end()
    return not is_beyond


@pytest.mark.parametrize(("mode", "format_"), [("replica", "delta"), ("history", "iceberg")])
def test_a_worker_is_killed_before_some_operations(make_place: MakePlace, mode: str, format_: str) -> None:
    place = make_place(mode, format_)
    base = place.until(1)
    for at in (7, 31):
        place.copied(base)
        assert killed(place, 1, at)


def test_a_truncate_is_done_by_hand_if_a_power_loss_has_emptied_its_commit(make_place: MakePlace) -> None:
    """Somebody has done what the message says."""
    place = make_place("replica")
    place.run([*PHASES[0], *PHASES[1], ["take", 5], ["merge"], ["tidy"], ["take", 6], ["merge"]])
    log = Path(place.lake, "shop/orders/_delta_log")
    newest = f"{DeltaTable(log.parent).version():020d}.json"
    (log / newest).write_text("")
    with pytest.raises(FilesError, match=rf"{newest} is empty.*remove it.*TRUNCATE.*by hand"):
        place.view()
    (log / newest).unlink()
    DeltaTable(log.parent).delete()
    place.run(_AGAIN)
    place.check_end()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("mode", "format_"), KINDS)
@pytest.mark.parametrize("phase", range(len(PHASES)))
def test_a_worker_is_killed_before_each_operation(
    make_place: MakePlace, mode: str, format_: str, phase: int
) -> None:
    place, at = make_place(mode, format_), 0
    base, is_killed = place.until(phase), True
    while is_killed:
        at += 1
        place.copied(base)
        is_killed = killed(place, phase, at)
    assert at > 5


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_a_worker_is_killed_before_each_request_of_a_bucket(
    make_place: MakePlace, s3: S3Server, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    base, at, is_killed = make_place(mode).until(1), 0, True
    while is_killed:
        at += 1
        is_killed = killed(in_a_bucket(make_place, s3, mode, "delta", base), 1, at)
    assert at > 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("mode", "format_"), KINDS)
@pytest.mark.parametrize("phase", range(len(PHASES)))
def test_a_store_refuses_each_operation(make_place: MakePlace, mode: str, format_: str, phase: int) -> None:
    place, at = make_place(mode, format_), 0
    base, is_reached = place.until(phase), True
    while is_reached:
        at += 1
        place.copied(base)
        is_reached = refused(place, phase, at, ERRORS[at % len(ERRORS)])
    assert at > 5
