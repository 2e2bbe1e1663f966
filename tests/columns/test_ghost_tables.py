"""Online schema changes of tables with column rules: the tables that gh-ost and pt-osc fill show nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from ghost_runs import HIDDEN, LEFT, RULES, emptied, gh_ost, given_up, pt_osc, records
from ruling import configured, ruled, statement
from servers.postgres_server import PostgresServer

from handlers import Batch, Change
from handlers.sql import SqlHandler
from handlers.testing import opened
from worker.column_rules.applying import bring_under
from worker.column_rules.plan import RuleFault
from worker.configuration import Configuration
from worker.configuration.doubts import doubts
from worker.formats.interface import Apart, Record, Skip
from worker.formats.registry import get
from worker.units.table import routed

RUNS = {
    "gh-ost": gh_ost(),
    "gh-ost --timestamp-old-table": gh_ost("_people_20261101120000_del"),
    "pt-osc": pt_osc(),
    "pt-osc --no-drop-old-table": pt_osc(drops=False),
    "pt-osc beside another": pt_osc("__people_new", "__people_old"),
}


def configuration(url: str, *others: str, **keys: Any) -> Configuration:
    """The rules of `crm.people`, and tables without rules that the same handler has."""
    sql = [{"type": "sql", "url": url}]
    plain = [{"match": match, "handlers": sql} for match in others]
    return configured({"match": "crm.people", **RULES, **keys, "handlers": sql}, *plain)


def apply(found: Configuration, told: Iterable[Record], folder: Path) -> None:
    """As a worker does it, record by record."""
    canal, entry = get("canal"), found.tables[0].handlers[0]
    with opened(
        SqlHandler(**entry.options), folder, handles=partial(found.handles, entry), worker="g"
    ) as handler:
        for record in told:
            route = routed(canal, record)
            assert not isinstance(route, Skip | Apart)
            rule = found.rule_for(f"{route.database}.{route.table}")
            if rule is None:
                continue
            changes: list[Change] = []
            canal.decode(record, changes)
            names = {"database": route.database, "table": route.table}
            bring_under(rule.row_rules, rule.statement_rules, changes, 0, **names)
            if changes:
                table = f"{route.database}.{route.table}"
                handler.handle(Batch(table, tuple(changes), database=route.database, name=route.table))


def held(engine: sa.Engine) -> str:
    """All that is in any table of the target, with the names of columns, defaults and enums."""
    found = []
    with engine.connect() as connection:
        inspector = sa.inspect(connection)
        for schema in inspector.get_schema_names():
            if schema in ("information_schema", "pg_catalog"):
                continue
            for name in inspector.get_table_names(schema):
                table = sa.Table(name, sa.MetaData(), schema=schema, autoload_with=connection)
                found.append(repr([dict(row) for row in connection.execute(sa.select(table)).mappings()]))
                found.append(repr(inspector.get_columns(name, schema)))
    return "\n".join(found)


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Its URL, and the table of crm.people in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'target.db'}", '"crm.people"'
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.new_database("ghosts"), "crm.people"


@pytest.mark.parametrize("run", RUNS)
def test_an_online_schema_change_ends_as_the_source_and_shows_nothing(
    run: str, target: tuple[str, str], tmp_path: Path
) -> None:
    url, table = target
    apply(configuration(url, "crm.*"), records(RUNS[run]), tmp_path)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        select = f"SELECT id, email, full_name, city FROM {table} ORDER BY id"
        found = connection.exec_driver_sql(select).all()
    everything = held(engine)
    engine.dispose()
    assert [tuple(row) for row in found] == LEFT
    assert HIDDEN not in everything
    assert "notes" not in everything


def test_ghosts_that_no_rule_matches_are_skipped(tmp_path: Path) -> None:
    """As those of tables without column rules: what clients do to the table itself comes in any case."""
    url = f"sqlite:///{tmp_path / 'target.db'}"
    apply(configuration(url), records(gh_ost()), tmp_path)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql('SELECT id, full_name FROM "crm.people" ORDER BY id').all()
    assert sa.inspect(engine).get_table_names() == ["binlane_marks", "crm.people"]
    engine.dispose()
    assert [tuple(row) for row in found] == [(row[0], row[2]) for row in LEFT]


@pytest.mark.parametrize(
    ("run", "options", "left"),
    [
        (emptied(), {}, [(1, "Ada"), (4, "Dora, with a longer name")]),
        (gh_ost(), {"ddl": {"drop_tables": True}}, [(1, "Ada"), (4, "Dora, with a longer name")]),
        (given_up(), {}, [(1, "Ada"), (2, "Bobby")]),
    ],
)
def test_copies_change_nothing_in_a_target_that_has_one_place_for_all_names(
    run: list[Any], options: dict[str, Any], left: list[Any], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'target.db'}"
    sql = {"type": "sql", "url": url, "table": "persons", **options}
    copies = [{"match": f"crm._people_{name}", "handlers": [sql]} for name in ("gho", "del")]
    apply(configured({"match": "crm.people", **RULES, "handlers": [sql]}, *copies), records(run), tmp_path)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT id, full_name FROM persons ORDER BY id").all()
    engine.dispose()
    assert [tuple(row) for row in found] == left


@pytest.mark.parametrize(
    ("handler", "is_one"),
    [
        ({"type": "sql", "table": "persons"}, True),
        ({"type": "sql", "table": None}, False),
        ({"type": "sql", "schema": "all"}, False),
        ({"type": "sql", "table": "my_{table}"}, False),
        ({"type": "redis", "key": "person:{id}"}, True),
        ({"type": "redis", "key": "{table}:{id}"}, False),
        ({"type": "kafka", "topic": "persons"}, True),
        ({"type": "spark", "path": "lake/persons"}, True),
        ({"type": "spark", "table": "lake.persons"}, True),
        ({"type": "log"}, False),
    ],
)
def test_copies_are_skipped_where_they_would_share_the_place_of_the_table(
    handler: dict[str, Any], is_one: bool
) -> None:
    log = {"type": "log"}
    found = configured({"match": "crm.people", **RULES, "handlers": [log, handler]}, {"match": "crm.*"})
    people, plain = found.tables
    assert found.rule_for("crm._people_gho") is (None if is_one else people)
    wide = configured({"match": "crm.*", **RULES, "handlers": [log, handler]})  # the pattern itself shares
    assert wide.rule_for("crm._people_gho") is wide.tables[0]
    with pytest.raises(RuleFault, match="whose rules hide"):  # a statement about it is still refused
        ruled(plain, [statement("RENAME TABLE plain TO _people_gho")], "crm.plain")


def test_tables_of_gh_ost_have_the_rule_of_the_table_that_they_replace() -> None:
    found = configured({"match": "crm.people", **RULES}, {"match": "crm.*"})
    people, plain = found.tables
    for name in ("_people_gho", "_people_del", "_people_new", "__people_new", "_people_old"):
        assert found.rule_for(f"crm.{name}") is people
    for name in ("_people_ghc", "_orders_gho", "people_new", "_people_copy"):
        assert found.rule_for(f"crm.{name}") is plain
    assert configured({"match": "crm.people", **RULES}).rule_for("crm._people_gho") is None
    switched = configured({"match": "crm.people", "ghost_tables": False, **RULES}, {"match": "crm.*"})
    assert switched.rule_for("crm._people_gho") is switched.tables[1]


@pytest.fixture
def left_of() -> Callable[..., str | None]:
    def left(sql: str, **more: Any) -> str | None:
        """What leaves of a statement of a record of crm.people."""
        taken = RULES["filter"]
        weaker = {"match": "crm.weaker", "columns": {"mask": {"email": "redact"}}, "filter": taken}
        columns = {"exclude": ["notes"], "mask": {"email": "hash"}}
        hashing = {"match": "crm.hashing", "columns": columns, "filter": taken}
        unfiltered = {"match": "crm.unfiltered", "columns": RULES["columns"]}
        stronger = {"match": "crm.stronger", "columns": {"include": ["id"]}, "filter": "consent = 1"}
        plain = {"match": "crm.[p_]*"}
        people = {"match": "crm.people", **RULES, **more}
        rules = configured(people, weaker, hashing, unfiltered, stronger, plain).tables
        found = ruled(rules[0], [statement(sql)], "crm.people")
        return found[0].sql if found else None

    return left


@pytest.mark.parametrize(
    "sql",
    [
        "RENAME TABLE plain TO people",
        "ALTER TABLE plain RENAME TO people",
        "RENAME TABLE weaker TO people",
        "RENAME TABLE hashing TO people",
        "RENAME TABLE unfiltered TO people",
        "RENAME TABLE people TO tmp, plain TO people, tmp TO plain",
        "RENAME TABLE plain TO _people_gho",
        "RENAME TABLE _other_gho TO people",
        "RENAME TABLE people TO stronger",
        "RENAME TABLE people TO plain",
        "RENAME TABLE people TO people_2026, people_new TO people",
        "RENAME TABLE stronger TO people",
        "RENAME TABLE people TO weaker",
        "RENAME TABLE people TO unfiltered",
    ],
)
def test_a_table_is_not_renamed_to_where_more_or_less_is_hidden(
    sql: str, left_of: Callable[..., str | None]
) -> None:
    with pytest.raises(RuleFault, match=r"whose rules hide (data that the rules|less than those) of crm"):
        left_of(sql)


@pytest.mark.parametrize("table", ["people", "plain"])
@pytest.mark.parametrize("sql", ["RENAME TABLE plain TO PEOPLE", "RENAME TABLE PEOPLE TO plain"])
def test_a_name_in_capitals_hides_as_much(sql: str, table: str) -> None:
    """`lower_case_table_names` of MySQL: rows are of crm.people, and statements stand as they were typed."""
    people, plain = configured({"match": "crm.people", **RULES}, {"match": "crm.plain"}).tables
    with pytest.raises(RuleFault, match=r"whose rules hide (data that the rules|less than those) of crm"):
        ruled(people if table == "people" else plain, [statement(sql)], f"crm.{table}")


@pytest.mark.parametrize("wider", [{}, {"columns": {"exclude": ["password"]}}])
@pytest.mark.parametrize("sql", ["RENAME TABLE plain TO PEOPLE", "ALTER TABLE PEOPLE CHANGE notes n text"])
def test_a_table_in_capitals_that_a_wider_rule_takes_hides_as_much(sql: str, wider: dict[str, Any]) -> None:
    """Canal tells the table of a statement as it was typed, too."""
    configuration = configured({"match": "crm.people", **RULES}, {"match": "crm.*", **wider})
    with pytest.raises(RuleFault, match="hide"):
        ruled(configuration.tables[1], [statement(sql)], "crm.PEOPLE")


@pytest.mark.parametrize("match", ["crm.people", "crm.*", "c?m.*", "cr[m-z].*", r"/crm\.(people|users)/"])
def test_a_table_of_an_untold_database_is_not_renamed_to_where_less_is_hidden(match: str) -> None:
    """It ran in a database that the record does not name: the handler takes the table that it keeps."""
    configuration = configured({"match": match, **RULES}, {"match": "shop.*"})
    sql = "ALTER TABLE people RENAME TO shop.people2"
    with pytest.raises(RuleFault, match=r"renames people to .*, whose rules hide less"):
        ruled(configuration.tables[1], [statement(sql)], "shop.people2")
    if not match.endswith("*"):
        ruled(configuration.tables[1], [statement("ALTER TABLE a RENAME TO shop.b")], "shop.b")


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE skipped RENAME TO crm.people", "ALTER TABLE people RENAME crm.hashing"]
)
def test_a_table_of_an_untold_database_is_not_renamed_to_where_anything_is_hidden(
    sql: str, left_of: Callable[..., str | None]
) -> None:
    """Handlers take the table that they keep, of whichever database it is."""
    with pytest.raises(RuleFault, match="does not name the database of"):
        left_of(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "RENAME TABLE people TO _people_old, _people_new TO people",
        "RENAME TABLE skipped TO people",  # nothing of it is in the target
        "RENAME TABLE people TO skipped",  # nothing comes of it from now on
    ],
)
def test_other_renames_leave(sql: str, left_of: Callable[..., str | None]) -> None:
    assert left_of(sql) is not None


def test_copies_of_a_table_go_by_the_rules_of_their_own_name(left_of: Callable[..., str | None]) -> None:
    assert left_of("CREATE TABLE plain LIKE people") is None
    assert left_of("CREATE TABLE _people_gho LIKE people") is not None
    assert left_of("CREATE TABLE _people_del (other int PRIMARY KEY)") is None
    with pytest.raises(RuleFault):  # its rows left as they were
        left_of("RENAME TABLE plain TO people")


def test_without_the_rule_for_ghosts_the_last_statement_is_refused(tmp_path: Path) -> None:
    found = configuration(f"sqlite:///{tmp_path / 'target.db'}", "crm.*", ghost_tables=False)
    with pytest.raises(RuleFault, match=r"renames crm\.people to .*, whose rules hide less"):
        apply(found, records(gh_ost()), tmp_path)


def test_ghosts_that_another_rule_shows_are_a_doubt() -> None:
    def told(*tables: dict[str, Any]) -> list[str]:
        return [one for one in doubts(configured(*tables)) if "online schema change" in one]

    people = {"match": "crm.people", **RULES, "ghost_tables": False}
    [doubt] = told(people, {"match": "crm.*"})
    assert "tables[0] (crm.people) has ghost_tables: false, and crm.* matches crm._people_gho" in doubt
    assert told({**people, "match": "crm.p*"}, {"match": "crm.*"})
    assert told({**people, "ghost_tables": True}, {"match": "crm.*"}) == []
    assert told({**people, "match": "/crm\\.(people|users)/"}, {"match": "*.*"}) == []
    assert told(people) == []
    assert told(people, {**people, "match": "crm.*"}) == []
