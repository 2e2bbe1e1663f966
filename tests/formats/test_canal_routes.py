"""Where Canal messages belong, and what is said of those that belong nowhere."""

from __future__ import annotations

import pytest
from canal_messages import Sent, message, without

from worker.formats.canal.format import Canal
from worker.formats.interface import Skip, UndecodableRecord


def test_a_row_message_routes_to_its_table() -> None:
    route = Canal().route(message(table="订单").bytes or b"")
    assert (route.database, route.table, route.alone) == ("shop", "订单", False)


def test_ddl_of_a_table_stands_alone() -> None:
    route = Canal().route(message(isDdl=True, data=None, type="ALTER").bytes or b"")
    assert (route.table, route.alone) == ("orders", True)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Sent(None), "tombstone"),
        (message(isDdl=True, data=None, database="`shop`", table="", type="QUERY"), "database_ddl"),
        (message(isDdl=True, data=None, table=None, type="QUERY"), "database_ddl"),
        (message(data=None, database="", table="", type="TRANSACTIONBEGIN"), "transaction"),
        (message(data=None, database=None, table=None, type="TRANSACTIONEND"), "transaction"),
        (message(data=None, database="shop", table="", type="QUERY"), "transaction"),
        (message(data=None, database="", table="", type="MHEARTBEAT"), "heartbeat"),
    ],
)
def test_a_record_of_no_table_is_skipped_with_its_reason(record: Sent, reason: str) -> None:
    assert Canal().explain(record) == Skip(reason)


def test_backticks_around_a_database_are_no_part_of_its_name() -> None:
    route = Canal().explain(message(isDdl=True, data=None, database="`shop`", type="CREATE"))
    assert not isinstance(route, Skip)
    assert (route.database, route.table, route.alone) == ("shop", "orders", True)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (Sent(b""), "the value is empty"),
        (Sent(b"not json"), r"JSON is malformed: .*\(byte \d+\)"),
        (Sent(b'{"database": "shop", "table": oops}'), r"\(byte 30\)"),
        (Sent(b'["shop"]'), "Expected `object`, got `array`"),
        (Sent(b"\x0a\x08\x08\x01\x10\x00\x18\x01"), r"canal\.mq\.flatMessage = true"),
        (Sent(b'{"type":' + b"[" * 100_000), "no Canal message"),
        (Sent(b'{"x":' + b"[" * 100_000), "nested too deeply"),
        (without("type"), "missing required field `type`"),
        (message(table=["orders"]), r"Expected `str \| null`, got `array` - at `\$.table`"),
        (message(database=""), "table 'orders' without a database"),
    ],
)
def test_what_routes_nowhere_says_what_is_wrong_and_where(record: Sent, said: str) -> None:
    with pytest.raises(UndecodableRecord, match=said):
        Canal().explain(record)


def test_the_time_of_a_record_is_that_of_its_event() -> None:
    assert Canal().source_time_ms(message()) == 1763000000000
    assert Canal().source_time_ms(Sent(None)) is None
    assert Canal().source_time_ms(Sent(b"broken")) is None
