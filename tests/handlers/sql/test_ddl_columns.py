"""Columns dropped, renamed and retyped, and keys changed, in each target; the same again changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from ddl_lab import DDLLab
from structlog.testing import capture_logs

from handlers import Rejected
from handlers.mysql.ddl.rules import DDLRules


def test_columns_are_dropped(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int, `列 %` int, B int)")
    lab.put({"id": "int", "a": "int", "列 %": "int", "B": "int"}, {"id": 1, "a": 2, "列 %": 3, "B": 4})
    lab.follow("ALTER TABLE t DROP COLUMN a, DROP `列 %`")
    lab.follow("ALTER TABLE t DROP b")  # MySQL's names of columns know no case
    assert lab.columns() == ["id"]
    assert lab.rows() == [("1",)]
    assert lab.key() == ["id"]


@pytest.mark.parametrize("sql", ["ADD C int NOT NULL DEFAULT 5", "RENAME COLUMN b TO C"])
def test_a_column_that_is_kept_gives_its_name_to_another(lab: DDLLab, sql: str) -> None:
    rules = DDLRules(drop_columns=False)
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, c int, b int)")
    lab.put({"id": "int", "c": "int", "b": "int"}, {"id": 1, "c": 2, "b": 5})
    lab.follow("ALTER TABLE t DROP COLUMN c", rules=rules)
    lab.follow("RENAME TABLE t TO u, u TO t", rules=rules, times=1)
    lab.follow(f"ALTER TABLE t {sql}", rules=rules)
    assert lab.rows("id, c_old") == [("1", "2")]
    assert lab.rows('"C"' if lab.dialect == "postgresql" else "C") == [("5",)]
    lab.follow("DROP TABLE t", rules=rules)
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, c int)", rules=rules)
    lab.follow("ALTER TABLE t ADD c int", rules=rules)
    assert lab.columns() == ["id", "c"]


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
    ("float", 1234567.875, "double", "1234567.875"),
    ("float", 1234567.875, "decimal(14,2)", "1234567.88"),
    ("double", 2.75, "int", "3"),
    ("int", 3, "double", "3.0"),
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


def test_the_numbers_begin_where_the_statement_says(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE t (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 10}, {"id": 20})
    lab.follow("ALTER TABLE t ENGINE=InnoDB AUTO_INCREMENT=100, ADD uid int AUTO_INCREMENT UNIQUE")
    assert lab.rows("uid, id") == [("100", "10"), ("101", "20")]


def test_rows_of_a_table_that_the_source_may_order_otherwise_are_not_numbered(lab: DDLLab) -> None:
    lab.follow("CREATE TABLE other (id int PRIMARY KEY)")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {lab.ref('t', 'db')} (id int PRIMARY KEY)")
    lab.put({"id": "int"}, {"id": 10}, {"id": 20})
    lab.follow("ALTER TABLE t ADD uid int AUTO_INCREMENT UNIQUE")
    assert lab.rows("uid, id") == [(None, "10"), (None, "20")]


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


def test_what_else_a_table_of_sqlite_has_stays_when_it_is_written_anew(
    make_lab: Callable[[str], DDLLab],
) -> None:
    lab = make_lab("sqlite")
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, a int, b int, c varchar(9))")
    lab.put({"id": "int", "a": "int", "b": "int", "c": "varchar(9)"}, {"id": 1, "a": 2, "b": 3, "c": "x"})
    ref = lab.ref("t", "db")
    with lab.engine.begin() as connection:
        for sql in (
            f"CREATE INDEX of_a ON {ref} (a)",
            f"CREATE UNIQUE INDEX of_ac ON {ref} (a, c) WHERE a > 0",
            f"CREATE INDEX of_b ON {ref} (b)",
            "CREATE TABLE seen (n int)",
            f"CREATE TRIGGER noted AFTER INSERT ON {ref} BEGIN INSERT INTO seen VALUES (new.id); END",
            f"CREATE VIEW v AS SELECT a FROM {ref}",
        ):
            connection.exec_driver_sql(sql)
    lab.follow("ALTER TABLE t MODIFY a bigint")
    lab.follow("ALTER TABLE t DROP COLUMN b")
    lab.put({"id": "int", "a": "bigint"}, {"id": 2, "a": 5})
    with lab.engine.connect() as connection:
        names = "SELECT name FROM sqlite_master WHERE tbl_name LIKE '%t' AND sql IS NOT NULL ORDER BY name"
        found = [name for (name,) in connection.exec_driver_sql(names)]
        assert found == ["db.t", "noted", "of_a", "of_ac"]
        assert connection.exec_driver_sql("SELECT n FROM seen").all() == [(2,)]
        assert sorted(connection.exec_driver_sql("SELECT a FROM v")) == [(2,), (5,)]


def test_defaults_and_unique_keys_of_a_table_stay_too(make_lab: Callable[[str], DDLLab]) -> None:
    lab = make_lab("sqlite")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TABLE {lab.ref('t', 'db')} "
            "(id INT PRIMARY KEY, a INT DEFAULT 7, u INT UNIQUE, n INT NOT NULL DEFAULT (1 + 1), x INT)"
        )
    lab.follow("ALTER TABLE t MODIFY x varchar(9)")
    lab.put({"id": "int", "u": "int"}, {"id": 1, "u": 1})
    assert lab.rows("id, a, u, n, x") == [("1", "7", "1", "2", None)]
    with pytest.raises(sa.exc.IntegrityError, match="UNIQUE"):
        lab.put({"id": "int", "u": "int"}, {"id": 2, "u": 1})


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("id INT PRIMARY KEY, x bigint, n INT CHECK (n >= 0)", "CHECK"),
        (
            "id INT PRIMARY KEY, x bigint references u (id), n INT, foreign key (n) references u (id)",
            "REFERENCES",
        ),
        ("id INT PRIMARY KEY, x bigint, v VARCHAR(10) Collate NOCASE", "COLLATE"),
        ("id INT PRIMARY KEY, x bigint, v INT AS (id * 2)", "computed columns"),
        ("id INT PRIMARY KEY, x bigint GENERATED ALWAYS AS (id * 2) STORED", "computed columns"),
        ("id INTEGER PRIMARY KEY AUTOINCREMENT, x bigint", "AUTOINCREMENT"),
        ("id INT PRIMARY KEY ON CONFLICT IGNORE, x bigint", "CONFLICT"),
        (
            "id INT PRIMARY KEY, x bigint, CHECK (x > 0)) WITHOUT ROWID --",
            "CHECK, WITHOUT ROWID",
        ),
    ],
)
def test_a_table_of_sqlite_that_would_lose_something_is_not_written_anew(
    make_lab: Callable[[str], DDLLab], columns: str, told: str
) -> None:
    lab = make_lab("sqlite")
    ref = lab.ref("t", "db")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {ref} ({columns})")
    for statement in ("MODIFY x varchar(9)", "DROP COLUMN x", "DROP PRIMARY KEY"):
        with pytest.raises(
            Rejected, match=f"db.t has {told}, which would be lost in .*; make the change yourself"
        ):
            lab.follow(f"ALTER TABLE t {statement}")
    lab.follow("ALTER TABLE t MODIFY x int")


def test_words_in_names_and_texts_of_a_table_of_sqlite_are_nothing_to_lose(
    make_lab: Callable[[str], DDLLab],
) -> None:
    lab = make_lab("sqlite")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TABLE {lab.ref('t', 'db')} (id INT PRIMARY KEY, -- CHECK\n /* COLLATE */ [check] INT, "
            "`references` INT DEFAULT 'it''s CHECK', \"a\"\"collate b\" INT, checks INT, x INT)"
        )
    lab.follow("ALTER TABLE t MODIFY x varchar(9)")
    assert lab.columns() == ["id", "check", "references", 'a"collate b', "checks", "x"]


def test_a_default_stays_when_a_column_gets_another_type(make_lab: Callable[[str], DDLLab]) -> None:
    lab = make_lab("mariadb")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql("CREATE DATABASE db")
        connection.exec_driver_sql(
            "CREATE TABLE db.t (id int PRIMARY KEY, a int DEFAULT 7, b varchar(9) DEFAULT 'it''s', "
            "c timestamp(3) NULL DEFAULT current_timestamp(3), d bit(4) DEFAULT b'101', "
            "e varchar(9) DEFAULT 'x')"
        )
    lab.follow("ALTER TABLE t MODIFY a bigint, MODIFY b varchar(40), MODIFY d bit(8), MODIFY c timestamp(6)")
    with capture_logs() as logs:
        lab.follow("ALTER TABLE t MODIFY e int", times=1)
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["ddl_default_not_kept"]
    lab.put({"id": "int"}, {"id": 1})
    assert lab.rows("a, b, d + 0, e, c IS NULL") == [("7", "it's", "5", None, "0")]


def test_a_default_of_postgresql_stays_where_it_can_be_cast(make_lab: Callable[[str], DDLLab]) -> None:
    lab = make_lab("postgres")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA db")
        connection.exec_driver_sql(
            "CREATE TABLE db.t (id int PRIMARY KEY, a int DEFAULT 7, b text DEFAULT '5', c text DEFAULT 'x')"
        )
    lab.follow("ALTER TABLE t MODIFY a bigint, MODIFY b int")
    with capture_logs() as logs:
        lab.follow("ALTER TABLE t MODIFY c int")
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["ddl_default_not_kept"]
    lab.put({"id": "int"}, {"id": 1})
    assert lab.rows("a, b, c") == [("7", "5", None)]
