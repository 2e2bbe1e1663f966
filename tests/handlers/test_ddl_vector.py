"""A column may be called `vector`, which is no reserved word of MySQL 8; an index may be one of vectors."""

from __future__ import annotations

import pytest

from handlers.mysql.ddl import AddColumn, Column, CreateTable, DropColumn, TableName, parse

T = TableName("db", "t")


def test_a_column_called_vector_is_one() -> None:
    assert parse("ALTER TABLE t DROP vector", "db") == [DropColumn(T, "vector")]
    (added,) = parse("ALTER TABLE t ADD vector blob", "db")
    assert isinstance(added, AddColumn)
    assert added.column == Column("vector", "blob")
    (made,) = parse("CREATE TABLE t (id int, vector varbinary(9), PRIMARY KEY (id))", "db")
    assert isinstance(made, CreateTable)
    assert [column.name for column in made.columns] == ["id", "vector"]


@pytest.mark.parametrize(
    "index", ["VECTOR INDEX v (c)", "VECTOR KEY (c)", "VECTOR (c)", "VECTOR v (c)", "VECTOR `v` (c)"]
)
def test_an_index_of_vectors_is_no_column(index: str) -> None:
    assert parse(f"ALTER TABLE t ADD {index}", "db") == []
    (made,) = parse(f"CREATE TABLE t (c vector(3) NOT NULL, {index} M=6 DISTANCE=cosine)", "db")
    assert isinstance(made, CreateTable)
    assert [column.name for column in made.columns] == ["c"]
