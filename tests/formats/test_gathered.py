"""Tables of several databases as tables of one: rows with equal keys stay apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pytest
from canal_messages import message, row
from canal_packets import packet, sent
from canal_packets import row as packet_row
from canal_packets import rows as packet_rows
from captured import CapturedRecord
from debezium_messages import connect, ddl, definition, envelope, record, with_schema
from delta_reading import read_delta
from pyspark.sql import SparkSession
from spark_sessions import SHARED, SparkKeeper
from structlog.testing import capture_logs

from handlers import Batch, Change
from handlers.spark import SparkHandler
from handlers.testing import opened
from handlers.values.native_types import NativeTypes, SchemaTypes
from worker.column_rules.applying import bring_under
from worker.column_rules.plan import ShownBehind
from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.fetching.barrier_tables import may_name
from worker.formats.decoding import many_of
from worker.formats.gathered import DatabasesRule, Gathered
from worker.formats.interface import Apart, Format, NamesSchemas, SeparateDDL, Skip, UndecodableRecord
from worker.formats.registry import get
from worker.processes.given import Noting

RULES = {"shops": {"match": "shop_*.*", "column": "tenant"}}
POSTGRESQL = {"connector": "postgresql", "db": "crm", "schema": "shop_1", "lsn": 7}


def of(name: str, rules: Mapping[str, Any] = RULES) -> Format:
    return Gathered(get(name), {into: DatabasesRule.model_validate(rule) for into, rule in rules.items()})


def decoded(format_: Format, *records: CapturedRecord) -> list[Change]:
    """What they are as a batch of one table, as a worker decodes them."""
    changes: list[Change] = []
    left, ends = iter(records), list[int]()
    table = ".".join(placed(format_, records[0])[:2])
    while (one := many_of(format_)(table, left, changes, ends)) is not None:
        format_.decode(one, changes)
        ends.append(len(changes))
    return changes


def placed(format_: Format, one: CapturedRecord) -> tuple[str, str, bool]:
    fast, slow = format_.route(one.value() or b""), format_.explain(one)
    assert not isinstance(slow, Skip | Apart)
    found = {(each.database, each.table, each.alone) for each in (fast, slow)}
    assert len(found) == 1
    return found.pop()


def of_shop(number: int, **fields: Any) -> CapturedRecord:
    return message(database=f"shop_{number}", **fields)


def test_rows_of_each_database_have_its_name_in_their_key() -> None:
    canal = of("canal")
    changed = of_shop(2, type="UPDATE", old=[{"total": "1.00"}])
    gone = of_shop(2, type="DELETE")
    assert placed(canal, gone) == ("shops", "orders", False)
    one, two, updated, deleted = decoded(canal, of_shop(1), of_shop(2), changed, gone)
    assert (one.key, two.key) == ({"tenant": "shop_1", "id": 7}, {"tenant": "shop_2", "id": 7})
    assert updated.before is not None
    assert {row["tenant"] for row in (updated.before, updated.after or {}, deleted.before or {})} == {
        "shop_2"
    }
    assert list(two.after or {})[:2] == ["tenant", "id"]
    assert one.types == {"tenant": "varchar(255)", **(one.types or {})}
    assert deleted.key == two.key


def test_a_row_that_gets_another_key_stays_in_its_database() -> None:
    moved = of_shop(1, type="UPDATE", old=[{"id": "6"}])
    gone, made = decoded(of("canal"), moved)
    assert (gone.op, gone.key, made.op, made.key) == (
        *("delete", {"tenant": "shop_1", "id": 6}, "insert", {"tenant": "shop_1", "id": 7}),
    )


def test_other_databases_stay_as_they_are() -> None:
    canal = of("canal")
    assert placed(canal, message()) == ("shop", "orders", False)
    assert decoded(canal, message()) == decoded(get("canal"), message())
    truncated = message(type="TRUNCATE", isDdl=True, sql="TRUNCATE TABLE orders", data=None)
    assert placed(canal, truncated) == ("shop", "orders", True)
    assert [each.op for each in decoded(canal, truncated)] == ["truncate"]


def test_a_database_with_the_name_of_all_is_one_of_them() -> None:
    canal = of("canal")
    [one] = decoded(canal, message(database="shops"))
    assert one.key == {"tenant": "shops", "id": 7}


def test_a_table_without_a_key_has_none_afterwards() -> None:
    one, two = decoded(of("canal"), of_shop(1, pkNames=None), of_shop(2, pkNames=None))
    assert (one.key_columns, two.key_columns) == (None, None)
    assert [(each.after or {})["tenant"] for each in (one, two)] == ["shop_1", "shop_2"]


def test_no_statement_changes_what_other_databases_share() -> None:
    dropped = of_shop(1, type="ERASE", isDdl=True, sql="DROP TABLE orders /* secret */", data=None)
    canal = of("canal")
    assert placed(canal, dropped) == ("shops", "orders", True)
    with capture_logs() as logs:
        assert [each.op for each in decoded(canal, of_shop(1), dropped, of_shop(2))] == ["insert", "insert"]
    [told] = logs
    assert (told["event"], told["table"]) == ("gathered_statement_skipped", "shop_1.orders")
    assert "secret" not in repr(told)


def test_a_truncate_of_one_database_is_an_error() -> None:
    canal, changes = of("canal"), [decoded(of("canal"), of_shop(1))[0]]
    emptied = of_shop(1, type="TRUNCATE", isDdl=True, sql="TRUNCATE TABLE orders", data=None)
    with pytest.raises(UndecodableRecord, match=r"TRUNCATE of shop_1\.orders"):
        canal.decode(emptied, changes)
    with pytest.raises(UndecodableRecord, match="TRUNCATE"):
        of("debezium").decode(record(envelope("t", at={"db": "shop_1"})), changes)
    assert len(changes) == 1


@pytest.mark.parametrize("name", ["tenant", "TENANT"])
def test_a_column_of_that_name_is_an_error(name: str) -> None:
    changes: list[Change] = []
    one = row(**{name: "x"})
    whole = replace(one, value_=(one.value() or b"").replace(b'"shop"', b'"shop_1"'))
    with pytest.raises(UndecodableRecord, match=r"already has a column tenant: set databases\.column"):
        of("canal").decode(whole, changes)
    assert changes == []


def test_a_column_that_one_database_lacks_is_not_dropped_in_the_others() -> None:
    columns = {"id": connect("int64"), "note": connect("string")}
    debezium = of("debezium")
    own = with_schema(envelope(at=POSTGRESQL), columns)
    [plain] = decoded(get("debezium"), record(own, {"id": 7}))
    assert isinstance(plain.types, SchemaTypes)
    one, two = decoded(debezium, record(own, {"id": 7}), record(own, {"id": 7}))
    assert type(one.types) is NativeTypes
    assert one.types == {"tenant": "varchar(255)", **plain.types}
    assert list(one.after or {}) == ["tenant", "id", "note"]
    assert two.key_columns == one.key_columns


def test_rows_of_all_databases_have_the_columns_of_each() -> None:
    """Or each row that comes after one of another database would be a commit of its own."""
    wider = {"data": [{"id": "7", "Total": "2.00", "more": "1"}]}
    types = {"id": "bigint", "Total": "decimal(12,2)", "more": "int"}
    sent = [of_shop(1), *(of_shop(2, **wider, mysqlType=types), of_shop(1)) * 9]
    first, *changes = decoded(of("canal"), *sent)
    assert "more" not in (first.types or {})
    assert [len(list(group)) for _, group in groupby(changes, _columns)] == [18]
    assert changes[0].types == {"tenant": "varchar(255)", **types, "note": "varchar(20)"}
    assert changes[1].types == {**(first.types or {}), "more": "int"}
    assert (changes[1].after, changes[1].lacks) == (first.after, first.lacks)
    [other] = decoded(of("canal", {**RULES, "x": {"match": "y.*"}}), message(database="y", table="orders"))
    assert "more" not in (other.types or {})


def test_rows_without_a_column_have_its_present_type() -> None:
    """Else each is merged apart, and a target that is created with them gets a type too narrow for others."""
    canal = of("canal")
    kinds = [None, "int", None, "bigint", None, "bigint", None]
    sent = [
        of_shop(1)
        if kind is None
        else of_shop(2, data=[{"id": "7", "more": "1"}], mysqlType={"id": "bigint", "more": kind})
        for kind in kinds
    ]
    told = [(change.types or {}).get("more") for change in decoded(canal, *sent)]
    assert told == [None, "int", "int", "bigint", "bigint", "bigint", "bigint"]


def _columns(change: Change) -> list[str]:
    return sorted(name.lower() for name in change.types or {})


def test_optional_methods_are_those_of_the_format() -> None:
    for name in ("canal", "debezium", "maxwell", "dts"):
        plain, gathered = get(name), of(name)
        for kind in (SeparateDDL, NamesSchemas):
            assert isinstance(gathered, kind) == isinstance(plain, kind)


def test_the_tables_of_a_statement_are_known_where_children_decode() -> None:
    """Children learn definitions from what wraps such a format."""
    told = {"type": "ALTER", "id": '"shop_1"."people"', "table": definition({"id": "bigint"})}
    renamed = ddl("RENAME TABLE shop_1.users TO shop_1.people", told, database="shop_1")
    noting = cast(Format, Noting(of("debezium"), []))
    made = Configuration.model_validate({**CONFIGURED, "databases": RULES})
    named = [may_name(noting, renamed, "shops", f"shops.{name}", made) for name in ("users", "people", "a")]
    assert named == [True, True, False]


CONFIGURED = {
    "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["cdc"]},
    "tables": [{"match": "shops.*", "handlers": [{"type": "log"}]}],
}


def test_a_configuration_names_them() -> None:
    made = Configuration.model_validate(
        {**CONFIGURED, "databases": {"shops": {**RULES["shops"], "match": r"/shop_[0-9]\.orders/"}}}
    )
    [one] = decoded(formats_of(made).of("cdc"), of_shop(1))
    assert one.key == {"tenant": "shop_1", "id": 7}
    [same] = decoded(formats_of(made).of("cdc"), message(database="shop_10"))
    assert same.key == {"id": 7}


def test_rows_of_a_packet_have_growing_indexes() -> None:
    """Targets pass over a change whose index is below that of one that they have."""
    canal, changes = of("canal"), list[Change]()
    entries = (
        packet_rows("orders", packet_row({"id": str(id)}), database=f"shop_{number}")
        for number, id in ((1, 1), (2, 1), (1, 2), (2, 2))
    )
    found = canal.explain(sent(packet(*entries)))
    assert isinstance(found, Apart)
    for route, value in found.parts:
        assert (route.database, route.table) == ("shops", "orders")
        canal.decode(sent(value), changes)
    assert [tuple((each.after or {}).values()) for each in changes] == [
        *(("shop_1", 1), ("shop_2", 1), ("shop_1", 2), ("shop_2", 2))
    ]
    indexes = [each.index for each in changes]
    assert indexes == sorted(set(indexes))


LOG = {"handlers": [{"type": "log"}]}
HIDING: list[dict[str, Any]] = [
    {"match": "shops.users", "columns": {"include": ["tenant", "id", "name"]}, **LOG},
    {
        "match": "shops.masked",
        "columns": {"include": ["id", "name", "ssn"], "mask": {"ssn": "redact"}},
        **LOG,
    },
    {"match": "shop*.excluded", "columns": {"exclude": ["ssn"]}, **LOG},
    {"match": "*", **LOG},
]


@pytest.mark.parametrize(
    ("database", "table", "sql"),
    [
        ("shop_1", "people", "RENAME TABLE users TO people"),
        ("shop_1", "people", "RENAME TABLE SHOP_1.USERS TO people"),
        ("shop_2", "users", "RENAME TABLE shop_2.people TO shop_2.users"),
        ("crm", "users", "RENAME TABLE shop_1.users TO crm.users"),
        ("shop_1", "users", "RENAME TABLE crm.users TO shop_1.users"),
        ("shop_1", "excluded", "ALTER TABLE excluded RENAME COLUMN ssn TO name"),
        ("shop_1", "masked", "ALTER TABLE masked DROP name, RENAME COLUMN ssn TO name"),
        ("SHOP_1", "MASKED", "ALTER TABLE MASKED DROP name, RENAME COLUMN ssn TO name"),
    ],
)
def test_a_statement_after_which_rows_show_what_is_hidden_is_refused(
    database: str, table: str, sql: str
) -> None:
    made = Configuration.model_validate({**CONFIGURED, "tables": HIDING, "databases": RULES})
    canal = formats_of(made).of("cdc")
    statement = message(database=database, table=table, type="RENAME", isDdl=True, sql=sql, data=None)
    where, name, _ = placed(canal, statement)
    rule = made.rule_for(f"{where}.{name}")
    assert rule is not None

    def handed_on() -> None:
        changes = list[Change]()
        canal.decode(statement, changes)
        bring_under(rule.row_rules, rule.statement_rules, changes, 0, database=where, table=name)

    with pytest.raises(ShownBehind):
        handed_on()


@pytest.mark.parametrize("database", ["shop_1", "SHOP_1"])
def test_a_statement_in_capitals_that_no_other_rule_matches_is_refused(database: str) -> None:
    made = Configuration.model_validate({**CONFIGURED, "tables": HIDING[:-1], "databases": RULES})
    canal, sql = formats_of(made).of("cdc"), "ALTER TABLE MASKED DROP name, RENAME COLUMN ssn TO name"
    statement = message(database=database, table="MASKED", type="ALTER", isDdl=True, sql=sql, data=None)
    assert placed(canal, statement) == ("shops", "masked", True)
    with pytest.raises(ShownBehind):
        canal.decode(statement, [])


@pytest.mark.parametrize(
    ("table", "sql"),
    [
        ("orders", "RENAME TABLE shop_1.items TO shop_1.orders"),
        ("users", "ALTER TABLE users ADD COLUMN a int"),
        ("masked", "ALTER TABLE masked DROP COLUMN name"),
        ("users", "ALTER TABLE users ADD COLUMN tenant int"),
    ],
)
def test_other_statements_are_skipped_under_rules_too(table: str, sql: str) -> None:
    made = Configuration.model_validate({**CONFIGURED, "tables": HIDING, "databases": RULES})
    statement = message(database="shop_1", table=table, type="ALTER", isDdl=True, sql=sql, data=None)
    assert decoded(formats_of(made).of("cdc"), statement) == []


def test_a_statement_is_under_the_rules_of_its_time() -> None:
    made = Configuration.model_validate({**CONFIGURED, "tables": HIDING, "databases": RULES})
    present = [made]
    canal = formats_of(made, present=lambda: present[0]).of("cdc")
    sql = "RENAME TABLE users TO people"
    renamed = message(database="shop_1", table="people", type="RENAME", isDdl=True, sql=sql, data=None)
    with pytest.raises(ShownBehind):
        canal.decode(renamed, [])
    same = [{**HIDING[0], "match": "shops.people"}, *HIDING]
    present[0] = Configuration.model_validate({**CONFIGURED, "tables": same, "databases": RULES})
    canal.decode(renamed, [])


@pytest.mark.parametrize("match", ["", "shop_1", "/(/"])
def test_an_unusable_pattern_is_refused(match: str) -> None:
    with pytest.raises(ValueError, match="match"):
        Configuration.model_validate({**CONFIGURED, "databases": {"shops": {"match": match}}})


def test_a_replica_of_several_databases_has_the_rows_of_each(
    spark_keeper: SparkKeeper, tmp_path: Path
) -> None:
    spark_keeper.get()
    canal = of("canal", {"shops": {"match": "shop_*.orders"}})
    total = {"data": [{"id": "7", "total": "2.00", "note": "two"}]}
    extra = {
        "data": [{"id": "8", "total": "3.00", "note": None, "more": "1"}],
        "mysqlType": {"id": "bigint", "total": "decimal(10,2)", "note": "varchar(20)", "more": "int"},
    }
    sent = [
        *(of_shop(1), of_shop(2), of_shop(3), of_shop(2, type="UPDATE", old=[{"total": "1"}], **total)),
        *(
            of_shop(1, type="DELETE"),
            of_shop(3, **extra),
            of_shop(2, data=[{"id": "9", "total": "1.00", "note": None}]),
        ),
    ]
    numbered = [replace(each, offset_=offset) for offset, each in enumerate(sent)]
    with opened(SparkHandler(mode="replica"), tmp_path, spark=SHARED) as handler:
        for each in numbered:
            batch = Batch("shops.orders", decoded(canal, each), database="shops", name="orders")
            handler.handle(batch)
    path = tmp_path / "lake/shops/orders"
    told = ("source_database", "id", "note", "more")
    rows = [tuple(row.values()) for row in read_delta(path, ", ".join(told))]
    by_spark = SparkSession.builder.getOrCreate().read.format("delta").load(str(path)).select(*told).collect()
    assert sorted(rows, key=repr) == sorted(map(tuple, by_spark), key=repr)
    assert sorted(rows, key=repr) == [
        ("shop_2", 7, "two", None),
        ("shop_2", 9, None, None),
        ("shop_3", 7, None, None),
        ("shop_3", 8, None, 1),
    ]
