"""What belongs to the target waits: nobody gets in, no right, read-only, a lock. No row is blamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sql_lab import SqlLab, orders

from handlers import TargetUnavailable
from handlers.sql.handler import DatabaseError

MakeLab = Callable[[str], SqlLab]
TYPES = {"id": "int", "n": "int"}


def row(number: int) -> dict[str, Any]:
    return {"id": number, "n": 0}


def numbers(lab: SqlLab) -> list[int]:
    return sorted(one["id"] for one in lab.rows(columns="id"))


class Account:
    """One that may change rows of shop.orders and make the table of marks, and no more."""

    def __init__(self, admin: SqlLab, stack: ExitStack) -> None:
        self.admin = admin
        admin.make("shop.orders", "id int PRIMARY KEY, n int")
        admin.make("shop.items", "id int PRIMARY KEY, n int")
        if admin.dialect == "postgresql":
            self._run("CREATE ROLE narrow LOGIN PASSWORD 'one'")
            stack.callback(self._run, "DROP OWNED BY narrow", "DROP ROLE narrow")
            self._run("GRANT USAGE ON SCHEMA shop TO narrow", "GRANT CREATE ON SCHEMA public TO narrow")
            self._run("GRANT ALL ON ALL TABLES IN SCHEMA shop TO narrow")
        else:
            self._run("CREATE USER narrow IDENTIFIED BY 'one'", "GRANT ALL ON target.* TO narrow")
            stack.callback(self._run, "DROP USER narrow")
            self._run("GRANT ALL ON shop.orders TO narrow", "GRANT ALL ON shop.items TO narrow")
        url = sa.make_url(admin.url).set(username="narrow", password="one")
        self.lab = SqlLab.__new__(SqlLab)
        self.lab.__dict__.update(admin.__dict__, url=url.render_as_string(hide_password=False))

    def _run(self, *statements: str) -> None:
        for statement in statements:
            self.admin.run(statement)


@pytest.fixture
def account(server: SqlLab) -> Iterator[Account]:
    with ExitStack() as stack:
        yield Account(server, stack)


_TAKEN_AND_GIVEN = {
    "postgresql": {
        "the password": ("ALTER ROLE narrow PASSWORD 'two'", "ALTER ROLE narrow PASSWORD 'one'"),
        "the account": ("ALTER ROLE narrow NOLOGIN", "ALTER ROLE narrow LOGIN"),
        "connections": ("ALTER ROLE narrow CONNECTION LIMIT 0", "ALTER ROLE narrow CONNECTION LIMIT -1"),
        "writing": (
            "ALTER DATABASE target SET default_transaction_read_only = on",
            "ALTER DATABASE target RESET default_transaction_read_only",
        ),
        "the right": ("REVOKE INSERT ON shop.orders FROM narrow", "GRANT INSERT ON shop.orders TO narrow"),
    },
    "mysql": {
        "the password": ("ALTER USER narrow IDENTIFIED BY 'two'", "ALTER USER narrow IDENTIFIED BY 'one'"),
        "the account": ("ALTER USER narrow ACCOUNT LOCK", "ALTER USER narrow ACCOUNT UNLOCK"),
        "connections": (
            "ALTER USER narrow WITH MAX_USER_CONNECTIONS -1",
            "ALTER USER narrow WITH MAX_USER_CONNECTIONS 0",
        ),
        "writing": ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
        "the right": ("REVOKE INSERT ON shop.orders FROM narrow", "GRANT INSERT ON shop.orders TO narrow"),
    },
}


@pytest.mark.parametrize("what", ["the password", "the account", "connections", "writing", "the right"])
def test_what_is_taken_from_the_account_is_waited_for_until_it_is_given_back(
    account: Account, what: str
) -> None:
    take, give = _TAKEN_AND_GIVEN[account.admin.dialect][what]
    with account.lab.handler() as handler:
        handler.handle(orders(row(1), types=TYPES))
        handler._engine.dispose()  # type: ignore[union-attr]
        account.admin.run(take)
        try:
            for _ in range(2):
                with pytest.raises(TargetUnavailable, match=account.admin.dialect) as waits:
                    handler.handle(orders(row(2), row(3), types=TYPES, offset=1))
                assert waits.value.others_go_on == (what == "the right")
                assert waits.value.retry_after == (3.0 if what == "the right" else None)
            if what == "the right":
                handler.handle(orders(row(1), table="shop.items", types=TYPES))
        finally:
            account.admin.run(give)
        handler.handle(orders(row(2), row(3), types=TYPES, offset=1))
    assert numbers(account.admin) == [1, 2, 3]


def test_no_session_of_a_database_that_was_read_only_is_used_again(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    lab.make("shop.orders", "id int PRIMARY KEY, n int")
    with lab.handler() as handler:
        engine = handler._engine
        assert engine is not None
        engine.dispose()
        lab.run("ALTER DATABASE target SET default_transaction_read_only = on")
        with engine.connect(), engine.connect():
            pass
        lab.run("ALTER DATABASE target RESET default_transaction_read_only")
        with pytest.raises(TargetUnavailable, match="read-only"):
            handler.handle(orders(row(1), types=TYPES))
        handler.handle(orders(row(1), types=TYPES))
    assert numbers(lab) == [1]


def test_a_right_to_all_tables_ends_the_wait_for_one(make_sql: MakeLab) -> None:
    """MariaDB looks at such rights when a session begins."""
    with ExitStack() as stack:
        account = Account(make_sql("mariadb"), stack)
        account.admin.run("REVOKE ALL ON shop.orders FROM narrow")
        with account.lab.handler() as handler:
            with pytest.raises(TargetUnavailable, match="command denied"):
                handler.handle(orders(row(1), types=TYPES))
            account.admin.run("GRANT ALL ON *.* TO narrow")
            handler.handle(orders(row(1), types=TYPES))
        assert numbers(account.admin) == [1]


def test_a_table_that_may_not_be_made_waits(account: Account) -> None:
    with account.lab.handler() as handler:
        with pytest.raises(TargetUnavailable) as waits:
            handler.handle(orders(row(1), table="crm.people", types=TYPES))
        assert waits.value.others_go_on
        handler.handle(orders(row(1), types=TYPES))


def test_a_row_that_row_level_security_does_not_take_is_rejected(make_sql: MakeLab) -> None:
    with ExitStack() as stack:
        account = Account(make_sql("postgres"), stack)
        account.admin.run("ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY")
        account.admin.run("CREATE POLICY few ON shop.orders USING (true) WITH CHECK (n < 5)")
        with account.lab.handler() as handler:
            with pytest.raises(Exception, match="row-level security") as refused:
                handler.handle(orders(row(1), {"id": 2, "n": 7}, row(3), types=TYPES))
            assert (type(refused.value).__name__, getattr(refused.value, "at", None)) == ("Rejected", 1)


def test_no_row_is_blamed_for_a_table_that_changed_or_takes_no_upsert(make_sql: MakeLab) -> None:
    """The second row is a wrong one, so that each is tried alone."""
    lab = make_sql("postgres")
    lab.make("shop.orders", "id int PRIMARY KEY, n int")
    lab.run("CREATE RULE told AS ON INSERT TO shop.orders DO ALSO NOTIFY orders")
    with lab.handler() as handler, pytest.raises(TargetUnavailable, match="rules"):
        handler.handle(orders(row(1), {"id": 2, "n": "x"}, types=TYPES))


REFUSING = {
    "no replica identity": ("postgres", "CREATE PUBLICATION all_rows FOR TABLE shop.orders"),
    "a definer that is gone": (
        "mariadb",
        "CREATE DEFINER = gone TRIGGER shop.lost AFTER UPDATE ON shop.orders FOR EACH ROW SET @a = 1",
    ),
}


@pytest.mark.parametrize("what", REFUSING)
def test_no_row_is_blamed_for_a_table_that_takes_no_update(make_sql: MakeLab, what: str) -> None:
    kind, statement = REFUSING[what]
    lab = make_sql(kind)
    lab.make("shop.orders", "id int, n int")
    with lab.handler() as handler:
        handler.handle(orders(row(1), key=None, types=TYPES))
        lab.run(statement)
        changed = {"before": row(1), "after": {"id": 1, "n": 1}}
        with pytest.raises(TargetUnavailable) as waits:
            handler.handle(orders(changed, key=None, types=TYPES, offset=1))
    assert waits.value.others_go_on


HIDING = {
    "a policy of some rows": ["CREATE POLICY few ON shop.orders USING (n < 5)"],
    "a policy of reading alone": ["CREATE POLICY readers ON shop.orders FOR SELECT USING (true)"],
    "a restrictive policy": [
        "CREATE POLICY whole ON shop.orders USING (true)",
        "CREATE POLICY few ON shop.orders AS RESTRICTIVE USING (n < 5)",
    ],
    "no policy": [],
}


@pytest.mark.parametrize("policies", HIDING.values(), ids=HIDING)
def test_a_table_of_which_policies_hide_rows_waits_until_they_do_not(
    make_sql: MakeLab, policies: list[str]
) -> None:
    """An update or delete of a hidden row would pass as done."""
    with ExitStack() as stack:
        account = Account(make_sql("postgres"), stack)
        account.admin.run("INSERT INTO shop.orders VALUES (7, 7)")
        for statement in ("ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY", *policies):
            account.admin.run(statement)
        with account.lab.handler() as handler:
            gone = orders({"before": row(7), "after": None}, types=TYPES)
            with pytest.raises(TargetUnavailable, match="BYPASSRLS") as waits:
                handler.handle(gone)
            assert waits.value.others_go_on
            account.admin.run("ALTER ROLE narrow BYPASSRLS")
            handler.handle(gone)
    assert numbers(account.admin) == []


GONE = {"before": row(7), "after": None}
CHANGED = {"before": row(7), "after": {"id": 7, "n": 8}}
RENUMBERED = {"before": {"id": 7, "n": 7}, "after": {"id": 7, "n": 8}}


@pytest.mark.parametrize(
    ("change", "key"),
    [(GONE, "id"), (CHANGED, "id"), (RENUMBERED, None)],
    ids=["a delete", "an update", "an update without a key"],
)
def test_a_policy_that_comes_while_the_worker_runs_is_waited_for(
    make_sql: MakeLab, change: dict[str, Any], key: str | None
) -> None:
    with ExitStack() as stack:
        account = Account(make_sql("postgres"), stack)
        if key is None:
            account.admin.run("ALTER TABLE shop.orders DROP CONSTRAINT orders_pkey")
        with account.lab.handler() as handler:
            handler.handle(orders({"id": 1, "n": 1}, {"id": 7, "n": 7}, key=key, types=TYPES))
            account.admin.run("ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY")
            account.admin.run("CREATE POLICY few ON shop.orders USING (n < 5) WITH CHECK (true)")
            own = orders(change, key=key, types=TYPES, offset=10)
            for _ in range(2):
                with pytest.raises(TargetUnavailable, match="BYPASSRLS"):
                    handler.handle(own)
            account.admin.run("ALTER ROLE narrow BYPASSRLS")
            handler.handle(own)
    left = [] if change is GONE else [{"id": 7, "n": 8}]
    assert account.admin.rows() == [{"id": 1, "n": 1}, *left]


# ---- locks


LOCKS = {
    "postgresql": ("LOCK TABLE shop.orders IN ACCESS EXCLUSIVE MODE", None),
    "mysql": ("LOCK TABLES shop.orders WRITE", "UNLOCK TABLES"),
}


@pytest.mark.parametrize("what", ["row", "table"])
def test_somebody_s_lock_is_waited_for_and_other_tables_go_on(server: SqlLab, what: str) -> None:
    lock, unlock = LOCKS[server.dialect]
    change = {"before": row(1), "after": {"id": 1, "n": 5}}
    with server.handler(timeout="3s") as handler:
        handler.handle(orders(row(1), types=TYPES))
        with server.engine.connect() as other:
            other.exec_driver_sql(lock if what == "table" else "UPDATE shop.orders SET n = 7 WHERE id = 1")
            with pytest.raises(TargetUnavailable) as waits:
                handler.handle(orders(change, types=TYPES, offset=1))
            assert waits.value.others_go_on
            handler.handle(orders(row(1), table="shop.items", types=TYPES))
            if what == "table" and unlock:
                other.exec_driver_sql(unlock)
        handler.handle(orders(change, types=TYPES, offset=1))
    assert server.rows(columns="id, n") == [{"id": 1, "n": 5}]


SLOW = {
    "postgresql": (
        "CREATE FUNCTION shop.slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(9 * (NEW.id = 2)::int); RETURN NEW; END $$",
        "CREATE TRIGGER slow BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.slow()",
    ),
    "mysql": (
        "CREATE TRIGGER shop.slow BEFORE INSERT ON shop.orders FOR EACH ROW "
        "SET NEW.n = NEW.n + SLEEP(9 * (NEW.id = 2))",
    ),
}


def test_a_statement_that_takes_too_long_is_no_outage(server: SqlLab) -> None:
    with server.handler(timeout="1s") as handler:
        handler.handle(orders(row(1), types=TYPES))
        for statement in SLOW[server.dialect]:
            server.run(statement)
        with pytest.raises(DatabaseError, match=r"statement timeout|max_statement_time"):
            handler.handle(orders(row(2), row(4), types=TYPES, offset=1))
        handler.handle(orders(row(3), types=TYPES, offset=3))
    assert numbers(server) == [1, 3]


def test_a_table_of_marks_that_is_gone_is_waited_for(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(row(1), types=TYPES))
        sql.run("ALTER TABLE binlane_marks RENAME TO away")
        with pytest.raises(TargetUnavailable, match="binlane_marks") as waits:
            handler.handle(orders(row(2), types=TYPES, offset=1))
        assert waits.value.others_go_on
        assert waits.value.retry_after
        sql.run("ALTER TABLE away RENAME TO binlane_marks")
        handler.handle(orders(row(2), types=TYPES, offset=1))
    assert numbers(sql) == [1, 2]


AUDITED = {
    "postgresql": (
        "CREATE FUNCTION shop.audit() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO shop.audit VALUES (NEW.id); RETURN NEW; END $$",
        "CREATE TRIGGER it BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.audit()",
    ),
    "mysql": (
        "CREATE TRIGGER shop.it BEFORE INSERT ON shop.orders FOR EACH ROW "
        "INSERT INTO shop.audit VALUES (NEW.id)",
    ),
}


@pytest.mark.parametrize("second", [0, "many"])
def test_a_trigger_whose_table_is_gone_is_waited_for(server: SqlLab, second: Any) -> None:
    """Also where rows are tried one by one, because one of them does not fit."""
    server.make("shop.orders", "id int PRIMARY KEY, n int")
    for statement in AUDITED[server.dialect]:
        server.run(statement)
    with server.handler() as handler:
        with pytest.raises(TargetUnavailable, match="audit") as waits:
            handler.handle(orders(row(1), {"id": 2, "n": second}, types=TYPES))
        assert waits.value.others_go_on
        server.run("CREATE TABLE shop.audit (id int)")
        handler.handle(orders(row(1), types=TYPES))
    assert numbers(server) == [1]


@pytest.mark.parametrize("code", ["0A000", "55000"])
def test_a_row_that_something_in_the_target_refuses_stops_no_table(make_sql: MakeLab, code: str) -> None:
    """As TimescaleDB refuses one of a compressed partition."""
    lab = make_sql("postgres")
    lab.make("shop.orders", "id int PRIMARY KEY, n int")
    lab.run(
        "CREATE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE 'compressed' USING ERRCODE = '{code}'; END $$"
    )
    lab.run(
        "CREATE TRIGGER it BEFORE INSERT ON shop.orders FOR EACH ROW WHEN (NEW.id = 2) "
        "EXECUTE FUNCTION shop.refuse()"
    )
    with lab.handler() as handler:
        with pytest.raises(DatabaseError, match="compressed"):
            handler.handle(orders(row(1), row(2), types=TYPES))
        handler.handle(orders(row(1), row(3), types=TYPES))
    assert numbers(lab) == [1, 3]


def test_rows_beside_a_statement_wait_for_a_trigger_s_table(server: SqlLab) -> None:
    server.make("shop.orders", "id int PRIMARY KEY, n int")
    for statement in AUDITED[server.dialect]:
        server.run(statement)
    added = {"sql": "ALTER TABLE orders ADD COLUMN m int", "op": "ddl"}
    with server.handler() as handler, pytest.raises(TargetUnavailable, match="audit") as waits:
        handler.handle(orders(row(1), {"id": 2, "n": "many"}, added, types=TYPES))
    assert waits.value.others_go_on


def test_a_locked_sqlite_file_is_waited_for(tmp_path: Path, make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    with lab.handler() as handler:
        handler.handle(orders(row(1), types=TYPES))
        handler._engine.dispose()  # type: ignore[union-attr]
        sa.event.listen(handler._engine, "connect", lambda one, _: one.execute("PRAGMA busy_timeout = 50"))
        with lab.engine.connect() as other:
            other.exec_driver_sql("BEGIN IMMEDIATE")
            with pytest.raises(TargetUnavailable, match="locked"):
                handler.handle(orders(row(2), types=TYPES, offset=1))
        handler.handle(orders(row(2), types=TYPES, offset=1))
    assert numbers(lab) == [1, 2]
