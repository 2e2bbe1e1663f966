"""Tables as they are met: rule, handlers, home lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from building import Scripted, configuration

from worker.attempts.circuit import BoundHandler
from worker.configuration import TableRule
from worker.formats.registry import FormatChoice, NoFormatError
from worker.units.table import home_lane
from worker.units.table_book import TableBook


def test_a_tables_home_lane_is_the_same_in_every_process() -> None:
    """Written out: it must not depend on the process's own seed for hashes."""
    assert [home_lane(name, 16) for name in ("shop.orders", "shop.customers", "shop.订单")] == [10, 14, 4]


def test_home_lanes_are_evenly_used() -> None:
    lanes = Counter(home_lane(f"shop.t{n}", 16) for n in range(16_000))
    assert len(lanes) == 16
    assert min(lanes.values()) > 850
    assert max(lanes.values()) < 1150


@pytest.mark.parametrize("name", ["", "\ud800", "a" * 10_000, "`x`.y"])
def test_any_name_has_a_home(name: str) -> None:
    assert 0 <= home_lane(name, 7) < 7


def test_a_table_is_matched_once_and_by_the_first_rule_that_fits() -> None:
    asked: list[str] = []

    def handlers_of(rule: TableRule) -> Sequence[BoundHandler]:
        asked.append(rule.match)
        return [BoundHandler("h0", (Scripted(),))]

    book = TableBook(configuration({"match": "shop.orders"}, {"match": "shop.*"}), handlers_of)
    orders, again = book.meet("shop", "orders"), book.meet("shop", "orders")
    other = book.meet("shop", "other")
    assert orders is again
    assert orders is not None
    assert other is not None
    assert (orders.table.label, other.table.rule.match) == ("shop.orders", "shop.*")
    assert book.meet("elsewhere", "orders") is None
    assert asked == ["shop.orders", "shop.*"]
    assert book.all() == [orders, other]
    assert orders.lane == home_lane("shop.orders", 16)


def test_tables_whose_names_meet_at_the_dot_are_kept_apart() -> None:
    """`a.b` with table `c`, and `a` with table `b.c`, have one label but are two tables."""
    book = TableBook(configuration(), lambda _: [BoundHandler("h0", (Scripted(),))])
    assert book.meet("a.b", "c") is not book.meet("a", "b.c")


def test_a_handler_with_an_object_for_each_lane_gives_each_its_own() -> None:
    objects = tuple(Scripted() for _ in range(3))
    bound = BoundHandler("h0", objects)
    assert [bound.of(lane) for lane in range(3)] == list(objects)
    shared = BoundHandler("h0", objects[:1])
    assert {shared.of(lane) for lane in range(3)} == {objects[0]}


def test_a_topics_format_is_that_of_the_first_entry_that_matches_it() -> None:
    one = FormatChoice("canal")
    assert one.of("anything").name == "canal"
    assert one.of("a") is one.of("b"), "one reader for each format"
    some = FormatChoice({"cdc.shop": "canal", "^audit[.]": "canal"})
    assert some.of("cdc.shop") is some.of("audit.log")
    for topic in ("cdc.shop2", "xaudit.log", "audits"):
        with pytest.raises(NoFormatError, match=topic):
            some.of(topic)
