"""Columns dropped and retyped at a source that writes no DDL: the schemas of its records tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from sql_lab import SqlLab

from handlers import Batch, Rejected
from handlers.testing import make_batch
from handlers.values.native_types import NativeType, SchemaTypes
from worker.column_rules.row_rules import RowRules
from worker.column_rules.settings import ColumnRules

FIRST = SchemaTypes({"id": "int", "gone": "longtext", "n": "int"})
SECOND = SchemaTypes({"id": "int", "n": "longtext", "added": "int"})
MakeLab = Callable[[str], SqlLab]
TIME_MS = 1_750_000_000_000


def batch(
    types: SchemaTypes,
    *rows: Mapping[str, Any],
    offset: int = 0,
    later: int = 0,
    op: str = "insert",
    **fields: Any,
) -> Batch:
    """`later`: milliseconds after the first one."""
    made = [{"op": op, "before": None, "after": dict(row), "source_time_ms": TIME_MS + later} for row in rows]
    return make_batch("shop.orders", made, key="id", types=types, offset=offset, **fields)


def together(*batches: Batch) -> Batch:
    changes = [change for each in batches for change in each.changes]
    return Batch("shop.orders", changes, database="shop", name="orders")


def columns(lab: SqlLab) -> list[str]:
    schema, name = lab.naming.target("shop", "orders")
    return sorted(one["name"] for one in sa.inspect(lab.engine).get_columns(name, schema=schema))


def type_of(lab: SqlLab, column: str) -> str:
    schema, name = lab.naming.target("shop", "orders")
    found = sa.inspect(lab.engine).get_columns(name, schema=schema)
    return next(str(one["type"]) for one in found if one["name"] == column)


BEFORE = batch(FIRST, {"id": 1, "gone": "x", "n": 1}, {"id": 2, "gone": "y", "n": 2})
AFTER = batch(SECOND, {"id": 2, "n": "two", "added": 5}, offset=2)


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_schema_that_lacks_a_column_drops_it_and_another_type_retypes(
    sql: SqlLab, is_one_batch: bool
) -> None:
    batches = [together(BEFORE, AFTER)] if is_one_batch else [BEFORE, AFTER]
    for _ in range(2):  # the second time by another process, which finds all of it done
        with sql.handler() as handler:
            for each in batches:
                handler.handle(each)
        assert columns(sql) == ["added", "id", "n"]
        assert sql.rows() == [{"id": 1, "n": "1", "added": None}, {"id": 2, "n": "two", "added": 5}]


def test_a_worker_that_died_before_it_wrote_down_what_it_did_goes_on(sql: SqlLab) -> None:
    """MySQL ends a transaction at each ALTER TABLE."""
    with sql.handler() as handler:
        handler.handle(BEFORE)
        [(before,)] = sql.run("SELECT seen_columns FROM binlane_marks WHERE seen_columns IS NOT NULL")
        handler.handle(AFTER)
    with sql.engine.begin() as connection:
        update = "UPDATE binlane_marks SET seen_columns = :text WHERE seen_columns IS NOT NULL"
        connection.execute(sa.text(update), {"text": before})
    with sql.handler() as handler:
        handler.handle(batch(SECOND, {"id": 3, "n": "three", "added": 6}, offset=3))
    assert columns(sql) == ["added", "id", "n"]
    assert sql.rows()[-1] == {"id": 3, "n": "three", "added": 6}


def test_records_of_an_earlier_schema_bring_nothing_back(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(BEFORE)
        handler.handle(batch(SECOND, {"id": 2, "n": "two", "added": 5}, offset=2, later=10))
    with sql.handler() as handler:
        # From another partition, which is read more slowly; and as a dead letter.
        handler.handle(batch(FIRST, {"id": 3, "gone": "z", "n": 3}, later=5, partition=1))
        replayed = batch(FIRST, {"id": 4, "gone": "z", "n": 4}, later=20, partition=1, offset=1)
        replayed.replay_of = ("cdc", 0, 1)
        handler.handle(replayed)
        assert columns(sql) == ["added", "id", "n"]
        assert sql.rows()[2:] == [
            {"id": 3, "n": "3", "added": None},
            {"id": 4, "n": "4", "added": None},
        ]
        # But one that the source has again is back.
        again = SchemaTypes({"id": "int", "gone": "int", "n": "longtext", "added": "int"})
        row = {"id": 5, "gone": 5, "n": "five", "added": 6}
        handler.handle(batch(again, row, later=30, partition=1, offset=2))
        assert columns(sql) == ["added", "gone", "id", "n"]


def test_what_one_worker_dropped_another_one_does_not_bring_back(sql: SqlLab) -> None:
    """Each reads a partition, and one of them is behind."""
    with sql.handler() as ahead, sql.handler() as behind:
        ahead.handle(BEFORE)
        for offset in range(2):  # the second time it knows the schema
            row = {"id": 7, "gone": "x", "n": 1}
            behind.handle(batch(FIRST, row, partition=1, offset=offset))
        ahead.handle(batch(SECOND, {"id": 2, "n": "two", "added": 5}, offset=2, later=10))
        behind.handle(batch(FIRST, {"id": 8, "gone": "x", "n": 1}, partition=1, offset=2, later=5))
        assert columns(sql) == ["added", "id", "n"]
        assert sql.rows()[-1] == {"id": 8, "n": "1", "added": None}


def test_what_only_a_snapshot_had_is_not_dropped(make_sql: MakeLab) -> None:
    """So do generated columns look: the log has nothing of them."""
    lab = make_sql("postgres")
    logged = SchemaTypes({"id": "int", "n": "int"})
    with lab.handler() as handler:
        handler.handle(batch(FIRST, {"id": 1, "gone": "x", "n": 1}, op="snapshot"))
        handler.handle(batch(logged, {"id": 2, "n": 2}, offset=1))
        handler.handle(batch(SchemaTypes({"id": "int"}), {"id": 3}, offset=2))
    assert columns(lab) == ["gone", "id"]


def test_what_a_switch_keeps_and_what_is_of_the_users_own_stays(sql: SqlLab) -> None:
    sql.make(
        "shop.orders", "id int PRIMARY KEY, gone varchar(40), n decimal(12,3), mine varchar(9) DEFAULT 'm'"
    )
    chosen = type_of(sql, "n")
    with sql.handler(ddl={"drop_columns": False}) as handler:
        handler.handle(BEFORE)
        handler.handle(batch(SECOND, {"id": 2, "n": "7", "added": 5}, offset=2))
    assert columns(sql) == ["added", "gone", "id", "mine", "n"]
    assert type_of(sql, "n") == chosen
    assert [(row["id"], float(row["n"]), row["mine"]) for row in sql.rows()] == [(1, 1.0, "m"), (2, 7.0, "m")]


@pytest.mark.parametrize("mode", ["replica", "history"])
def test_a_column_that_a_switch_keeps_is_not_the_next_one_of_its_name(sql: SqlLab, mode: str) -> None:
    again = batch(SchemaTypes({"id": "int", "gone": "longtext"}), {"id": 4, "gone": "z"}, offset=3, later=9)
    with sql.handler(mode=mode, ddl={"drop_columns": False}) as handler:
        handler.handle(BEFORE)
        handler.handle(batch(SchemaTypes({"id": "int"}), {"id": 3}, offset=2, later=5))
        handler.handle(again)
    found = sorted((row["id"], str(row["gone"]), str(row["gone_old"])) for row in sql.rows())
    assert found == [(1, "None", "x"), (2, "None", "y"), (3, "None", "None"), (4, "z", "None")]


@pytest.mark.parametrize("options", [{"mode": "history"}, {"ddl": {"drop_columns": False}}])
@pytest.mark.parametrize("has_gap", [True, False])
def test_a_kept_column_is_not_the_next_one_if_only_the_case_differs(
    sql: SqlLab, options: Mapping[str, Any], *, has_gap: bool
) -> None:
    types = SchemaTypes({"id": "int", "Gone": "longtext"})
    with sql.handler(**options) as handler:
        handler.handle(BEFORE)
        if has_gap:
            handler.handle(batch(SchemaTypes({"id": "int"}), {"id": 3}, offset=2, later=5))
        handler.handle(batch(types, {"id": 4, "Gone": "z"}, offset=3, later=9))
        update = {"op": "update", "after": {"id": 4}, "lacks": frozenset({"Gone"})}
        handler.handle(make_batch("shop.orders", [update], key="id", types=types, offset=4))
    found = {(row["id"], str(row["Gone"]), str(row["gone_old"])) for row in sql.rows()}
    assert found - {(3, "None", "None")} == {(1, "None", "x"), (2, "None", "y"), (4, "z", "None")}


def test_a_kept_column_is_not_the_next_one_beside_one_of_another_case(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    one = SchemaTypes({"id": "int", "Gone": "longtext"})
    both = SchemaTypes({"id": "int", "Gone": "longtext", "gone": "longtext"})
    with lab.handler(mode="history") as handler:
        handler.handle(batch(both, {"id": 1, "Gone": "X", "gone": "x"}))
        handler.handle(batch(one, {"id": 2, "Gone": "Y"}, offset=1))
        handler.handle(batch(both, {"id": 3, "Gone": "Z", "gone": "z"}, offset=2))
    found = sorted((row["id"], row["Gone"], row["gone"], row["gone_old"]) for row in lab.rows())
    assert found == [(1, "X", None, "x"), (2, "Y", None, None), (3, "Z", "z", None)]


@pytest.mark.parametrize(
    ("kind", "former"), [("postgres", ["C", "c"]), ("postgres", ["C"]), ("sqlite", ["c"])]
)
def test_a_kept_column_is_set_aside_until_no_new_one_finds_it(
    make_sql: MakeLab, kind: str, former: list[str]
) -> None:
    lab = make_sql(kind)
    new = ["c"] if len(former) > 1 else ["c", "c_old"]
    steps = ["id", *former], ["id", former[0]], ["id"], ["id", *new]
    with lab.handler(ddl={"drop_columns": False}) as handler:
        for number, names in enumerate(steps):
            types = SchemaTypes({"id": "int", **dict.fromkeys(names[1:], "longtext")})
            row = {"id": number, **{name: f"{name}{number}" for name in names[1:]}}
            handler.handle(batch(types, row, offset=number))
    for row in lab.rows():
        assert [row[name] for name in new] == [f"{name}3" if row["id"] == 3 else None for name in new]


def test_a_column_that_is_not_there_yet_is_not_one_of_another_case(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    one = SchemaTypes({"id": "int", "Gone": "longtext"})
    both, retyped = (SchemaTypes({**one, "gone": type_}) for type_ in ("longtext", "int"))
    with lab.handler() as handler:
        handler.handle(batch(one, {"id": 1, "Gone": "X"}))
        for offset, types in enumerate((both, retyped, one), start=1):
            gone = {"before": {"id": 9}, "after": None, "source_time_ms": TIME_MS}
            handler.handle(make_batch("shop.orders", [gone], key="id", types=types, offset=offset))
        assert lab.rows() == [{"id": 1, "Gone": "X"}]
        assert type_of(lab, "Gone") == "TEXT"
        part = {"op": "update", "after": {"id": 1, "gone": "x"}, "lacks": frozenset({"Gone"})}
        handler.handle(make_batch("shop.orders", [part], key="id", types=both, offset=4))
    assert lab.rows() == [{"id": 1, "Gone": "X", "gone": "x"}]


def test_a_value_that_the_new_type_does_not_take_is_told(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    with lab.handler() as handler:
        handler.handle(BEFORE)
        retyped = SchemaTypes({"id": "int", "gone": "int", "n": "int"})
        earlier = batch(FIRST, {"id": 3}, offset=2)
        both = together(earlier, batch(retyped, {"id": 4}, offset=3))
        with pytest.raises(Rejected, match="its columns changed in the source") as error:
            handler.handle(both)
    assert error.value.at == 1
    assert len(lab.rows()) == 3


def test_a_numeric_that_loses_its_size_keeps_its_fraction(sql: SqlLab) -> None:
    with sql.handler() as handler:
        for offset, type_ in enumerate(("decimal(10,2)", "decimal")):
            types = SchemaTypes({"id": "int", "n": type_})
            handler.handle(batch(types, {"id": offset, "n": Decimal("1.25")}, offset=offset, later=offset))
    assert [Decimal(str(row["n"])) for row in sql.rows()] == [Decimal("1.25")] * 2


def test_a_native_type_follows(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    texts = SchemaTypes(
        {"id": "int", "v": NativeType("longtext", "inet"), "w": NativeType("json", "integer[]")}
    )
    others = SchemaTypes(
        {"id": "int", "v": "longtext", "w": NativeType("json", "text[]"), "x": NativeType("json", "jsonb")}
    )
    with lab.handler() as handler:
        handler.handle(batch(texts, {"id": 1, "v": "10.0.0.1/8", "w": [1, None]}))
        handler.handle(batch(others, {"id": 2, "v": "none", "w": ["a"], "x": "{}"}, offset=1))
    typed = "SELECT pg_typeof(v)::text, pg_typeof(w)::text, pg_typeof(x)::text FROM shop.orders"
    assert set(lab.run(typed)) == {("text", "text[]", "jsonb")}
    found = lab.run("SELECT v, w::text FROM shop.orders ORDER BY id")
    assert found == [("10.0.0.1/8", "{1,NULL}"), ("none", "{a}")]


def test_columns_follow_under_the_names_that_rules_give_them(make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    rules = RowRules(ColumnRules.model_validate({"rename": {"gone": "away"}, "exclude": ["added"]}))
    others = RowRules(ColumnRules.model_validate({"rename": {"gone": "away"}, "exclude": ["added", "n"]}))

    def ruled(by: RowRules, given: Batch) -> Batch:
        changes = list(given.changes)
        by.apply(changes, 0, "shop", "orders")
        return Batch("shop.orders", changes, database="shop", name="orders")

    with lab.handler() as handler:
        handler.handle(ruled(rules, BEFORE))
        assert columns(lab) == ["away", "id", "n"]
        # A rule that leaves a column out from now on is no change of the source's.
        handler.handle(ruled(others, batch(FIRST, {"id": 3, "gone": "z", "n": 3}, offset=2)))
        assert columns(lab) == ["away", "id", "n"]
        handler.handle(ruled(others, batch(SECOND, {"id": 4, "n": "4", "added": 1}, offset=3)))
    assert columns(lab) == ["id", "n"]


def test_of_hidden_columns_nothing_is_written_down(make_sql: MakeLab) -> None:
    """Neither names nor types, of which the labels of an enum are part."""
    lab = make_sql("sqlite")
    mask = {"state": {"hash": {"secret": "0123456789abcdef"}}}
    rules = RowRules(ColumnRules.model_validate({"exclude": ["diagnosis"], "mask": mask}))
    hidden = {"diagnosis": "enum('flu','secret')", "state": "enum('secret')"}

    def ruled(types: dict[str, str], row: dict[str, Any], offset: int) -> Batch:
        changes = list(batch(SchemaTypes(types), row, offset=offset, later=offset).changes)
        rules.apply(changes, 0, "shop", "orders")
        return Batch("shop.orders", changes, database="shop", name="orders")

    def seen() -> str:
        [(text,)] = lab.run("SELECT seen_columns FROM binlane_marks WHERE seen_columns IS NOT NULL")
        return str(text)

    row = {"id": 1, "diagnosis": "secret", "state": "secret", "n": 1}
    with lab.handler() as handler:
        handler.handle(ruled({"id": "int", **hidden, "n": "int"}, row, 0))
        assert "diagnosis" not in seen()
        assert "secret" not in seen()
        # As an earlier release wrote it down: the next change takes it out.
        as_before = seen().replace('"n":', f'"diagnosis":[null,"{hidden["diagnosis"]}",""],"n":', 1)
        with lab.engine.begin() as connection:
            update = "UPDATE binlane_marks SET seen_columns = :text WHERE seen_columns IS NOT NULL"
            connection.execute(sa.text(update), {"text": as_before})
    with lab.handler() as handler:
        handler.handle(ruled({"id": "int", **hidden, "n": "longtext"}, {**row, "n": "two"}, 1))
        assert "diagnosis" not in seen()
        assert "secret" not in seen()
        # Of what is masked, another type at the source is none in the target.
        handler.handle(ruled({"id": "int", "diagnosis": "int", "state": "int", "n": "longtext"}, row, 2))
    assert columns(lab) == ["id", "n", "state"]
    assert type_of(lab, "state") == "VARCHAR(64)"
    assert type_of(lab, "n") == "TEXT"


def test_a_mask_that_is_taken_away_retypes_nothing(make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    masked = RowRules(ColumnRules.model_validate({"mask": {"n": "redact"}}))
    with lab.handler() as handler:
        changes = list(BEFORE.changes)
        masked.apply(changes, 0, "shop", "orders")
        handler.handle(Batch("shop.orders", changes, database="shop", name="orders"))
        handler.handle(batch(FIRST, {"id": 3, "gone": "z", "n": 3}, offset=2, later=1))
    assert type_of(lab, "n") == "VARCHAR(3)"


@pytest.mark.parametrize("worker", ["w", "another"])
@pytest.mark.parametrize("is_noted_before", [False, True])
def test_a_source_table_that_another_handler_writes_elsewhere_keeps_no_column(
    sql: SqlLab, worker: str, *, is_noted_before: bool
) -> None:
    template = {"table": "shop.{table}"} if sql.dialect == "sqlite" else {"schema": "shop"}
    with sql.handler(**template) as handler, sql.handler(worker) as of_crm:
        handler.handle(BEFORE)
        of_crm.handle(Batch("crm.orders", BEFORE.changes, database="crm", name="orders"))
    if is_noted_before:  # by an earlier release
        note = "FROM binlane_marks WHERE source_table = 'crm.orders' AND seen_columns IS NOT NULL"
        with sql.engine.begin() as connection:
            known = msgspec.json.decode(connection.scalar(sa.text(f"SELECT seen_columns {note}")))
            del known["target"]
            text = {"text": msgspec.json.encode(known).decode()}
            update = note.replace("FROM binlane_marks", "UPDATE binlane_marks SET seen_columns = :text")
            connection.execute(sa.text(update), text)
    row = {"after": {"id": 3, "gone": "z", "n": 3}, "source_time_ms": TIME_MS}
    with sql.handler(**template) as handler, sql.handler(worker) as of_crm:
        of_crm.handle(make_batch("crm.orders", [row], key="id", types=FIRST, offset=2))
        handler.handle(AFTER)
    assert columns(sql) == ["added", "id", "n"]


@pytest.mark.parametrize(("other", "worker"), [("gone", "w"), ("Gone", "another")])
def test_a_column_goes_with_the_last_source_table_that_shares_the_target(
    make_sql: MakeLab, other: str, worker: str
) -> None:
    lab, of_other = make_sql("sqlite"), SchemaTypes({"id": "int", other: "longtext", "n": "int"})

    def of(table: str, given: Batch) -> Batch:
        return Batch(f"shop.{table}", list(given.changes), database="shop", name=table)

    def all_rows() -> list[dict[str, Any]]:
        with lab.engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(sa.text('SELECT * FROM "all"'))]

    with lab.handler(table="all") as handler, lab.handler(worker, table="all") as of_b:
        handler.handle(of("a", BEFORE))
        of_b.handle(of("b", batch(of_other, {"id": 11, other: "keep", "n": 1})))
        handler.handle(of("a", batch(SECOND, {"id": 2, "n": "2", "added": 5}, offset=2)))
        of_b.handle(of("b", batch(of_other, {"id": 12, other: "keep", "n": 1}, offset=1)))
        assert [row["gone"] for row in all_rows()] == ["x", "y", "keep", "keep"]
        of_b.handle(of("b", batch(SECOND, {"id": 12, "n": "2", "added": 5}, offset=2)))
        handler.handle(of("a", batch(FIRST, {"id": 1, "gone": "late", "n": 1}, partition=1)))
    assert [(row["id"], row["n"]) for row in all_rows()] == [(1, "1"), (2, "2"), (11, "1"), (12, "2")]
    assert "gone" not in all_rows()[0]


def test_a_type_whose_extension_the_target_lacks_follows_as_text(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    texts = SchemaTypes({"id": "int", "v": "longtext", "w": NativeType("json", "hstore")})
    others = SchemaTypes({"id": "int", "v": NativeType("json", "hstore"), "w": "longtext"})
    with lab.handler() as handler:
        handler.handle(batch(texts, {"id": 1, "v": "{}", "w": "{}"}))
        handler.handle(batch(others, {"id": 2, "v": '{"a":"1"}', "w": "x"}, offset=1))
    typed = "SELECT pg_typeof(v)::text, pg_typeof(w)::text FROM shop.orders"
    assert set(lab.run(typed)) == {("json", "text")}


def test_a_schema_that_lacks_a_column_leaves_it_in_a_history_until_one_has_its_name(sql: SqlLab) -> None:
    again = batch(SchemaTypes({"id": "int", "gone": "longtext"}), {"id": 1, "gone": "z"}, offset=3, later=9)
    with sql.handler(mode="history") as handler:
        handler.handle(BEFORE)
        handler.handle(AFTER)
        assert sorted((each["id"], str(each["n"]), str(each["gone"])) for each in sql.rows()) == [
            (1, "1", "x"),
            (2, "2", "y"),
            (2, "two", "None"),
        ]
        handler.handle(again)
    found = [(each["id"], str(each["gone"]), str(each["gone_old"])) for each in sql.rows()]
    assert sorted(found) == [(1, "None", "x"), (1, "z", "None"), (2, "None", "None"), (2, "None", "y")]
