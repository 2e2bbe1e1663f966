"""What is read from MySQL's DDL: every statement that real tools sent, and what surprises in others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from captured import STREAMS, records

from handlers.mysql.ddl import (
    ANY_DATABASE,
    AddColumn,
    ChangeKey,
    Column,
    CreateTable,
    Default,
    DropColumn,
    DropTable,
    LoseRows,
    ModifyColumn,
    Operation,
    RenameColumn,
    RenameTable,
    StatementError,
    TableName,
    TruncateTable,
    parse,
)
from worker.formats.images import tables_of

T = TableName("db", "t")


def text(value: str) -> Default:
    return Default("text", value)


def number(value: str) -> Default:
    return Default("number", value)


COLUMNS = [
    ("a int", Column("a", "int")),
    ("a INT(11) UNSIGNED ZEROFILL NOT NULL", Column("a", "int(11) unsigned", nullable=False)),
    ("a int not null default 18", Column("a", "int", nullable=False, default=number("18"))),
    ("a int DEFAULT -1 COMMENT 'it''s, (odd'", Column("a", "int", default=number("-1"))),
    ("a int DEFAULT + 7", Column("a", "int", default=number("7"))),
    ("a bigint AUTO_INCREMENT", Column("a", "bigint", numbered=True)),
    ("a SERIAL", Column("a", "bigint unsigned", nullable=False, numbered=True)),
    ("a decimal", Column("a", "decimal(10,0)")),
    ("a NUMERIC( 12 , 2 ) default '1.500'", Column("a", "decimal(12,2)", default=text("1.500"))),
    ("a dec(5)", Column("a", "decimal(5,0)")),
    ("a bool DEFAULT TRUE", Column("a", "tinyint(1)", default=number("1"))),
    ("a double precision default 1e3", Column("a", "double", default=number("1e3"))),
    ("a real", Column("a", "double")),
    ("a bit(1) DEFAULT b'1'", Column("a", "bit(1)", default=Default("bits", "1"))),
    ("a bit(8) DEFAULT 0b101", Column("a", "bit(8)", default=Default("bits", "101"))),
    ("a binary(2) DEFAULT x'0aFF'", Column("a", "binary(2)", default=Default("bytes", "0aFF"))),
    ("a binary(2) DEFAULT 0x0aFF", Column("a", "binary(2)", default=Default("bytes", "0aFF"))),
    ("a varchar(9) DEFAULT _utf8mb4'列' COLLATE utf8mb4_bin", Column("a", "varchar(9)", default=text("列"))),
    ('a varchar(9) DEFAULT "it\'s \\"so\\""', Column("a", "varchar(9)", default=text("it's \"so\""))),
    ("a varchar(9) DEFAULT ('x')", Column("a", "varchar(9)", default=text("x"))),
    ("a varchar(9) CHARACTER SET latin1 NULL DEFAULT NULL",
     Column("a", "varchar(9)", default=Default("null", ""))),
    ("a national character varying(5)", Column("a", "varchar(5)")),
    ("a char byte", Column("a", "binary")),
    ("a long varbinary", Column("a", "mediumblob")),
    ("a enum ( 'x,l' , 'it''s' ,'列')", Column("a", "enum('x,l','it''s','列')")),
    ("a set('b','a') DEFAULT 'a,b'", Column("a", "set('b','a')", default=text("a,b"))),
    ("a timestamp(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE now(3)",
     Column("a", "timestamp(3)", default=Default("now", ""))),
    ('a enum("it\'s", \'b\') NOT NULL', Column("a", "enum('it''s','b')", nullable=False)),
    ("a set(x'61',_utf8mb4'b\\\\', 0b1100011)", Column("a", "set('a','b\\\\','c')")),
    ("a int DEFAULT (- -5)", Column("a", "int", default=number("5"))),
    ("a int DEFAULT (-+5)", Column("a", "int", default=number("-5"))),
    *(
        (f"a int DEFAULT ({one})", Column("a", "int", default=Default("expression", one)))
        for one in ("-(5)", "-(-(5))", "-'5'", "-0x05", "-true")
    ),
    ("a int DEFAULT -true", Column("a", "int", default=Default("expression", "-true"))),
    ("a varchar(9) DEFAULT 'a' \"b\"", Column("a", "varchar(9)", default=text("ab"))),
    ("a datetime DEFAULT (now())", Column("a", "datetime", default=Default("now", ""))),
    ("a char(36) DEFAULT (uuid())", Column("a", "char(36)", default=Default("expression", "uuid()"))),
    ("a int DEFAULT (1 + 2)", Column("a", "int", default=Default("expression", "1 + 2"))),
    ("a int GENERATED ALWAYS AS (b + 1) STORED NOT NULL",
     Column("a", "int", nullable=False, generated="b + 1")),
    ("a int AS (concat(`b`, 'x,')) VIRTUAL", Column("a", "int", generated="concat(`b`, 'x,')")),
    ("a int REFERENCES other (id) ON DELETE SET NULL", Column("a", "int")),
    ("a int CHECK (a > 1) INVISIBLE", Column("a", "int")),
    ("a int UNIQUE KEY", Column("a", "int")),
    ("`a``b.列` geometry NOT NULL SRID 4326", Column("a`b.列", "geometry", nullable=False)),
    ("`select` text", Column("select", "text")),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "column"), COLUMNS, ids=[one[0] for one in COLUMNS])
def test_a_definition_is_read_the_same_wherever_it_stands(definition: str, column: Column) -> None:
    assert parse(f"ALTER TABLE t ADD COLUMN {definition}", "db") == [AddColumn(T, column)]
    assert parse(f"ALTER TABLE t ADD ({definition}, z int)", "db") == [
        AddColumn(T, column),
        AddColumn(T, Column("z", "int")),
    ]
    assert parse(f"ALTER TABLE t MODIFY {definition}", "db") == [ModifyColumn(T, column)]
    assert parse(f"ALTER TABLE t CHANGE old {definition}", "db") == [
        RenameColumn(T, "old", column.name),
        ModifyColumn(T, column),
    ]
    created = parse(f"CREATE TABLE t ({definition}, PRIMARY KEY (k))", "db")
    assert created == [CreateTable(T, (column,), ("k",))]


STATEMENTS: list[tuple[str, list[Operation]]] = [
    # whole tables
    ("DROP TABLE IF EXISTS `crm`.`t` /* generated by server */", [DropTable(TableName("crm", "t"))]),
    ("drop table t, `a.b`, c.`d``e` cascade",
     [DropTable(T), DropTable(TableName("db", "a.b")), DropTable(TableName("c", "d`e"))]),
    ("TRUNCATE t", [TruncateTable(T)]),
    ("TRUNCATE TABLE crm.t", [TruncateTable(TableName("crm", "t"))]),
    ("RENAME TABLE t TO a, b TO t",
     [RenameTable(T, TableName("db", "a")), RenameTable(TableName("db", "b"), T)]),
    ("ALTER TABLE t RENAME a", [RenameTable(T, TableName("db", "a"))]),
    ("ALTER TABLE t RENAME AS crm.a, ADD b int",
     [RenameTable(T, TableName("crm", "a")), AddColumn(TableName("crm", "a"), Column("b", "int"))]),
    ("CREATE TABLE t LIKE s", [CreateTable(T, (), (), like=TableName("db", "s"))]),
    ("CREATE TABLE IF NOT EXISTS crm.t (LIKE s)",
     [CreateTable(TableName("crm", "t"), (), (), like=TableName("db", "s"))]),
    # a name without a database, where the record's database is only that of the other name
    ("ALTER TABLE a RENAME TO db.t", [RenameTable(TableName(ANY_DATABASE, "a"), T)]),
    ("RENAME TABLE a TO db.t", [RenameTable(TableName(ANY_DATABASE, "a"), T)]),
    ("CREATE TABLE db.t LIKE a", [CreateTable(T, (), (), like=TableName(ANY_DATABASE, "a"))]),
    ("RENAME TABLE a TO DB.t", [RenameTable(TableName(ANY_DATABASE, "a"), TableName("DB", "t"))]),
    # The server writes the database of all tables that are not in its session's.
    ("DROP TABLE `db`.`t`,`a` /* generated by server */",
     [DropTable(T), DropTable(TableName(ANY_DATABASE, "a"))]),
    # The session's table, not the one that the first pair made.
    ("RENAME TABLE crm.a TO db.b, b TO db.t",
     [RenameTable(TableName("crm", "a"), TableName("db", "b")),
      RenameTable(TableName(ANY_DATABASE, "b"), T)]),
    ("RENAME TABLE db.a TO b, b TO db.t",
     [RenameTable(TableName("db", "a"), TableName("db", "b")), RenameTable(TableName("db", "b"), T)]),
    # keys
    ("CREATE TABLE t (A int, UNIQUE (a), b int NOT NULL, UNIQUE KEY k USING BTREE (B))",
     [CreateTable(T, (Column("A", "int"), Column("b", "int", nullable=False)), ("b",))]),
    ("CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL UNIQUE)",
     [CreateTable(T, (Column("a", "int", nullable=False), Column("b", "int", nullable=False)), ("a",))]),
    ("CREATE TABLE t (a text NOT NULL, CONSTRAINT u UNIQUE ((lower(a))), KEY (a), FULLTEXT f (a))",
     [CreateTable(T, (Column("a", "text", nullable=False),), ())]),
    ("CREATE TABLE t (a varchar(99), b int, CONSTRAINT `pk` PRIMARY KEY (a(10) DESC, b) COMMENT 'c')",
     [CreateTable(T, (Column("a", "varchar(99)"), Column("b", "int")), ("a", "b"))]),
    ("CREATE TABLE t (a int) PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (100))",
     [CreateTable(T, (Column("a", "int"),), ())]),
    ("ALTER TABLE t DROP PRIMARY KEY", [ChangeKey(T, ())]),
    ("ALTER TABLE t DROP PRIMARY KEY, ADD COLUMN uid int NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST",
     [AddColumn(T, Column("uid", "int", nullable=False, numbered=True), ""), ChangeKey(T, ("uid",))]),
    ("ALTER TABLE t ADD CONSTRAINT PRIMARY KEY (a, b), DROP PRIMARY KEY, DROP FOREIGN KEY f, DROP INDEX i",
     [ChangeKey(T, ("a", "b"))]),
    ("DROP INDEX `PRIMARY` ON t", [ChangeKey(T, ())]),
    ("ALTER TABLE t DROP INDEX `PRIMARY`", [ChangeKey(T, ())]),
    ("ALTER TABLE t DROP KEY primary", [ChangeKey(T, ())]),
    ("ALTER TABLE t DROP CONSTRAINT IF EXISTS `PRIMARY`, ADD PRIMARY KEY (b)", [ChangeKey(T, ("b",))]),
    ("ALTER TABLE t MODIFY a bigint PRIMARY KEY",
     [ModifyColumn(T, Column("a", "bigint", nullable=False)), ChangeKey(T, ("a",))]),
    ("ALTER TABLE t CHANGE a b bigint AUTO_INCREMENT KEY, DROP PRIMARY KEY",
     [RenameColumn(T, "a", "b"), ModifyColumn(T, Column("b", "bigint", nullable=False, numbered=True)),
      ChangeKey(T, ("b",))]),
    # columns
    ("alter table t add `a.b` int null, drop column `列`, drop c",
     [DropColumn(T, "列"), DropColumn(T, "c"), AddColumn(T, Column("a.b", "int"))]),
    ("ALTER TABLE t ADD COLUMN IF NOT EXISTS a int, DROP COLUMN IF EXISTS b",
     [DropColumn(T, "b"), AddColumn(T, Column("a", "int"))]),
    ("ALTER TABLE t CHANGE COLUMN a a bigint", [ModifyColumn(T, Column("a", "bigint"))]),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO c",
     [RenameColumn(T, "b", "c"), RenameColumn(T, "a", "b")]),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
     [RenameColumn(T, "a", "_binlane_renaming"), RenameColumn(T, "b", "a"),
      RenameColumn(T, "_binlane_renaming", "b")]),
    ("ALTER ONLINE IGNORE TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC, ADD a int, ORDER BY b, c DESC, LOCK=NONE",
     [AddColumn(T, Column("a", "int"))]),
    ("/*!50503 ALTER TABLE t ADD a int */; DROP TABLE t", [AddColumn(T, Column("a", "int"))]),
    ("ALTER TABLE t # why\n ADD a varchar(9) DEFAULT '/*!50503 x */' -- so",
     [AddColumn(T, Column("a", "varchar(9)", default=text("/*!50503 x */")))]),
    # what MariaDB sets for one statement
    ("SET STATEMENT max_statement_time=0, lock_wait_timeout=(1 + 2) FOR ALTER TABLE t CHANGE a b int",
     [RenameColumn(T, "a", "b"), ModifyColumn(T, Column("b", "int"))]),
    ("SET STATEMENT sql_mode='a FOR b' FOR TRUNCATE t", [TruncateTable(T)]),
    ("CREATE OR REPLACE TABLE t (a int PRIMARY KEY)",
     [DropTable(T), CreateTable(T, (Column("a", "int", nullable=False),), ("a",))]),
    ("CREATE OR REPLACE TABLE t LIKE s", [DropTable(T), CreateTable(T, (), (), TableName("db", "s"))]),
    ("CREATE OR REPLACE TABLE db.t AS SELECT 1", [DropTable(T)]),
    ("CREATE OR REPLACE TEMPORARY TABLE t (a int)", []),
    # of MariaDB, whose log has all of it
    ("SET STATEMENT lock_wait_timeout=(1+4), max_statement_time=0 FOR ALTER TABLE t DROP a",
     [DropColumn(T, "a")]),
    # partitions
    ("ALTER TABLE t CONVERT PARTITION p TO TABLE x", [LoseRows(T, "CONVERT PARTITION p TO TABLE x")]),
    ("ALTER TABLE t TRUNCATE PARTITION p0, p1", [LoseRows(T, "TRUNCATE PARTITION p0, p1")]),
    ("ALTER TABLE t REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (9))", []),
    ("ALTER TABLE t DROP PARTITION p0", [LoseRows(T, "DROP PARTITION p0")]),
    ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x", [LoseRows(T, "EXCHANGE PARTITION p WITH TABLE x")]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "operations"), STATEMENTS, ids=[one[0] for one in STATEMENTS])
def test_a_statement_is_read_as_what_it_does(sql: str, operations: list[Operation]) -> None:
    assert parse(sql, "db") == operations


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX i ON t (a)",
        "CREATE UNIQUE INDEX i ON t (a)",
        "DROP INDEX i ON t",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
        "CREATE DEFINER=`a`@`b` TRIGGER g AFTER INSERT ON t FOR EACH ROW INSERT INTO x VALUES (1)",
        "CREATE TABLE t AS SELECT 1",
        "CREATE TEMPORARY TABLE t (a int)",
        "DROP TEMPORARY TABLE t",
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "DROP DATABASE IF EXISTS `d`",
        "ALTER DATABASE d CHARACTER SET utf8mb4",
        "CREATE USER IF NOT EXISTS someone@localhost IDENTIFIED BY 'secret'",
        "RENAME USER a TO b",
        "ANALYZE TABLE t",
        "SET character_set_server=utf8mb4",
        "SET STATEMENT max_statement_time=60 FOR FLUSH TABLES",
        "USE `d`",
        "",
        "-- nothing",
        "ALTER TABLE t COMMENT 'DROP COLUMN a', ADD INDEX i (a), ALTER COLUMN a SET DEFAULT 1",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t RENAME INDEX a TO b",
        "ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (9))",
        "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 4",
        "ALTER TABLE t SOME_NEW_OPTION = 'x'",
    ],
)
def test_what_changes_no_columns_and_no_rows_is_nothing_to_do(sql: str) -> None:
    assert parse(sql, "db") == []


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("ALTER TABLE t FROBNICATE a", "a clause of ALTER TABLE expected before 'FROBNICATE a'"),
        ("ALTER TABLE t ADD", "more expected at its end"),
        ("ALTER TABLE t RENAME COLUMN a b", "TO expected before 'b'"),
        ("CREATE TABLE t (a int", "more expected at its end"),
        ("ALTER TABLE 'open", "not readable as SQL"),
        ("ALTER TABLE t ADD 'a' int", "a name expected before"),
        ("INSERT INTO t VALUES (1)", "neither ALTER, CREATE, DROP, RENAME nor TRUNCATE"),
    ],
)
def test_an_error_says_where_a_statement_cannot_be_read(sql: str, where: str) -> None:
    with pytest.raises(StatementError, match=r".*") as error:
        parse(sql, "db")
    assert where in str(error.value)
    assert tables_of(sql, "db") == []


def captured_statements() -> Iterator[tuple[str, str]]:
    """(database, statement) of every DDL record of every stream, also those of the tools' own tables."""
    for stream in set(STREAMS) - {"canal-packets"}:  # the same statements once more, not in JSON
        for record in records(stream):
            value: Any = json.loads(record.value() or b"null")
            body = value.get("payload", value) if isinstance(value, dict) else {}
            if not isinstance(body, dict):
                continue
            if sql := body.get("ddl") or body.get("sql"):
                yield body.get("databaseName") or body.get("database") or "", sql


