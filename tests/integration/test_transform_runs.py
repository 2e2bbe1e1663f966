"""A transform before a database, over crashes, dead letters, reloads of its code's name, and of its table."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from integration.conftest import MakeStage
from integration.letters import binlane, letters, with_dead_letters
from integration.process import eventually
from integration.test_reload import rewrite

from worker.local.broker import Broker

MODULE = '''
from pathlib import Path

from msgspec.structs import replace


def parts(change, note="before"):
    """Two rows of each, without a key: one that is applied twice would show."""
    row = change.after
    if row["id"] == 13 and not Path(__file__).with_name("mended").exists():
        raise KeyError("no country of 13")
    rows = ({"id": row["id"], "n": number, "note": note, "seen": repr(row)} for number in (0, 1))
    return [replace(change, after=made, key_columns=None, types=None) for made in rows]


def others(change):
    return parts(change, "after")
'''


def found(file: Path) -> Counter[tuple[int, int, str]]:
    with closing(sqlite3.connect(file)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'shop.t0'").fetchall():
            return Counter()
        rows = connection.execute('SELECT id, n, note, seen FROM "shop.t0"').fetchall()
    assert not any("row " in seen for *_, seen in rows), "the name is masked, so the function did not see it"
    return Counter((number, n, note) for number, n, note, _ in rows)


def test_each_change_passes_the_transform_into_the_database_once(
    make_stage: MakeStage, broker: Broker, tmp_path: Path
) -> None:
    stage = make_stage(1)
    broker.create_topic(f"{stage.topic}.dead", 1)
    file = tmp_path / "replica.db"
    table = {
        "match": "shop.*",
        "transform": "parting:parts",
        "columns": {"mask": {"name": "redact"}},
        "handlers": [{"type": "sql", "url": f"sqlite:///{file}"}],
        "batch": {"max_records": 20},
        "retry": {"max_attempts": 2, "initial_delay": "10ms"},
        "on_failure": "dead_letter",
    }
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage))
    (worker.folder / "parting.py").write_text(MODULE)
    source = stage.source()
    source.insert("t0", rows=3, records=300)
    source.flush()
    worker.start()
    eventually(lambda: found(file).total() > 200, what="some rows are there", every=0.01)
    worker.kill9()
    worker.start()
    stage.wait_committed_to_the_end()
    expected = {(number, n, "before"): 1 for number in range(900) if number != 13 for n in (0, 1)}
    assert found(file) == expected

    [letter] = letters(stage)
    assert dict(letter.headers() or [])["binlane.error"] == (
        b"RuntimeError: transform parting:parts: KeyError: 'no country of 13'"
    )
    (worker.folder / "mended").touch()
    done = binlane(worker, "dead-letters", "replay", "CONFIG", "--all", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert found(file) == expected | {(13, n, "before"): 1 for n in (0, 1)}

    rewrite(worker, tables=[table | {"transform": "parting:others"}])
    source.insert("t0", rows=3, records=10)
    source.flush()
    stage.wait_committed_to_the_end()
    assert found(file)[929, 1, "after"] == 1
    assert found(file).total() == 930 * 2
    done = binlane(worker, "reload", "CONFIG", "--table", "shop.t0", "--from-beginning")
    assert done.returncode == 0, done.stdout + done.stderr
    assert found(file) == {(number, n, "after"): 1 for number in range(930) for n in (0, 1)}
    assert worker.sigterm() == 0
