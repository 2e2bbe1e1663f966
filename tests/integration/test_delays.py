"""The judge of delays finds what waited for a target that was not its own."""

from __future__ import annotations

from integration.delays import Handled, Outage, too_late

OUTAGES = [Outage("redis", 100.0, 110.0)]


def late(handler: str, sent: float, at: float) -> bool:
    return bool(too_late([Handled(handler, "shop.t", sent, at)], OUTAGES, within=2.0, recovery=1.0))


def test_a_change_must_be_handled_in_time() -> None:
    assert not late("files", 50.0, 52.0)
    assert late("files", 50.0, 52.1)


def test_an_outage_excuses_its_own_target_only() -> None:
    assert not late("redis", 101.0, 112.0)
    assert late("files", 101.0, 112.0)


def test_a_change_on_its_way_when_the_target_goes_is_excused() -> None:
    assert not late("redis", 99.9, 111.0)
    assert late("redis", 90.0, 111.0)


def test_what_was_handled_before_the_outage_is_not_excused_by_it() -> None:
    assert late("redis", 97.0, 99.5)


def test_after_the_recovery_what_waited_must_be_handled_in_time() -> None:
    assert not late("redis", 105.0, 113.0)
    assert late("redis", 105.0, 113.1)
    assert late("redis", 111.5, 114.0)
