"""Commands about checkpoints in a database: run as a process on a real broker."""

from __future__ import annotations

from checkpoint_site import AHEAD, Site, checkpoint, complaint, shown
from memory_store import loaded

from handlers.sql.target.engine import check_url
from offsets.stores.sql import SqlStore
from offsets.types import Checkpoint


def url_of(site: Site) -> str:
    return f"sqlite:///{site.folder}/checkpoints.db"


def database(site: Site) -> SqlStore:
    return SqlStore(check_url(url_of(site)), site.group)


def test_what_the_database_knows_is_what_a_start_goes_by(site: Site) -> None:
    marks = site.commit(Checkpoint(3, AHEAD[:1]))
    store = database(site)
    store.open()
    store.save({site.first: Checkpoint(3, AHEAD)}, marks)
    store.close()
    found = shown(site.config(url=url_of(site)))
    first = found["partitions"][0]
    assert "binlane_checkpoints" in found["sql"]
    assert first["stores"]["sql"]["ahead"] == [[5, 6], [8, 10]]
    assert (first["start"]["source"], first["start"]["offset"]) == ("sql", 3)
    assert "the database and Kafka agree on 3" in first["start"]["reason"]


def test_a_new_store_begins_with_what_kafka_has(site: Site) -> None:
    site.file.save({site.first: Checkpoint(2, AHEAD)}, site.commit(Checkpoint(4, AHEAD[1:])))
    start = shown(site.config(url=url_of(site)))["partitions"][0]["start"]
    assert (start["source"], start["offset"], start["ahead"]) == ("kafka", 4, [[8, 10]])


def test_a_position_is_moved_in_the_database(site: Site) -> None:
    config = site.config(url=url_of(site))
    done = checkpoint("set", config, "--topic", site.topic, "--partition", 0, "--offset", 2)
    assert done.returncode == 0, done.stderr
    assert "binlane_checkpoints" in done.stdout
    assert loaded(database(site), [site.first]) == {site.first: Checkpoint(2, (), site.topic_id(), 2)}
    assert loaded(site.file, [site.first]) == {}


def test_a_database_that_cannot_be_reached_is_told_without_its_password(site: Site) -> None:
    done = checkpoint("show", site.config(url="postgresql://me:hunter2@127.0.0.1:1/x"), "--json")
    assert done.returncode == 1
    assert "cannot be reached" in complaint(done)
    assert "hunter2" not in done.stderr
