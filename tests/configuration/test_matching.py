"""Which tables and topics a pattern takes."""

from __future__ import annotations

import time

import pytest

from handlers.options.matching import PatternError, table_matcher, topic_matcher


@pytest.mark.parametrize(
    ("pattern", "table", "taken"),
    [
        ("shop.orders", "shop.orders", True),
        ("shop.orders", "shop.orders_old", False),
        ("shop.orders", "Shop.Orders", False),
        ("shop.*", "shop.orders", True),
        ("shop.*", "shop2.orders", False),
        ("*", "shop.orders", True),
        ("*.orders", "shop.eu.orders", True),
        ("shop_?.orders", "shop_1.orders", True),
        ("shop_?.orders", "shop_12.orders", False),
        ("shop_[0-9].*", "shop_7.x", True),
        ("shop_[!0-9].*", "shop_7.x", False),
        ("shop.order+", "shop.orderr", False),
        (r"/shop\..*/", "shop.orders", True),
        (r"/shop\.orders/", "shop.orders_old", False),
        (r"/shop\.orders/", "myshop.orders", False),
        (r"/shop\.(a|b)/", "shop.b", True),
        (r"/(?i)shop\.a/", "SHOP.A", True),
    ],
)
def test_a_pattern_takes_whole_names(pattern: str, table: str, taken: bool) -> None:
    assert table_matcher(pattern)(table) is taken


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [("orders", "*.orders"), ("/shop", "/shop/"), ("/", "/"), ("//", "/"), ("", None), ("/(/", None)],
)
def test_a_pattern_that_no_table_can_match_is_refused(pattern: str, nearest: str | None) -> None:
    with pytest.raises(PatternError) as caught:
        table_matcher(pattern)
    assert caught.value.nearest == nearest


def test_an_expression_sees_no_name_that_is_longer_than_any_table_may_have() -> None:
    """Its time grows with the name, which whoever writes into the topics chooses."""
    matches = table_matcher(r"/(.|..)*\.x?y?/")
    assert matches("a" * 510 + ".")
    began = time.thread_time()
    assert not matches("a" * 10_000_000 + ".")
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    ("pattern", "topic", "taken"),
    [
        ("cdc.shop", "cdc.shop", True),
        ("cdc.shop", "cdcxshop", False),
        ("^cdc\\.", "cdc.shop", True),
        ("^cdc\\.", "my.cdc.shop", False),
        ("^cdc$", "cdc.shop", False),
    ],
)
def test_a_topic_is_a_name_or_an_expression_that_begins_with_a_caret(
    pattern: str, topic: str, taken: bool
) -> None:
    assert topic_matcher(pattern)(topic) is taken


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [("cdc.*", "^cdc.*"), ("a b", None), ("", None), (".", None), ("a" * 250, None), ("^(", None)],
)
def test_a_name_that_kafka_does_not_allow_is_refused(pattern: str, nearest: str | None) -> None:
    with pytest.raises(PatternError) as caught:
        topic_matcher(pattern)
    assert caught.value.nearest == nearest
