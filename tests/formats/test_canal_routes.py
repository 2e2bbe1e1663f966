"""Where Canal messages belong, and what is said of those that belong nowhere."""

from __future__ import annotations

import pytest
from canal_messages import message, sent, without
from captured import CapturedRecord

from worker.formats.canal.format import Canal
from worker.formats.decoding import source_time
from worker.formats.interface import PlainRoute, Skip, UndecodableRecord


def test_a_row_message_routes_to_its_table() -> None:
    route = Canal().route(message(table="订单").value() or b"")
    assert (route.database, route.table, route.alone) == ("shop", "订单", False)


def test_ddl_of_a_table_stands_alone() -> None:
    route = Canal().route(message(isDdl=True, data=None, type="ALTER").value() or b"")
    assert (route.table, route.alone) == ("orders", True)


def _unread(sql: str) -> CapturedRecord:
    """A statement that Canal's parser does not understand."""
    return message(isDdl=True, data=None, database="", table="", type="QUERY", sql=sql)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (sent(None), "tombstone"),
        (message(isDdl=True, data=None, database="`shop`", table="", type="QUERY"), "database_ddl"),
        (message(isDdl=True, data=None, table=None, type="QUERY"), "database_ddl"),
        (_unread("CREATE TABLE t (id int)"), "database_ddl"),
        (_unread("CREATE PROCEDURE p() BEGIN DROP TABLE t; END"), "database_ddl"),
        (_unread("CREATE TRIGGER r AFTER INSERT ON t FOR EACH ROW ALTER TABLE ' it's"), "database_ddl"),
        (_unread("ALTER TABLE t ALTER INDEX i INVISIBLE"), "database_ddl"),
        (_unread("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS t"), "database_ddl"),
        (message(data=None, database="", table="", type="TRANSACTIONBEGIN"), "transaction"),
        (message(data=None, database=None, table=None, type="TRANSACTIONEND"), "transaction"),
        (message(data=None, database="shop", table="", type="QUERY"), "transaction"),
        (message(data=None, database="", table="", type="MHEARTBEAT"), "heartbeat"),
        (
            message(data=None, database="", table="", type="TIDB_WATERMARK", _tidb={"watermarkTs": 7}),
            "watermark",
        ),
        (message(data=None, database="", table="orders", type="QUERY", sql="INSERT ..."), "query"),
    ],
)
def test_a_record_of_no_table_is_skipped_with_its_reason(record: CapturedRecord, reason: str) -> None:
    assert Canal().explain(record) == Skip(reason)


def test_backticks_around_a_database_are_no_part_of_its_name() -> None:
    route = Canal().explain(message(isDdl=True, data=None, database="`shop`", type="CREATE"))
    assert not isinstance(route, Skip)
    assert (route.database, route.table, route.alone) == ("shop", "orders", True)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE shop.orders RENAME COLUMN a TO b",
        "SET STATEMENT lock_wait_timeout=5, sql_mode='' FOR TRUNCATE TABLE `shop`.`orders`",
        "ALTER TABLE shop.orders CONVERT PARTITION p0 TO TABLE shop.old",
    ],
)
def test_a_statement_that_canal_does_not_understand_goes_to_the_table_that_it_names(sql: str) -> None:
    assert Canal().explain(_unread(sql)) == PlainRoute("shop", "orders", True)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (sent(b""), "the value is empty"),
        (sent(b"not json"), r"JSON is malformed: .*\(byte \d+\)"),
        (sent(b'{"database": "shop", "table": oops}'), r"\(byte 30\)"),
        (sent(b'["shop"]'), "Expected `object`, got `array`"),
        (sent(b"\x0a\x08\x08\x01\x10\x00\x18\x01"), "neither JSON nor a Canal packet"),
        (sent(b'{"type":' + b"[" * 100_000), "not a Canal message"),
        (sent(b'{"x":' + b"[" * 100_000), "nested too deeply"),
        (without("type"), "missing required field `type`"),
        (message(table=["orders"]), r"Expected `str \| null`, got `array` - at `\$.table`"),
        (message(database=""), "table 'orders' without a database"),
        # As Flink's canal-json writes them.
        (sent(b'{"data":[{"id":7}],"type":"INSERT"}'), "it names no table"),
        (message(database=None, table=None), "it names no table"),
        (
            _unread("ALTER TABLE orders RENAME COLUMN a TO b"),
            "about table 'orders'. Canal could not parse it",
        ),
        (_unread("ALTER TABLE orders VALIDATE"), "a table but cannot be read"),
        (sent(b'{"type":"order_created","order":7}'), "it names no table"),
    ],
)
def test_what_routes_nowhere_says_what_is_wrong_and_where(record: CapturedRecord, said: str) -> None:
    with pytest.raises(UndecodableRecord, match=said):
        Canal().explain(record)


def test_the_time_of_a_record_is_that_of_its_event() -> None:
    assert source_time(Canal(), message()) == 1763000000000
    assert source_time(Canal(), sent(None)) is None
    assert source_time(Canal(), sent(b"broken")) is None
