"""DDL followed in each target, every statement twice: the second time must change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from ddl_lab import DDLLab

from handlers import Rejected
from handlers.sql.ddl_rules import DDLRules


@pytest.fixture
def make_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], DDLLab]]:
    labs = []

    def make(dialect: str) -> DDLLab:
        if dialect == "sqlite":
            url = f"sqlite:///{tmp_path / 'target.db'}"
        else:
            url = request.getfixturevalue(dialect).new_database("ddl")
        labs.append(DDLLab(url))
        labs[-1].drop_all()
        return labs[-1]

    yield make
    for lab in labs:
        lab.engine.dispose()


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def lab(make_lab: Callable[[str], DDLLab], request: pytest.FixtureRequest) -> DDLLab:
    return make_lab(request.param)


@pytest.fixture(params=["postgres", "mariadb"])
def server_lab(make_lab: Callable[[str], DDLLab], request: pytest.FixtureRequest) -> DDLLab:
    """Not SQLite, which takes any text for a number."""
    return make_lab(request.param)


# ---- tables


def test_a_table_is_made_with_its_columns_and_key(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (b varchar(9), a int NOT NULL, c decimal(9,2) NOT NULL, PRIMARY KEY (c, a))")
    assert lab.columns() == ["b", "a", "c"]
    assert lab.key() == ["c", "a"]


def test_a_unique_key_serves_as_the_key_of_a_table_without_one(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (code varchar(20) NOT NULL, n int, UNIQUE KEY (code))")
    assert lab.key() == ["code"]


def test_what_the_source_wants_not_null_may_be_null(lab: DDLLab) -> None:
    """A zero date is None, and so may be a column that a row lacks."""
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, d date NOT NULL DEFAULT '0000-00-00')")
    lab.put({"id": "int", "d": "date"}, {"id": 1, "d": None})
    assert lab.rows() == [("1", None)]


def test_a_table_that_is_there_stays_as_it_is(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, v int)")
    lab.put({"id": "int", "v": "int"}, {"id": 1, "v": 2})
    assert lab.follow("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, other text)").done == ()
    assert lab.rows() == [("1", "2")]


def test_a_table_like_another_has_its_columns_and_key_but_no_rows(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE s (id bigint unsigned PRIMARY KEY, v decimal(9,2))")
    lab.put({"id": "bigint unsigned"}, {"id": 2**64 - 1}, table="s")
    lab.follow("CREATE TABLE other.t LIKE db.s", database="other")
    assert lab.columns("t", "other") == ["id", "v"]
    assert lab.key("t", "other") == ["id"]
    assert lab.rows(database="other") == []


def test_a_table_is_dropped(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.follow("CREATE TABLE u (id int PRIMARY KEY)")
    lab.follow("DROP TABLE IF EXISTS `db`.`t`, `no_such_table`")
    assert not lab.has("t")
    assert lab.has("u")


@pytest.mark.parametrize("sql", [None, "TRUNCATE t", "TRUNCATE TABLE db.t"])
def test_a_table_is_emptied(lab: DDLLab, sql: str | None) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1}, {"id": 2})
    lab.follow(sql)
    assert lab.rows() == []


def test_a_table_is_renamed_with_its_rows(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE `a.b` (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1}, table="a.b")
    result = lab.follow("RENAME TABLE `a.b` TO `订``单`")
    assert not lab.has("a.b")
    assert lab.rows(table="订`单") == [("1",)]
    assert {name.name.split(".", 1)[-1] for name in result.targets} >= {"订`单"}


def test_a_table_moves_to_another_database(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t RENAME TO other.moved")
    assert not lab.has("t")
    assert lab.rows(table="moved", database="other") == [("1",)]


def test_a_table_is_found_whose_database_the_statement_leaves_open(lab: DDLLab) -> None:
    """Canal and Debezium name the new table's database only."""
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t RENAME TO other.moved", database="other", table="moved")
    assert not lab.has("t")
    assert lab.rows(table="moved", database="other") == [("1",)]


def test_a_table_is_not_guessed_where_two_could_be_meant(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)", database="other")
    with pytest.raises(Rejected, match="does not say which database's t it means"):
        lab.follow("ALTER TABLE t RENAME TO other.moved", database="other", table="moved")


def test_tables_swap_names_as_online_schema_changes_do(lab: DDLLab) -> None:
    for table in ("t", "_t_new"):
        lab.follow(f"CREATE TABLE {table} (v varchar(9))")
        lab.put({"v": "varchar(9)"}, {"v": table}, table=table)
    lab.follow("RENAME TABLE t TO _t_old, _t_new TO t")
    assert lab.rows() == [("_t_new",)]
    assert lab.rows(table="_t_old") == [("t",)]
    assert not lab.has("_t_new")


