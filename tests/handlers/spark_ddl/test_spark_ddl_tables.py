"""Whole tables of replicas; every statement by workers that die after each step."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from spark_ddl_lab import DDLLake, MakeLake
from structlog.testing import capture_logs

from handlers import Rejected
from handlers.mysql.ddl import TableName
from handlers.mysql.ddl.rules import DDLRules
from handlers.spark.ddl.tables import make_room
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.runtime.errors import SPARK_ERRORS


def test_a_table_is_made_with_its_columns_and_stays_when_it_is_there(lake: DDLLake) -> None:
    sql = "CREATE TABLE `Odd, Tbl` (`a b` int unsigned NOT NULL, n text, s set('x'), PRIMARY KEY (`a b`))"
    result = lake.follow(sql, table="Odd, Tbl")
    assert lake.columns("Odd, Tbl") == {"a b": "bigint", "n": "string", "s": "array<string>"}
    assert (result.key, result.touched) == (("a b",), (TableName("db", "Odd, Tbl"),))
    again = lake.follow("CREATE TABLE IF NOT EXISTS `Odd, Tbl` (id int PRIMARY KEY)", table="Odd, Tbl")
    assert (again.done, again.key) == ((), None)
    lake.follow("CREATE TABLE u LIKE `Odd, Tbl`", table="u")
    assert lake.columns("u") == lake.columns("Odd, Tbl")
    assert lake.follow("CREATE TABLE v LIKE no_such_table", table="v").done == ()


def test_what_is_no_table_is_never_removed(lake: DDLLake) -> None:
    mine = lake.folder / "db" / "t" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.touch()
    with pytest.raises(Rejected, match="contains files, but no Delta table: move them away"):
        lake.follow("CREATE TABLE t (id int)")
    assert lake.follow("DROP TABLE IF EXISTS t").done == ()
    lake.put("u", "id int", "1")
    with pytest.raises(Rejected, match="contains files"):
        lake.follow("RENAME TABLE u TO t")
    assert (mine.exists(), lake.exists("u")) == (True, True)


@pytest.mark.parametrize("left", [(), (".0.json.1b2c.tmp",)], ids=["empty", "a file half written"])
def test_what_a_statement_left_that_failed_is_no_table(lake: DDLLake, left: tuple[str, ...]) -> None:
    """As on a full disk: Delta has made the folder of its log, and no commit."""
    delta_log = lake.folder / "db" / "t" / "_delta_log"
    delta_log.mkdir(parents=True)
    for name in left:
        (delta_log / name).touch()
    lake.follow("ALTER TABLE t ADD a int")
    lake.follow("CREATE TABLE t (id int)", mortal=False)
    assert lake.columns() == {"id": "int"}


def test_room_is_not_made_of_a_table_that_another_worker_makes_meanwhile(tmp_path: Path) -> None:
    table = str(tmp_path / "t")

    class Meanwhile(LocalFiles):
        """It does so when nothing but its place is left to look at."""

        def exists(self, path: str) -> bool:
            return super().exists(self._made(path) if path == table else path)

        def delete(self, path: str) -> None:
            super().delete(self._made(path))

        def delete_tree(self, folder: str) -> None:
            super().delete_tree(self._made(folder))

        def _made(self, path: str) -> str:
            deltalake.write_deltalake(table, pa.table({"id": [1]}), mode="ignore")
            return path

    Path(table, "_delta_log").mkdir(parents=True)
    Path(table, "_delta_log/.0.json.1b2c.tmp").touch()
    make_room(Meanwhile(), table)
    assert deltalake.DeltaTable(table).to_pyarrow_table().to_pylist() == [{"id": 1}]
    assert not Path(table, "_delta_log/.0.json.1b2c.tmp").exists()


@pytest.mark.soak
def test_a_table_whose_first_versions_are_gone_is_one(lake: DDLLake) -> None:
    lake.put("t", "id int", "1")
    lake.session.sql(f"ALTER TABLE {lake.sql_of('t')} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    lake.session.sql(f"INSERT INTO {lake.sql_of('t')} VALUES (2)")
    delta_log = lake.folder / "db" / "t" / "_delta_log"
    for name in ("_last_checkpoint", f"{0:020d}.json", f"{1:020d}.json"):
        (delta_log / name).unlink()
    lake.follow("CREATE TABLE t (id int, a int)")
    lake.follow("TRUNCATE TABLE t")
    assert (lake.rows(), list(lake.columns())) == ([], ["id"])


@pytest.mark.soak
def test_a_table_is_dropped_with_its_files_and_can_be_made_anew(lake: DDLLake) -> None:
    lake.put("t", "id int", "1")
    lake.session.sql(f"ALTER TABLE {lake.sql_of('t')} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for number in range(3):
        lake.session.sql(f"INSERT INTO {lake.sql_of('t')} VALUES ({number})")
    lake.put("u", "id int", "2")
    lake.follow("DROP TABLE t, u", table="t")
    assert (lake.exists("t"), lake.exists("u")) == (False, False)
    assert set(lake.settled) == {"db.t", "db.u"}
    lake.follow("CREATE TABLE t (id varchar(9), w json)")
    assert lake.rows() == []
    assert lake.columns() == {"id": "string", "w": "string"}


def test_a_table_that_is_replaced_loses_its_rows_and_its_columns(lake: DDLLake) -> None:
    lake.put("t", "id int", "1")
    lake.follow("CREATE OR REPLACE TABLE t (code varchar(9) PRIMARY KEY)")
    assert (lake.rows(), lake.columns()) == ([], {"code": "string"})


def test_a_table_is_emptied(lake: DDLLake) -> None:
    lake.put("t", "id int", "1")
    lake.follow(None)  # a change with op `truncate`
    assert (lake.rows(), lake.commits()) == ([], ["DELETE"])


def test_a_table_is_renamed_with_its_rows_and_changed_at_once(lake: DDLLake) -> None:
    lake.put("t", "id int; a int", "1, 2")
    result = lake.follow(
        "ALTER TABLE t RENAME TO other.`u v`, ADD b int NOT NULL, CHANGE a c varchar(9)", key=("id",)
    )
    assert lake.rows(table="u v", database="other") == [(1, "2", 0)]
    assert not lake.exists("t")
    assert result.touched == (TableName("db", "t"), TableName("other", "u v"))
    assert set(lake.settled) == {"db.t", "other.u v"}


def test_tables_swap_names_whatever_crashes(lake: DDLLake) -> None:
    for name in ("a", "b"):
        lake.put(name, "name string", f"'{name}'")
    lake.follow("RENAME TABLE a TO tmp, b TO a, tmp TO b", table="a")
    assert (lake.rows(table="a"), lake.rows(table="b")) == ([("b",)], [("a",)])
    result = lake.follow("RENAME TABLE a TO _a_del, b TO a", table="a", mortal=False)
    assert result.done == ("renamed db.a to db._a_del", "renamed db.b to db.a")
    assert lake.rows(table="a") == [("a",)]


def test_a_move_that_a_store_did_in_part_is_finished(lake: DDLLake) -> None:
    lake.put("t", "id int; p int", "1, 2")
    files = sorted(Path(f"{lake.folder}/db/t").glob("*.parquet"))
    assert files
    progress = lake.folder / "_binlane" / "ddl" / "cdc-0-1-0"
    progress.mkdir(parents=True)
    (progress / "0.begun").write_text('{"what":"db.t to db.u"}')
    (lake.folder / "db" / "u").mkdir()
    files[0].rename(lake.folder / "db" / "u" / files[0].name)
    lake.follow("RENAME TABLE t TO u")
    assert lake.rows(table="u") == [(1, 2)]
    assert not lake.exists("t")


def test_a_name_that_is_taken_is_left_alone(lake: DDLLake) -> None:
    lake.put("t", "id int", "1")
    lake.put("u", "id int", "2")
    assert lake.follow("RENAME TABLE t TO u").done == ()
    assert lake.follow("RENAME TABLE no_such_table TO v").done == ()
    assert (lake.rows(table="t"), lake.rows(table="u")) == ([(1,)], [(2,)])


def test_a_table_is_found_whose_database_the_statement_leaves_open(lake: DDLLake) -> None:
    lake.put("t", "id int", "1", database="other")
    lake.follow("ALTER TABLE t RENAME TO db.u", table="u")
    assert lake.rows(table="u") == [(1,)]
    for database in ("db", "other"):
        lake.put("w", "id int", database=database)
    with pytest.raises(Rejected, match=r"does not name the database of w: db\.w, other\.w"):
        lake.follow("ALTER TABLE w RENAME TO db.v")


SWITCHES = [
    ("create_tables", "CREATE TABLE u (id int PRIMARY KEY)"),
    ("add_columns", "ALTER TABLE t ADD c int"),
    ("rename_columns", "ALTER TABLE t RENAME COLUMN a TO b"),
    ("retype_columns", "ALTER TABLE t MODIFY id bigint"),
    ("drop_columns", "ALTER TABLE t DROP c"),
    ("truncate", "TRUNCATE TABLE t"),
    ("rename_tables", "RENAME TABLE t TO v"),
    ("drop_tables", "DROP TABLE v"),
]


@pytest.mark.soak
def test_what_is_switched_off_is_passed_over(lake: DDLLake) -> None:
    """But a table remembers which of its columns the source has dropped."""
    lake.put("t", "id int; a int", "1, 2")
    table = lake.ref(TableName("db", "t")).sql
    kept = f"""ALTER TABLE {table} SET TBLPROPERTIES ('binlane.dropped_columns' = '["c"]')"""
    for switch, sql in SWITCHES:
        without = DDLRules.model_validate({switch: False})
        done = lake.follow(sql, rules=without, mortal=False).done
        assert done == ((kept,) if switch == "drop_columns" else ())
        others = {name: False for name in DDLRules.model_fields if name != switch}
        assert lake.follow(sql, rules=DDLRules.model_validate(others), mortal=False).done != ()


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE other.salaries",
        pytest.param("TRUNCATE TABLE other.salaries", marks=pytest.mark.soak),
        pytest.param("ALTER TABLE other.salaries DROP COLUMN amount", marks=pytest.mark.soak),
        pytest.param("ALTER TABLE other.salaries MODIFY amount varchar(1)", marks=pytest.mark.soak),
        "RENAME TABLE other.salaries TO db.salaries",
        pytest.param("RENAME TABLE t TO other.t", marks=pytest.mark.soak),
        pytest.param("CREATE TABLE other.new (id int)", marks=pytest.mark.soak),
        "CREATE TABLE copy LIKE other.salaries",
        "DROP TABLE t",
    ],
)
def test_no_statement_reaches_beyond_what_its_handler_keeps(lake: DDLLake, sql: str) -> None:
    """Nor does the source drop a table that somebody else has made."""
    lake.handles = lambda table: table.startswith("db.")
    lake.put("salaries", "id int; amount int", "7, 100", database="other")
    lake.put("t", "id int", "1", made="somebody")
    with capture_logs() as logs:
        assert lake.follow(sql, mortal=False).done == ()
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["ddl_refused"]
    assert lake.rows(table="salaries", database="other") == [(7, 100)]
    assert lake.rows() == [(1,)]
    assert not lake.exists("copy")
    lake.follow("DROP TABLE t", rules=DDLRules.model_validate({"drop_tables": True}))
    assert not lake.exists("t")


def test_a_table_of_an_untold_database_is_not_dropped(lake: DDLLake) -> None:
    """The server writes the database of all tables that are not in its session's: `u` is not db's."""
    for table in ("t", "u"):
        lake.put(table, "id int", "1")
    with capture_logs() as logs:
        lake.follow("DROP TABLE `db`.`t`,`u` /* generated by server */", mortal=False)
    assert [log["because"] for log in logs if log["event"] == "ddl_refused"] == [
        "this handler has written no row of .u"
    ]
    assert lake.rows(table="u") == [(1,)]
    assert not lake.exists("t")


@pytest.mark.soak
def test_tables_of_a_catalog(make_lake: MakeLake) -> None:
    lake = make_lake(catalog="`ddl_{database}`.`{table}`", partition_by=["id"])
    lake.follow("CREATE TABLE t (id int PRIMARY KEY, a int, `b c` int)")
    lake.session.sql(f"INSERT INTO {lake.sql_of('t')} VALUES (1, 2, 3)")
    lake.follow("ALTER TABLE t MODIFY a varchar(9), ADD d int NOT NULL")
    lake.follow("RENAME TABLE t TO tmp, tmp TO u")
    lake.follow("ALTER TABLE u RENAME TO other.v", table="v")
    assert not lake.exists("u")
    assert lake.rows(table="v", database="other") == [(1, "2", 3, 0)]
    detail = lake.session.sql(f"DESCRIBE DETAIL {lake.sql_of('v', 'other')}").collect()[0]
    assert detail.partitionColumns == ["id"]
    lake.follow("DROP TABLE other.v", database="other", table="v")
    assert not lake.exists("v", "other")


def test_a_catalogs_table_is_dropped_if_no_other_worker_has_done_so(make_lake: MakeLake) -> None:
    lake = make_lake(catalog="`left_{database}`.`{table}`")
    lake.session.sql("CREATE SCHEMA left_db")
    lake.put("t", "id int", "1")

    def look() -> None:
        raise FileExistsError("another worker has followed it, and made the next table")

    lake.look_again = look
    with pytest.raises(FileExistsError):
        lake.follow("DROP TABLE t", mortal=False)
    assert lake.rows() == [(1,)]
    lake.look_again = lambda: None
    lake.follow("DROP TABLE t", mortal=False)
    assert not lake.exists("t")


def test_rows_that_cannot_be_read_are_not_left_behind_by_a_copy(make_lake: MakeLake) -> None:
    lake = make_lake(catalog="`copy_{database}`.`{table}`")
    lake.session.sql("CREATE SCHEMA copy_db")
    lake.put("t", "id int", "1")
    [detail] = lake.session.sql(f"DESCRIBE DETAIL {lake.sql_of('t')}").collect()
    [file] = Path(detail.location.removeprefix("file:")).glob("*.parquet")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    lake.session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    with pytest.raises(SPARK_ERRORS):
        lake.follow("ALTER TABLE t RENAME TO other.v", mortal=False)
    file.write_bytes(data)
    assert lake.rows() == [(1,)]
