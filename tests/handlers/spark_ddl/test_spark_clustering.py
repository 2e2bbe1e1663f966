"""Statements about columns by which Delta clusters a table."""

from __future__ import annotations

from spark_ddl_lab import DDLLake, MakeLake


def clustered_by(lake: DDLLake) -> list[str]:
    found: list[str] = lake.session.sql(f"DESCRIBE DETAIL {lake.sql_of('t')}").collect()[0].clusteringColumns
    return found


def test_statements_about_clustering_columns_are_followed(make_lake: MakeLake) -> None:
    lake = make_lake(cluster_by=["N", "a.b", "m", "not_there"])
    lake.follow("CREATE TABLE t (id int PRIMARY KEY, n int, `a.b` int, m int)")
    assert clustered_by(lake) == ["n", "`a.b`", "m"]
    lake.session.sql(f"INSERT INTO {lake.sql_of('t')} VALUES (1, 2, 3, 4)")
    lake.follow("ALTER TABLE t RENAME COLUMN n TO k")
    lake.follow("ALTER TABLE t MODIFY k bigint")
    assert clustered_by(lake) == ["k", "`a.b`", "m"]
    lake.follow("ALTER TABLE t DROP COLUMN k, DROP COLUMN `a.b`")
    assert clustered_by(lake) == ["m"]
    lake.follow("ALTER TABLE t DROP COLUMN m")
    assert clustered_by(lake) == []
    assert lake.rows() == [(1,)]


def test_a_wide_table_is_clustered_by_what_delta_can_use(make_lake: MakeLake) -> None:
    lake = make_lake(cluster_by=["raw", "z"])
    others = ", ".join(f"c{number} int" for number in range(40))
    lake.follow(f"CREATE TABLE t (id int PRIMARY KEY, raw blob, {others}, z int)")
    assert clustered_by(lake) == ["z"]
    lake.follow("ALTER TABLE t DROP COLUMN c1")
    assert clustered_by(lake) == ["z"]