def test_a_name_that_postgresql_would_cut_is_rejected(
    make_lab: Callable[[str], DDLLab],
) -> None:
    lab = make_lab("postgres")
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    long = "列" * 22  # 66 bytes
    for sql in (
        f"CREATE TABLE {long} (id int)",
        f"ALTER TABLE t ADD {long} int",
        f"RENAME TABLE t TO {long}",
    ):
        with pytest.raises(Rejected, match="PostgreSQL takes no name of more than 63 bytes"):
            lab.follow(sql)


# ---- columns

NEW_COLUMNS = [
    ("int NOT NULL DEFAULT 18", "18"),
    ("int NULL DEFAULT NULL", None),
    ("int", None),
    ("int NOT NULL", "0"),
    ("varchar(9) NOT NULL", ""),
    ("text NOT NULL", ""),
    ("varchar(40) DEFAULT 'it''s 100% \\\\ :x 列'", "it's 100% \\ :x 列"),
    ("decimal(6,3) DEFAULT '1.5'", "1.500"),
    ("decimal(6,3) NOT NULL", "0.000"),
    ("bigint unsigned DEFAULT 18446744073709551615", "18446744073709551615"),
    ("double DEFAULT -2.5", "-2.5"),
    ("date DEFAULT '2024-02-29'", "2024-02-29"),
    ("date NOT NULL DEFAULT '0000-00-00'", None),
    ("enum('b','a') NOT NULL", "b"),
    ("set('b','a') DEFAULT 'a,b'", "b,a"),
    ("char(2) DEFAULT x'6162'", "ab"),
    ("binary(3) DEFAULT 'ab'", "ab\0"),
    ("json NOT NULL", "null"),
    ("char(36) DEFAULT (uuid())", None),
]


@pytest.mark.parametrize(("definition", "value"), NEW_COLUMNS, ids=[one[0] for one in NEW_COLUMNS])
def test_a_new_column_holds_what_the_source_gave_to_its_rows(
    lab: DDLLab, definition: str, value: str | None
) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow(f"ALTER TABLE t ADD COLUMN c {definition} FIRST")
    lab.put({"id": "int"}, {"id": 2})  # later rows bring their own values
    assert lab.rows("id, c") == [("1", value), ("2", None)]


