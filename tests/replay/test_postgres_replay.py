"""Every record of PostgreSQL's streams through the format and the `sql` handler: what is there at the end are
the source's own rows, but for what the records do not tell."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from captured import POSTGRES_STREAMS
from postgres_differences import expected
from postgres_rows import POSTGRESQL
from postgres_streams import batches_of_postgres
from rejecting import rejections
from replaying import Replay
from replica import Replica
from servers.postgres_server import PostgresServer
from topics import Source

from handlers import HandlerContext
from handlers.sql.handler import SqlHandler
from worker.local.broker import Broker

# Rows under a new key, without their large values, whose old half is in another record.
REJECTED = {"public.toasted_index": 1}
OF_STREAMS = {
    "postgres-plain": {"public.toasted": 2},
    # Of tables without a key: updates that do not say which row they were.
    "postgres-unwrap": {"public.no_key_full": 10, "public.toasted_nokey": 19},
}
CAUSES = r"(: a delete of the key {'id': 0}| holds -9223372036853775810).*"


@pytest.mark.parametrize(
    ("target", "stream"),
    [
        *(
            pytest.param("sqlite", stream, marks=pytest.mark.soak if stream == "postgres-plain" else ())
            for stream in POSTGRES_STREAMS
        ),
        # What the ways to write a record make of it, SQLite shows as well.
        *(
            pytest.param("postgresql", stream, marks=() if stream == "postgres-plain" else pytest.mark.soak)
            for stream in POSTGRES_STREAMS
        ),
    ],
)
def test_a_stream_of_postgresql_leaves_the_rows_of_its_source(
    stream: str, target: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'replica.db'}" if target == "sqlite" else postgres.new_database(stream)
    prepare(url)
    handler = SqlHandler(url=url)
    handler.open(HandlerContext(worker="replay", handler="sql", folder=tmp_path))
    refused: list[str] = []
    rejected = Counter(
        batch.table for batch in batches_of_postgres(stream, refused) for _ in rejections(handler, batch)
    )
    handler.close()
    assert rejected == REJECTED | OF_STREAMS.get(stream, {})
    assert Counter(re.sub(CAUSES, r"\1", one) for one in refused) == {
        "public.ri_index: a delete of the key {'id': 0}": 3,
        "public.toasted_index: a delete of the key {'id': 0}": 2,
        # 294276-12-31 23:59:59.999999 as the connector sends it.
        "public.times: column 'c_ts' of type datetime(6) holds -9223372036853775810": 8,
    }
    assert Replica(url, workload=POSTGRESQL).differences() == expected(stream, target)


@pytest.mark.parametrize("stream", POSTGRES_STREAMS)
def test_every_change_can_be_encoded_and_pickled(stream: str) -> None:
    """As handlers of users do: their types are plain texts."""
    encode, seen = msgspec.json.Encoder(enc_hook=str).encode, set[int]()
    for batch in batches_of_postgres(stream, []):
        for change in batch.changes:
            encode(change)
            if id(change.types) not in seen:
                seen.add(id(change.types))
                again = pickle.loads(pickle.dumps(change))
                assert again.types == change.types
                assert {type(text) for text in (change.types or {}).values()} <= {str}


@pytest.mark.long
def test_the_topic_of_transactions_puts_truncates_in_their_place(
    sources: Callable[..., Source], broker: Broker, tmp_path: Path
) -> None:
    """Three partitions a topic: a TRUNCATE is in another one than most of its rows."""
    stream, url = "postgres-plain", f"sqlite:///{tmp_path / 'replica.db'}"
    handler = {"type": "sql", "url": url}
    tables = ["crm.trunc_one", "crm.trunc_a", "crm.trunc_b"]
    rules = [{"match": table, "handlers": [handler]} for table in tables]
    replay = Replay(sources(stream), broker, rules, tmp_path / "worker")
    replay.config |= {"debezium": {"source": "postgresql"}, "on_undecodable": "skip"}
    try:
        replay.to_the_end(within=120)
    finally:
        replay.close()
    assert Replica(url, workload=POSTGRESQL).differences(tables) == {}


def prepare(url: str) -> None:
    """Make the table of which a column's type changes: no record tells it."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        is_postgresql = engine.dialect.name == "postgresql"
        if url.endswith("postgres-plain"):
            for extension in ("hstore", "citext", "ltree"):  # else they become json and texts
                connection.exec_driver_sql(f"CREATE EXTENSION {extension}")
        name = "public.evolving" if is_postgresql else '"public.evolving"'
        connection.exec_driver_sql(f"CREATE TABLE {name} (id integer PRIMARY KEY, a bigint, age text)")
    engine.dispose()
