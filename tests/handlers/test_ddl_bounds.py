"""Statements and type texts that no server wrote: refused or read at once, whatever their shape.

The sizes are such that work that grows with their square would take minutes.
"""

from __future__ import annotations

import pytest

from handlers.mysql.ddl import AddColumn, Default, RenameColumn, StatementError, parse, qualified
from handlers.mysql.types import MySQLType, read_type
from worker.formats.images import tables_of

MANY = 100_000
ADD = "ALTER TABLE t ADD c int "
pytestmark = pytest.mark.timeout(60)


def nested(depth: int) -> str:
    return "(" * depth + "1" + ")" * depth


REFUSED = {
    "nested": f"ALTER TABLE t RENAME TO s, ADD c int DEFAULT {nested(500)}",
    "nested deeply": f"ALTER TABLE t RENAME TO s, ADD c int CHECK {nested(MANY // 2)}",
    "open brackets": f"{ADD}DEFAULT {'(' * (MANY // 2)}",
    "an open text": f"{ADD}COMMENT '{chr(92)}'{MANY * (chr(92) + chr(39))}",
    "an open comment of digits": ADD + "/*!" + "1" * MANY,
    "open comments": ADD + "/*!" * MANY,
    "commas": "ALTER TABLE t COMMENT " + ",," * 4 * MANY,
}


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED.keys())
def test_a_statement_beyond_all_bounds_is_refused(sql: str) -> None:
    with pytest.raises(StatementError):
        parse(sql, "db")
    assert tables_of(f"{sql} rename", "db") == []
    assert qualified(sql, "db").endswith(sql[-9:])


READ = {
    "words": ADD + "a " * (MANY // 2),
    "long names": f"{ADD}DEFAULT {'a' * MANY}",
    "a long text": f"{ADD}COMMENT '{chr(92) * 2 * MANY}'",
}


@pytest.mark.parametrize("sql", READ.values(), ids=READ.keys())
def test_a_long_statement_is_read(sql: str) -> None:
    assert [type(one) for one in parse(sql, "db")] == [AddColumn]


def test_text_and_comments_do_not_count_towards_the_length_of_a_statement() -> None:
    (added,) = parse(f"{ADD}DEFAULT '{'x' * 4 * MANY}' /* {'y' * 4 * MANY} */", "db")
    assert isinstance(added, AddColumn)
    assert added.column.default == Default("text", "x" * 4 * MANY)


def test_a_comment_with_a_quote_hides_no_executable_one() -> None:
    for comment in ("/* don't */", "-- don't\n", "# don't\n"):
        (added,) = parse(f"ALTER TABLE t {comment} ADD c int /*!50503 DEFAULT 7 */", "db")
        assert isinstance(added, AddColumn)
        assert added.column.default == Default("number", "7")


def test_columns_that_take_each_others_names_are_put_in_order_however_many_they_are() -> None:
    renames = [f"RENAME COLUMN a{place} TO a{place + 1}" for place in range(4_000)]
    found = parse(f"ALTER TABLE t {','.join(renames)}", "db")
    assert [one.name for one in found if isinstance(one, RenameColumn)] == [
        f"a{place}" for place in reversed(range(4_000))
    ]


def test_two_rings_of_names_are_both_opened() -> None:
    found = parse(
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN x TO y, RENAME COLUMN b TO a, "
        "RENAME COLUMN y TO z, RENAME COLUMN z TO x, RENAME COLUMN k TO l",
        "db",
    )
    columns = {name: name for name in "abxyzk"}
    for one in found:
        assert isinstance(one, RenameColumn)
        assert one.to not in columns
        columns[one.to] = columns.pop(one.name)
    assert columns == {"b": "a", "y": "x", "a": "b", "z": "y", "x": "z", "l": "k"}


def test_drops_without_a_list_are_about_one_table() -> None:
    assert tables_of("ALTER TABLE t " + "DROP a " * MANY, "db") == []
    assert tables_of("DROP TABLE a; ALTER TABLE b ADD c decimal(1,0)", "db") == []


def test_a_type_text_of_any_shape_is_taken_apart_at_once() -> None:
    assert read_type("a" * MANY + "(") == MySQLType("a" * MANY + "(")
    assert read_type("enum('" + "\\'" * MANY + ")").labels == ()
    assert read_type("enum('a','b") == MySQLType("enum('a','b")
    assert read_type("int" + " " * MANY + "(") == MySQLType("int" + " " * MANY + "(")
    assert read_type("int" + "()" * MANY) == MySQLType("int")
