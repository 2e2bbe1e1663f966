"""Checkpoints in a database that does not answer, forgets a connection, or holds what is not binlane's."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing

import pytest
import sqlalchemy as sa
from memory_store import loaded as loaded_from
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from servers.slow_relay import SlowRelay

from handlers.sql.target.engine import check_url
from offsets.stores.interface import CheckpointError, StoreAway
from offsets.stores.sql import TABLE, SqlStore
from offsets.types import Checkpoint, TopicPartition

SHOP = TopicPartition("shop", 0)
LATER = 60.0
"""Seconds that nothing here may take."""


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> PostgresServer | MariaDBServer:
    server: PostgresServer | MariaDBServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def url(server: PostgresServer | MariaDBServer) -> sa.URL:
    return check_url(server.new_database("faults"))


def read(url: sa.URL, text: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        return [tuple(row) for row in connection.execute(sa.text(text))]


def loaded(url: sa.URL, group: str = "one") -> dict[TopicPartition, Checkpoint]:
    with closing(SqlStore(url, group)) as store:
        return loaded_from(store, [SHOP])


def saved(store: SqlStore, offset: int) -> None:
    """Save it, however often that has to be tried."""
    end = time.monotonic() + LATER
    while True:
        try:
            store.save({SHOP: Checkpoint(offset)})
        except StoreAway:
            assert time.monotonic() < end
            time.sleep(0.1)
        else:
            return


def test_a_database_that_takes_what_is_sent_and_does_not_answer_is_given_up(postgres: PostgresServer) -> None:
    url = check_url(postgres.new_database("frozen"))
    store = SqlStore(url, "one", identity="w-0", deadline=1)
    store.save({SHOP: Checkpoint(1)})
    [(session,)] = read(url, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'")
    assert isinstance(session, int)
    errors: list[Exception] = []

    def save() -> None:
        try:
            store.save({SHOP: Checkpoint(2)})
        except StoreAway as error:
            errors.append(error)

    os.kill(session, signal.SIGSTOP)  # of a server that this process has started
    try:
        saving = threading.Thread(target=save)
        saving.start()
        saving.join(LATER)
        assert not saving.is_alive()
        [error] = errors  # the session that is stopped still has the identity
        assert "has not ended a lost connection of this worker" in str(error)
    finally:
        os.kill(session, signal.SIGCONT)
    saved(store, 3)
    store.close()
    assert loaded(url) == {SHOP: Checkpoint(3)}


def test_a_connection_that_is_lost_does_not_keep_the_identity(url: sa.URL) -> None:
    assert url.port is not None
    with SlowRelay(url.port) as relay:
        store = SqlStore(url.set(port=relay.port), "one", identity="w-0", deadline=1)
        store.save({SHOP: Checkpoint(1)})
        relay.hold()  # nothing of this connection arrives any more, nor that it ends
        saved(store, 2)
        other = SqlStore(url, "one", identity="w-0", deadline=1)
        with pytest.raises(StoreAway, match="another worker"):
            other.open()
        store.close()
    assert loaded(url) == {SHOP: Checkpoint(2)}


def test_a_row_that_somebody_else_holds_is_told_and_the_identity_is_kept(url: sa.URL) -> None:
    store = SqlStore(url, "one", identity="w-0", deadline=1)
    store.save({SHOP: Checkpoint(1)})
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as other:
        other.execute(sa.text(f"SELECT * FROM {TABLE} FOR UPDATE"))
        for _ in range(2):
            with pytest.raises(StoreAway, match=r"[Ll]ock wait timeout|statement timeout"):
                store.save({SHOP: Checkpoint(2)})
    store.save({SHOP: Checkpoint(3)})
    assert loaded_from(store, [SHOP]) == {SHOP: Checkpoint(3)}
    store.close()


def test_the_same_identity_in_another_database_is_another(server: PostgresServer | MariaDBServer) -> None:
    one = SqlStore(check_url(server.new_database("staging")), "one", identity="w-0")
    other = SqlStore(check_url(server.new_database("production")), "one", identity="w-0")
    one.open()
    other.open()
    one.close()
    other.close()


def test_what_the_url_asks_of_the_session_holds(postgres: PostgresServer) -> None:
    url = check_url(postgres.new_database("schemas"))
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE SCHEMA kept"))
    store = SqlStore(
        url.update_query_dict({"options": "-csearch_path=kept", "application_name": "mine"}), "one"
    )
    store.save({SHOP: Checkpoint(1)})
    assert read(url, f"SELECT schemaname FROM pg_tables WHERE tablename = '{TABLE}'") == [("kept",)]
    names = read(url, "SELECT application_name FROM pg_stat_activity WHERE application_name = 'mine'")
    assert names == [("mine",)]
    store.close()


def test_a_table_of_somebody_else_is_refused_at_once(url: sa.URL) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {TABLE} (id char(32), amount int)"))
    with pytest.raises(CheckpointError, match="has no column entry, format, group_id") as caught:
        SqlStore(url, "one").open()
    assert not isinstance(caught.value, StoreAway)


def test_a_damaged_row_is_told_and_no_other_group_minds(url: sa.URL) -> None:
    for number, group in enumerate(("one", "two"), 1):
        with closing(SqlStore(url, group)) as store:
            store.save({SHOP: Checkpoint(number)})
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {TABLE} SET entry = '[\"x' WHERE group_id = 'one'"))
    with pytest.raises(CheckpointError, match=r"damaged row for shop \[0\] of group one") as caught:
        loaded(url)
    assert not isinstance(caught.value, StoreAway)
    assert loaded(url, "two") == {SHOP: Checkpoint(2)}


def test_a_proof_leaves_nothing_behind_and_needs_the_right_to_write(
    server: PostgresServer | MariaDBServer, url: sa.URL
) -> None:
    store = SqlStore(url, "one")
    store.prove()
    store.close()
    assert read(url, f"SELECT * FROM {TABLE}") == []
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    name = f"reader_{url.database}"[:30]
    grants = (
        [f"CREATE USER {name} PASSWORD 'weak'", f"GRANT SELECT ON {TABLE} TO {name}"]
        if isinstance(server, PostgresServer)
        else [
            f"CREATE USER '{name}'@'%' IDENTIFIED BY 'weak'",
            f"GRANT SELECT ON `{url.database}`.* TO '{name}'@'%'",
        ]
    )
    with engine.begin() as connection:
        for grant in grants:
            connection.execute(sa.text(grant))
    with pytest.raises(StoreAway, match=r"denied.*its user may create and write that table") as caught:
        SqlStore(url.set(username=name, password="weak"), "one").prove()
    assert "weak" not in str(caught.value)


def test_a_password_among_what_the_url_asks_is_not_shown() -> None:
    url = check_url("postgresql://shop@localhost/shop?password=hunter2")
    assert "hunter2" not in SqlStore(url, "one").place