def test_the_place_of_a_column_is_told_where_the_statement_says_it() -> None:
    a = Column("a", "int")
    for place, after in (("FIRST", ""), ("after `b c`", "b c"), ("", None)):
        assert parse(f"ALTER TABLE t ADD a int {place}", "db") == [AddColumn(T, a, after)]
        assert parse(f"ALTER TABLE t MODIFY a int COMMENT 'first' {place}", "db") == [
            ModifyColumn(T, a, after)
        ]


def test_every_captured_statement_is_read() -> None:
    found = list(captured_statements())
    assert len(found) == 67 + 2 * (68 + 37) + 56
    read = [one for database, sql in found for one in parse(sql, database)]
    assert {type(one) for one in read} == {
        CreateTable, DropTable, TruncateTable, RenameTable, AddColumn, DropColumn, RenameColumn, ModifyColumn,
        ChangeKey, LoseRows,
    }  # fmt: skip


def test_tables_of_a_statement_are_all_that_it_renames_or_reads() -> None:
    assert tables_of("RENAME TABLE a TO b, c TO a", "db") == [("db", "a"), ("db", "b"), ("db", "c")]
    assert tables_of("ALTER TABLE a RENAME TO db.b", "db") == [(ANY_DATABASE, "a"), ("db", "b")]
    assert tables_of("ALTER TABLE a RENAME TO crm.b", "db") == [("db", "a"), ("crm", "b")]
    assert tables_of("CREATE TABLE a LIKE crm.b", "db") == [("db", "a"), ("crm", "b")]
    assert tables_of("DROP TABLE a, crm.b", "db") == [("db", "a"), ("crm", "b")]
    assert tables_of("ALTER TABLE a ADD b int COMMENT 'rename'", "db") == [("db", "a")]
    assert tables_of("ALTER TABLE a ADD b int", "db") == []


def test_the_parser_is_loaded_late_and_then_whole() -> None:
    """sqlglot registers a dialect before it is complete: who asks for it by name may get half of it."""
    script = """
import sys
import handlers.mysql.ddl
assert "sqlglot" not in sys.modules
import handlers.mysql.ddl.tokens  # under the lock of imports, whichever thread comes first
assert "sqlglot.dialects.mysql" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