def test_a_new_moment_is_that_of_the_statement(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow(
        "ALTER TABLE t ADD (a datetime DEFAULT now(), b timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3))"
    )
    [(a, b)] = lab.rows("a, b")
    assert str(a).startswith("2025-06-15 15:06:40")
    assert str(b).startswith("2025-06-15 15:06:40")


def test_a_new_bit_is_a_number(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t ADD flag bit(1) DEFAULT b'1'")
    assert lab.rows("flag + 0") == [("1",)]


def test_a_new_time_runs_beyond_a_day(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t ADD c time DEFAULT '-838:59:59'")
    assert lab.rows("c") in ([("-838:59:59",)], [("-35 days, 1:00:01",)])


def test_a_generated_column_is_computed_for_the_rows_that_are_there(lab: DDLLab) -> None:
    types = {"id": "int", "total": "decimal(12,2)", "n": "int"}
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, total decimal(12,2), n int)")
    big = 2**31 - 1
    lab.put(types, {"id": 1, "total": "9999999999.99", "n": big}, {"id": 2, "total": None, "n": None})
    lab.follow(
        "ALTER TABLE t ADD g decimal(13,2) GENERATED ALWAYS AS (`total`*2), ADD h bigint AS (n + n - (-1))"
    )
    assert lab.rows() == [
        ("1", "9999999999.99", str(big), "19999999999.98", str(2 * big + 1)),
        ("2",) + (None,) * 4,
    ]


def test_a_generated_column_whose_expression_is_not_understood_is_null(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 1})
    lab.follow("ALTER TABLE t ADD g varchar(80) AS (concat(id, '-x')) STORED, ADD h int AS (id DIV 2)")
    lab.follow("ALTER TABLE t ADD i int AS (id * gone)")
    assert lab.rows() == [("1", None, None, None)]


def test_columns_are_dropped(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int, `列 %` int, B int)")
    lab.put({"id": "int", "a": "int", "列 %": "int", "B": "int"}, {"id": 1, "a": 2, "列 %": 3, "B": 4})
    lab.follow("ALTER TABLE t DROP COLUMN a, DROP `列 %`")
    lab.follow("ALTER TABLE t DROP b")  # MySQL's names of columns know no case
    assert lab.columns() == ["id"]
    assert lab.rows() == [("1",)]
    assert lab.key() == ["id"]


def test_a_column_of_the_key_is_dropped(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (a int, b int, v int, PRIMARY KEY (a, b))")
    lab.put({"a": "int", "b": "int", "v": "int"}, {"a": 1, "b": 2, "v": 3})
    lab.follow("ALTER TABLE t DROP COLUMN a")
    assert lab.rows() == [("2", "3")]
    assert lab.key() == ["b"]


def test_columns_are_renamed(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int, b int, c int)")
    lab.put({"id": "int", "a": "int", "b": "int", "c": "int"}, {"id": 1, "a": 2, "b": 3, "c": 4})
    lab.follow("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO d, CHANGE c `e ``列` bigint")
    assert lab.columns() == ["id", "b", "d", "e `列"]
    assert lab.rows() == [("1", "2", "3", "4")]
    lab.follow("ALTER TABLE t RENAME COLUMN b TO d, RENAME COLUMN d TO b", times=1)
    assert lab.columns() == ["id", "d", "b", "e `列"]


def test_the_key_goes_on_under_a_new_name(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.follow("ALTER TABLE t CHANGE id uid bigint unsigned NOT NULL")
    assert lab.key() == ["uid"]
    lab.put({"uid": "bigint unsigned"}, {"uid": 2**64 - 1})
    assert lab.rows() == [(str(2**64 - 1),)]


RETYPED = [
    ("int", 7, "bigint", "7"),
    ("bigint", 2**63 - 1, "decimal(20,0)", str(2**63 - 1)),
    ("bigint", 2**63 - 1, "bigint unsigned", str(2**63 - 1)),
    ("bigint unsigned", 2**64 - 1, "varchar(20)", str(2**64 - 1)),
    ("int", 5, "decimal(6,2)", "5.00"),
    ("decimal(6,3)", "1.500", "varchar(20)", "1.500"),
    ("decimal(6,3)", "1.500", "decimal(8,4)", "1.5000"),
    ("decimal(6,3)", "2.500", "int", "3"),
    ("varchar(20)", "12", "int", "12"),
    ("varchar(20)", "2.5", "decimal(6,2)", "2.50"),
    ("varchar(20)", "2.5", "double", "2.5"),
    ("varchar(5)", "abc", "varchar(60)", "abc"),
    ("varchar(5)", "abc", "text", "abc"),
    ("text", "abc", "varchar(5)", "abc"),
    ("text", "é", "blob", "Ã©"),
    ("date", "2024-02-29", "varchar(20)", "2024-02-29"),
    ("varchar(20)", "2024-02-29", "date", "2024-02-29"),
    ("enum('a','b')", "b", "enum('b','c','a')", "b"),
    ("enum('a','b')", "b", "varchar(9)", "b"),
    ("set('a','b')", ("a", "b"), "set('c','b','a')", "b,a"),
    ("set('a','b')", ("a", "b"), "varchar(9)", "a,b"),
    ("varchar(9)", "a,b", "set('b','a')", "b,a"),
    ("json", '{"a":[1]}', "text", '{"a":[1]}'),
    ("text", '{"a":[1]}', "json", '{"a":[1]}'),
]


@pytest.mark.parametrize(
    ("old", "value", "new", "text"), RETYPED, ids=[f"{one[0]} to {one[2]}" for one in RETYPED]
)
def test_values_are_converted_to_a_new_type_as_mysql_does(
    lab: DDLLab, old: str, value: object, new: str, text: str
) -> None:
    lab.follow(f"CREATE TABLE t (id int PRIMARY KEY, c {old})")
    lab.put({"id": "int", "c": old}, {"id": 1, "c": value}, {"id": 2, "c": None})
    lab.follow(f"ALTER TABLE t MODIFY COLUMN c {new} NOT NULL")
    assert lab.rows() == [("1", text), ("2", None)]
    lab.put({"id": "int", "c": new}, {"id": 3, "c": None})


def test_a_value_that_has_no_place_in_the_new_type_stops_the_statement(server_lab: DDLLab) -> None:
    lab = server_lab
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, c varchar(20))")
    lab.put({"id": "int", "c": "varchar(20)"}, {"id": 1, "c": "nine"})
    with pytest.raises(sa.exc.SQLAlchemyError, match="nine"):
        lab.follow("ALTER TABLE t MODIFY c int")
    assert lab.rows() == [("1", "nine")]


# ---- keys


def test_a_key_made_of_numbers_that_no_record_tells_is_numbered_as_innodb_does(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (o bigint NOT NULL, l smallint unsigned NOT NULL, v int, PRIMARY KEY (o, l))")
    types = {"o": "bigint", "l": "smallint unsigned"}
    lab.put(types, {"o": 10, "l": 1}, {"o": 9, "l": 2}, {"o": 9, "l": 1})
    lab.follow("ALTER TABLE t DROP PRIMARY KEY, ADD COLUMN uid int NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST")
    assert lab.key() == ["uid"]
    assert lab.rows("uid, o, l") == [("1", "9", "1"), ("2", "9", "2"), ("3", "10", "1")]
    lab.put({"uid": "int", **types}, {"uid": 4, "o": 10, "l": 1})  # no key any more
    assert len(lab.rows()) == 4


def test_rows_whose_order_is_not_known_are_not_numbered(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (a varchar(9) PRIMARY KEY)")
    lab.put({"a": "varchar(9)"}, {"a": "é"}, {"a": "Z"})
    lab.follow("ALTER TABLE t DROP PRIMARY KEY, ADD uid int NOT NULL AUTO_INCREMENT PRIMARY KEY")
    assert lab.rows("uid") == [(None,), (None,)]
    lab.put({"a": "varchar(9)", "uid": "int"}, {"a": "Z", "uid": 3})
    with pytest.raises(sa.exc.IntegrityError):
        lab.put({"a": "varchar(9)", "uid": "int"}, {"a": "Z", "uid": 3})


def test_a_key_is_added_and_dropped(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (a int, b text)")
    lab.put({"a": "int", "b": "text"}, {"a": 1, "b": "x"})
    lab.follow("ALTER TABLE t ADD PRIMARY KEY (a, b(20))")
    assert lab.key() == ["a", "b"]
    lab.follow("ALTER TABLE t DROP PRIMARY KEY")
    assert lab.key() == []
    assert lab.rows() == [("1", "x")]


# ---- what is passed over


SWITCHES = [
    ("create_tables", "CREATE TABLE u (id int PRIMARY KEY)"),
    ("drop_tables", "DROP TABLE t"),
    ("truncate", "TRUNCATE TABLE t"),
    ("rename_tables", "RENAME TABLE t TO v"),
    ("add_columns", "ALTER TABLE t ADD c int"),
    ("drop_columns", "ALTER TABLE t DROP a"),
    ("rename_columns", "ALTER TABLE t RENAME COLUMN a TO c"),
    ("retype_columns", "ALTER TABLE t MODIFY a bigint, DROP PRIMARY KEY"),
]


@pytest.mark.parametrize(("switch", "sql"), SWITCHES, ids=[one[0] for one in SWITCHES])
def test_what_is_switched_off_is_passed_over(lab: DDLLab, switch: str, sql: str) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int)")
    lab.put({"id": "int", "a": "int"}, {"id": 1, "a": 2})
    assert lab.follow(sql, rules=DDLRules.model_validate({switch: False})).done == ()
    assert lab.follow(sql, rules=DDLRules.model_validate(False)).done == ()
    others = {name: False for name in DDLRules.model_fields if name != switch}
    assert lab.follow(sql, rules=DDLRules.model_validate(others)).done != ()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX i ON t (a)",
        "ALTER TABLE t COMMENT 'hello', ADD INDEX ix2 (a), ALTER COLUMN a SET DEFAULT 1",
        "ALTER TABLE t TRUNCATE PARTITION p0",
        "ALTER TABLE no_such_table ADD a int, DROP b, DROP PRIMARY KEY",
        "DROP TABLE IF EXISTS no_such_table",
        "RENAME TABLE no_such_table TO another",
        "CREATE TABLE u LIKE no_such_table",
    ],
)
def test_nothing_is_done_where_nothing_is_to_do(lab: DDLLab, sql: str) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int)")
    assert lab.follow(sql).done == ()


def test_a_statement_that_cannot_be_read_is_rejected_with_its_text(lab: DDLLab) -> None:
    with pytest.raises(Rejected, match=r"DDL of db\.t not understood: .*: ALTER TABLE t FROBNICATE a"):
        lab.follow("ALTER TABLE t FROBNICATE a")


def test_a_statement_of_which_a_clause_cannot_be_read_does_nothing(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a varchar(9))")
    with pytest.raises(Rejected):
        lab.follow("ALTER TABLE t DROP a, ADD b int NOT NULL DEFAULT 7, FROBNICATE", times=1)
    assert lab.columns() == ["id", "a"]
