"""What the targets hold at the end, beside what the source sent."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import psycopg
from psycopg import sql

from storm.parts.load import Table

__all__ = ["faults_of_database", "faults_of_files", "faults_of_spark", "make_tables"]

_GUARD = """
CREATE SCHEMA shop;
CREATE TABLE storm_faults (what text, relation text, before bigint, after bigint);
CREATE FUNCTION storm_goes_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.seq <= OLD.seq THEN
    INSERT INTO storm_faults VALUES (
      CASE WHEN NEW.seq = OLD.seq THEN 'applied twice' ELSE 'set back' END, TG_TABLE_NAME, OLD.seq, NEW.seq);
  END IF;
  RETURN NEW;
END $$;
"""
_TABLE = """
CREATE TABLE shop.{name} (id bigint PRIMARY KEY, seq bigint NOT NULL, name varchar(64));
CREATE TRIGGER goes_on BEFORE UPDATE ON shop.{name} FOR EACH ROW EXECUTE FUNCTION storm_goes_on();
"""


def _connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def make_tables(url: str, names: list[str]) -> None:
    """Tables that remember each change which brings a row an earlier state, or the same once more."""
    with _connect(url) as connection:
        connection.execute(_GUARD)
        for name in names:
            connection.execute(sql.SQL(_TABLE).format(name=sql.Identifier(name)))


def faults_of_database(url: str, tables: list[Table]) -> list[str]:
    """Rows that are not as the source's last change left them, and each that was ever set back."""
    with _connect(url) as connection:
        found = [str(row) for row in connection.execute("SELECT * FROM storm_faults LIMIT 20")]
        for table in tables:
            query = sql.SQL("SELECT id, seq FROM shop.{}").format(sql.Identifier(table.name))
            rows = {int(str(one)): int(str(seq)) for one, seq in connection.execute(query)}
            found += _differences(f"PostgreSQL {table.name}", rows, table)
    return found


def faults_of_files(folders: list[Path], tables: list[Table]) -> list[str]:
    """Records that are in no worker's files, and files in which a table jumps ahead over what nobody has.

    How the lines of two workers lie in time is not to be seen in their files.
    """
    found = []
    for table in tables:
        streams: dict[Path, list[int]] = defaultdict(list)
        for folder in folders:
            for path in _in_order(folder / "shop" / table.name):
                for line in path.read_bytes().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        streams[folder].append(int(json.loads(line)["after"]["seq"]))
        everywhere = {seq for stream in streams.values() for seq in stream}
        missing = sorted(set(range(table.sent)) - everywhere)
        if missing:
            found.append(f"files {table.name}: {len(missing)} records are missing: {missing[:5]}")
        for folder, stream in streams.items():
            others = {seq for place, each in streams.items() if place != folder for seq in each}
            had: set[int] = set()
            last = -1
            for seq in stream:
                jumped = set(range(last + 1, seq)) - had - others
                if jumped:
                    found.append(f"files {table.name} of {folder.parent.name}: {seq} comes after {last}")
                had.add(seq)
                last = seq
    return found


def _in_order(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    # Not by their names: the worker's clock has jumped.
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def faults_of_spark(lake: Path, tables: list[Table]) -> list[str]:
    """Replicas that differ from the source, and changelogs that lack or repeat a change."""
    from delta_reading import read_delta

    found = []
    for table in tables:
        rows = {int(row["id"]): int(row["seq"]) for row in read_delta(lake / "replica" / table.name)}
        found += _differences(f"Spark {table.name}", rows, table)
        told = read_delta(lake / "changelog" / table.name)
        told.sort(key=lambda row: (row["_partition"], row["_offset"], row["_index"]))
        seqs = [int(row["seq"]) for row in told]
        if seqs != list(range(table.sent)):
            at = [at for at, seq in enumerate(seqs) if seq != at][:1]
            found.append(f"Spark's changelog of {table.name}: {len(seqs)} of {table.sent}; differs at {at}")
    return found


def _differences(where: str, rows: dict[int, int], table: Table) -> list[str]:
    expected = table.expected()
    wrong = [
        (key, rows.get(key), expected.get(key))
        for key in sorted(rows.keys() | expected)
        if rows.get(key) != expected.get(key)
    ]
    return [f"{where}: {len(wrong)} rows are wrong; (id, found, expected): {wrong[:5]}"] if wrong else []
