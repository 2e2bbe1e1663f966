"""DDL under column rules: what leaves of a statement, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from captured_statements import statements
from ruling import SECRET, changes_of, configured, hashed, rule_of, ruled, statement

from handlers import Change
from handlers.mysql.ddl import StatementError, parse
from handlers.mysql.ddl.written import net, written
from worker.column_rules.plan import RuleFault, ShownBehind

RULES: dict[str, Any] = {
    "columns": {
        "exclude": ["ssn"],
        "rename": {"name": "full_name", "mail": "email"},
        "mask": {"mail": "hash", "phone": {"partial": {"last": 2}}, "note": None, "mail2": "hash"},
        "cast": {"age": "text"},
        "add": {"region": {"value": "eu"}},
    }
}


def left_of(sql: str, **rules: Any) -> str | None:
    """The statement that leaves; None: none does."""
    found = ruled(rule_of(**(rules or RULES)), [statement(sql)])
    return found[0].sql if found else None


def test_a_boolean_column_has_the_name_that_mysql_has_for_it() -> None:
    rules = {"cast": {"active": "boolean"}, "add": {"own": {"value": True}}}
    assert left_of("CREATE TABLE users (id int PRIMARY KEY, active char(5))", columns=rules) == (
        "CREATE TABLE `shop`.`users` (`id` int NOT NULL, `active` tinyint(1), `own` tinyint(1), "
        "PRIMARY KEY (`id`))"
    )
    assert left_of("ALTER TABLE users ADD active char(5) DEFAULT 'true'", columns=rules) == (
        "ALTER TABLE `shop`.`users` ADD COLUMN `active` tinyint(1) DEFAULT '1'"
    )


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        (
            "CREATE TABLE users (id int NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'secret', ssn "
            "char(9) DEFAULT "
            "'secret', mail varchar(90) NOT NULL, phone varchar(20), note text, age int, name varchar(9) "
            "DEFAULT "
            "'x', CHECK (ssn <> 'secret')) COMMENT='secret'",
            "CREATE TABLE `shop`.`users` (`id` int NOT NULL AUTO_INCREMENT, `email` varchar(64), `phone` "
            "varchar(5), "
            "`note` text, `age` longtext, `full_name` varchar(9) DEFAULT 'x', `region` varchar(255), "
            "PRIMARY KEY (`id`))",
        ),
        ("ALTER TABLE users ADD COLUMN ssn char(9) DEFAULT 'secret'", None),
        ("ALTER TABLE users MODIFY ssn varchar(99) COMMENT 'secret'", None),
        ("ALTER TABLE users DROP COLUMN ssn", None),
        ("ALTER TABLE users ADD INDEX (ssn), COMMENT 'secret'", None),
        ("ALTER TABLE users MODIFY mail varchar(200)", None),
        ("ALTER TABLE users MODIFY age bigint DEFAULT 7", None),
        (  # the source computes other values for existing rows
            "ALTER TABLE users MODIFY mail text AS (a) NOT NULL, MODIFY age int AS (a + 1)",
            "ALTER TABLE `shop`.`users` MODIFY COLUMN `email` varchar(64) GENERATED ALWAYS AS (NULL), "
            "MODIFY COLUMN `age` longtext GENERATED ALWAYS AS (a + 1)",
        ),
        ("ALTER TABLE users DROP COLUMN name", "ALTER TABLE `shop`.`users` DROP COLUMN `full_name`"),
        (
            "ALTER TABLE users MODIFY name text AFTER ssn, ADD city text AFTER mail",
            "ALTER TABLE `shop`.`users` MODIFY COLUMN `full_name` text, ADD COLUMN `city` text AFTER `email`",
        ),
        (
            "ALTER TABLE users ADD phone varchar(20) DEFAULT '004912345' COMMENT 'secret'",
            "ALTER TABLE `shop`.`users` ADD COLUMN `phone` varchar(5) DEFAULT '***45'",
        ),
        (
            "ALTER TABLE users ADD note varchar(20) NOT NULL DEFAULT 'secret'",
            "ALTER TABLE `shop`.`users` ADD COLUMN `note` varchar(20)",
        ),
        (
            "ALTER TABLE users ADD age int DEFAULT 7",
            "ALTER TABLE `shop`.`users` ADD COLUMN `age` longtext DEFAULT '7'",
        ),
        (  # rows that are there hold 0 in the source, of which the text is not empty
            "ALTER TABLE users ADD age int NOT NULL",
            "ALTER TABLE `shop`.`users` ADD COLUMN `age` longtext NOT NULL DEFAULT '0'",
        ),
        (
            "ALTER TABLE users ADD mail varchar(90) NOT NULL",
            f"ALTER TABLE `shop`.`users` ADD COLUMN `email` varchar(64) DEFAULT '{hashed('')}'",
        ),
        (
            "ALTER TABLE users CHANGE name title varchar(50)",
            "ALTER TABLE `shop`.`users` RENAME COLUMN `full_name` TO `title`, MODIFY COLUMN `title` "
            "varchar(50)",
        ),
        (
            "ALTER TABLE users RENAME COLUMN title TO name",
            "ALTER TABLE `shop`.`users` RENAME COLUMN `title` TO `full_name`",
        ),
        (
            "ALTER TABLE users RENAME COLUMN mail TO mail2",  # hashed as before
            "ALTER TABLE `shop`.`users` RENAME COLUMN `email` TO `mail2`",
        ),
        # What stands there in full is hidden from now on.
        ("ALTER TABLE users RENAME COLUMN title TO ssn", "ALTER TABLE `shop`.`users` DROP COLUMN `title`"),
        ("ALTER TABLE users RENAME COLUMN title TO phone", "ALTER TABLE `shop`.`users` DROP COLUMN `title`"),
        ("ALTER TABLE users RENAME COLUMN ssn TO mail", None),
        (
            "ALTER TABLE users RENAME COLUMN a TO b, RENAME COLUMN b TO a",
            "ALTER TABLE `shop`.`users` RENAME COLUMN `b` TO `a`, RENAME COLUMN `a` TO `b`",
        ),
        ("ALTER TABLE users RENAME TO people", "RENAME TABLE `shop`.`users` TO `shop`.`people`"),
        (
            "ALTER TABLE users ADD token text NOT NULL DEFAULT (concat(SSN, 'secret')), ADD made datetime "
            "DEFAULT NOW(), ADD own char(36) NOT NULL DEFAULT (uuid())",
            "ALTER TABLE `shop`.`users` ADD COLUMN `token` text, ADD COLUMN `made` datetime DEFAULT "
            "CURRENT_TIMESTAMP, ADD COLUMN `own` char(36) NOT NULL DEFAULT (uuid())",
        ),
        ("DROP TABLE users /* secret */", "DROP TABLE `shop`.`users`"),
        ("ALTER TABLE users DROP PARTITION p0", "ALTER TABLE `shop`.`users` DROP PARTITION p0"),
        (
            "ALTER TABLE users DROP PARTITION p$values",
            "ALTER TABLE `shop`.`users` DROP PARTITION p$values",
        ),
        (
            "ALTER TABLE users DROP PARTITION p0, `p VALUES 1`",
            "ALTER TABLE `shop`.`users` DROP PARTITION p0, `p VALUES 1`",
        ),
        (
            "ALTER TABLE users ADD total int AS (a + b), ADD mail text AS (lower(a)), ADD word text AS "
            "(concat(ssn)) NOT NULL",
            "ALTER TABLE `shop`.`users` ADD COLUMN `total` int GENERATED ALWAYS AS (a + b), ADD COLUMN "
            "`email` varchar(64) GENERATED ALWAYS AS (NULL), "
            "ADD COLUMN `word` text GENERATED ALWAYS AS (NULL) NOT NULL",
        ),
    ],
)
def test_a_statement_leaves_as_the_rules_have_its_columns(sql: str, left: str | None) -> None:
    found = left_of(sql)
    if left is None or found is None:
        assert found is left
        return
    assert sorted(found.split(", ")) == sorted(left.split(", ")) or _alike(found, left)


def test_a_default_of_a_hidden_column_whose_name_is_no_word_does_not_leave() -> None:
    sql = "ALTER TABLE users ADD token text DEFAULT (concat(`soc-number`, 'x'))"
    left = "ALTER TABLE `shop`.`users` ADD COLUMN `token` text"
    assert left_of(sql, columns={"exclude": ["soc-number"]}) == left
    assert left_of(sql, columns={"mask": {"soc-number": "redact"}}) == left
    names = ["soc-number", "ssn$raw", "ssn€", "a`b", 'a"b']
    quoted = ("`a``b`", '`a"b`', '"soc-number"', '"a`b"', '"a""b"')  # the last three with ANSI_QUOTES
    for spelled in ("ssn$raw", "ssn€", *quoted):
        sql = f"ALTER TABLE users ADD token text DEFAULT (concat({spelled}, 'x'))"
        assert left_of(sql, columns={"exclude": names}) == left
    with pytest.raises(RuleFault, match="cannot be read"):  # to the server, the blank is part of the name
        left_of("ALTER TABLE users CHANGE ssn\u00a0raw shown char(9)", columns={"exclude": ["ssn\u00a0raw"]})


def test_an_expression_of_the_columns_that_are_included_leaves() -> None:
    columns = {"include": ["id", "a", "twice"]}
    for spelled, kept in (("a+1", "a+1"), ("a + b", "NULL")):
        left = f"ALTER TABLE `shop`.`users` ADD COLUMN `twice` int GENERATED ALWAYS AS ({kept})"
        assert left_of(f"ALTER TABLE users ADD twice int AS ({spelled})", columns=columns) == left


def test_numbers_of_rows_begin_where_the_statement_says() -> None:
    added = "ALTER TABLE `shop`.`users` ADD COLUMN `n` int NOT NULL AUTO_INCREMENT, AUTO_INCREMENT = 100"
    assert left_of("ALTER TABLE users ADD n int NOT NULL AUTO_INCREMENT, AUTO_INCREMENT=100") == added
    assert left_of(added) == added


@pytest.mark.parametrize("rules", [{"filter": "id > 15"}, {"deletes": "mark"}, {"deletes": "ignore"}])
def test_rows_that_the_source_lacks_are_not_numbered(rules: dict[str, Any]) -> None:
    left = "ALTER TABLE `shop`.`users` ADD COLUMN `n` int"
    assert left_of("ALTER TABLE users ADD n int NOT NULL AUTO_INCREMENT", **rules) == left


def test_a_text_in_double_quotes_stays_where_nothing_is_hidden() -> None:
    left = 'ALTER TABLE `shop`.`users` ADD COLUMN `n` text GENERATED ALWAYS AS (doc->"$.a")'
    assert left_of('ALTER TABLE users ADD n text AS (doc->"$.a")', columns={"rename": {"a": "b"}}) == left


@pytest.mark.parametrize("default", ["DEFAULT 'n/a'", "DEFAULT (uuid())", "AUTO_INCREMENT"])
def test_a_default_that_no_cast_gives_is_no_value_of_rows_that_are_there(default: str) -> None:
    """NOT NULL, the target gave them the 0 of its type."""
    sql = f"ALTER TABLE users ADD code varchar(9) NOT NULL {default}"
    left = "ALTER TABLE `shop`.`users` ADD COLUMN `code` bigint"
    assert left_of(sql, columns={"cast": {"code": "integer"}}) == left


def _alike(one: str, other: str) -> bool:
    """Columns are renamed all at once: in which order is not said."""
    head = "ALTER TABLE `shop`.`users` "
    return sorted(one.removeprefix(head).split(", ")) == sorted(other.removeprefix(head).split(", "))


def test_a_statement_may_spell_its_own_table_in_another_case() -> None:
    """As on a server with lower_case_table_names: its rows go by the same rules."""
    assert left_of("ALTER TABLE USERS ADD ssn char(9) DEFAULT 'secret'") is None
    with pytest.raises(RuleFault, match="its values would be visible as x"):
        left_of("ALTER TABLE Shop.Users RENAME COLUMN ssn TO x")


@pytest.mark.parametrize(
    "bounds", [" VALUES IN ('secret')", " values/* */less than ('secret') WITH VALIDATION", "VALUES IN (1)"]
)
def test_the_bounds_of_a_partition_are_values(bounds: str) -> None:
    rules = [{"match": f"shop.{name}", "columns": {"exclude": ["ssn"]}} for name in ("users", "old")]
    for name in ("p", "`p`") if bounds.startswith(" ") else ("`p`",):
        converted = f"CONVERT TABLE old TO PARTITION {name}"
        told = statement(f"ALTER TABLE users {converted}{bounds}")
        [change] = ruled(configured(*rules).tables[0], [told])
        assert change.sql == f"ALTER TABLE `shop`.`users` {converted}"


def test_a_statement_may_spell_a_hidden_column_as_a_turkish_program_does() -> None:
    """MySQL and MariaDB take its capital i with a dot for an i: Python does not."""
    rules = {"columns": {"exclude": ["kimlik"], "mask": {"isim": "redact"}}}
    for name in ("KİMLİK", "İSİM"):
        with pytest.raises(ShownBehind, match="its values would be visible as other"):
            left_of(f"ALTER TABLE users RENAME COLUMN {name} TO other", **rules)
    assert left_of("ALTER TABLE users ADD KİMLİK char(9) DEFAULT 'secret'", **rules) is None


@pytest.mark.parametrize("name", ["ssn", "mail", "note", "MAIL"])
def test_a_hidden_column_that_gets_a_name_without_a_rule_is_refused(name: str) -> None:
    beside = "ALTER TABLE users DROP region, CHANGE age years int, DROP PRIMARY KEY, ADD PRIMARY KEY (phone)"
    with pytest.raises(ShownBehind, match="its values would be visible as other"):
        left_of(f"{beside}, RENAME COLUMN {name} TO other")
    with pytest.raises(ShownBehind, match="its values would be visible as other"):
        left_of(f"ALTER TABLE users CHANGE {name} other varchar(50) DEFAULT 'secret'")


@pytest.mark.parametrize(("old", "new"), [("age", "years"), ("years", "AGE")])
def test_a_column_that_would_leave_in_another_type_under_its_new_name_is_refused(old: str, new: str) -> None:
    """Dropped in the target, all rows that are there would lose their values."""
    with pytest.raises(RuleFault, match=f"renames {old} to {new}, and columns.cast"):
        left_of(f"ALTER TABLE users RENAME COLUMN {old} TO {new}")
    both = {"columns": {"cast": {"age": "text", "years": "text"}}}
    assert "RENAME COLUMN" in (left_of(f"ALTER TABLE users RENAME COLUMN {old} TO {new}", **both) or "")


def test_what_is_not_included_leaves_when_a_name_that_is_takes_it_over() -> None:
    assert (
        left_of("ALTER TABLE users RENAME COLUMN draft TO name", columns={"include": ["id", "name"]}) is None
    )
    assert (
        left_of("ALTER TABLE users ADD draft int, ADD more int", columns={"include": ["id", "name"]}) is None
    )


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("ALTER TABLE users FROBNICATE 'secret'", "cannot be read"),
        ("CREATE TABLE users (ssn char(9) PRIMARY KEY)", "ssn is a primary key column"),
        ("ALTER TABLE users ADD PRIMARY KEY (phone)", "its mask is partial"),
        ("ALTER TABLE users ADD region int", "the added region would both be named region"),
        ("CREATE TABLE users (full_name int, name int)", "and column full_name would both be named"),
    ],
)
def test_what_the_rules_have_no_place_for_is_refused_without_its_text(sql: str, what: str) -> None:
    with pytest.raises(RuleFault, match=what) as refused:
        left_of(sql)
    assert "secret" not in str(refused.value)


def test_statements_that_name_other_tables_go_by_the_rules_of_each() -> None:
    plain = {"match": "shop.*"}
    rules = configured({"match": "shop.users", **RULES}, {"match": "shop.copy", **RULES}, plain).tables

    def left(sql: str, table: str, rule: int) -> list[Change]:
        return ruled(rules[rule], [statement(sql)], table)

    same = statement("ALTER TABLE other ADD x int COMMENT 'as it is'")
    assert ruled(rules[2], [same], "shop.other")[0] is same
    # Of a record of another table, too.
    assert left("ALTER TABLE users ADD ssn int", "shop.other", 2) == []
    assert left("CREATE TABLE users LIKE other", "shop.users", 0) == []
    [kept] = left("DROP TABLE users, other", "shop.users", 0)
    assert kept.sql == "DROP TABLE `shop`.`users`, `shop`.`other`"


def test_a_truncate_leaves_without_its_text_and_not_where_deletes_are_ignored() -> None:
    change = statement("TRUNCATE TABLE users -- secret")
    truncate = Change(*["truncate", *[getattr(change, name) for name in change.__struct_fields__[1:]]])
    [kept] = ruled(rule_of(columns={"exclude": ["ssn"]}), [truncate])
    assert kept.sql == "TRUNCATE TABLE `shop`.`users`"
    assert ruled(rule_of(deletes="ignore"), [truncate]) == []
    with pytest.raises(RuleFault, match="TRUNCATE does not list the rows"):
        ruled(rule_of(deletes="mark"), [truncate])


def _readable() -> Iterator[tuple[str, str]]:
    for database, sql in statements():
        try:
            if parse(sql, database):
                yield database, sql
        except StatementError:
            continue


def test_a_statement_that_is_written_anew_says_the_same() -> None:
    found = list(_readable())
    assert len(found) > 40
    for database, sql in found:
        operations = net(parse(sql, database))
        again = net(parse(written(operations), database))
        assert sorted(map(repr, again)) == sorted(map(repr, operations)), sql


def test_a_default_is_hashed_as_the_values_are() -> None:
    [change] = ruled(rule_of(**RULES), [statement("ALTER TABLE users ADD mail varchar(9) DEFAULT 'a@x'")])
    [row] = ruled(rule_of(**RULES), changes_of({"id": 1, "mail": "a@x"}))
    assert row.after is not None
    assert f"DEFAULT '{row.after['email']}'" in (change.sql or "")
    assert SECRET not in (change.sql or "")
