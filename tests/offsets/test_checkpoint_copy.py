"""`binlane checkpoint copy`, and the other commands with a database: run as a process on a real broker."""

from __future__ import annotations

from checkpoint_site import AHEAD, Site, checkpoint, complaint, shown
from memory_store import loaded

from handlers.sql.target.engine import check_url
from offsets.stores.file_format import FileEntry
from offsets.stores.sql import SqlStore
from offsets.types import Checkpoint, TopicPartition


def url_of(site: Site) -> str:
    return f"sqlite:///{site.folder}/checkpoints.db"


def database(site: Site) -> SqlStore:
    return SqlStore(check_url(url_of(site)), site.group)


def test_what_the_file_knows_comes_into_a_database_and_is_what_a_start_goes_by(site: Site) -> None:
    marks = site.commit(Checkpoint(3, AHEAD[:1]))
    elsewhere = TopicPartition("cdc.elsewhere", 5)
    site.file.save({site.first: Checkpoint(3, AHEAD), elsewhere: Checkpoint(77)}, marks)
    done = checkpoint("copy", site.config(), "--to", url_of(site))
    assert done.returncode == 0, done.stderr
    assert "2 partitions copied from" in done.stdout
    store = database(site)
    assert store.entries() == {
        site.first: FileEntry(3, AHEAD, marks[site.first]),
        elsewhere: FileEntry(77),
    }
    store.close()
    found = shown(site.config(url=url_of(site)))
    first = found["partitions"][0]
    assert "binlane_checkpoints" in found["sql"]
    assert first["stores"]["sql"]["ahead"] == [[5, 6], [8, 10]]
    assert (first["start"]["source"], first["start"]["offset"]) == ("sql", 3)
    assert "the database and Kafka agree on 3" in first["start"]["reason"]


def test_a_position_is_moved_in_the_database(site: Site) -> None:
    config = site.config(url=url_of(site))
    done = checkpoint("set", config, "--topic", site.topic, "--partition", 0, "--offset", 2)
    assert done.returncode == 0, done.stderr
    assert "binlane_checkpoints" in done.stdout
    assert loaded(database(site), [site.first]) == {site.first: Checkpoint(2, (), site.topic_id(), 2)}
    assert loaded(site.file, [site.first]) == {}


def test_kafka_gives_and_takes_as_well(site: Site) -> None:
    site.commit(Checkpoint(4, AHEAD[1:]))
    folder = site.folder / "other"
    done = checkpoint("copy", site.config(), "--from", "kafka", "--to", folder)
    assert done.returncode == 0, done.stderr
    start = shown(site.config(directory=str(folder)))["partitions"][0]["start"]
    assert (start["source"], start["offset"], start["ahead"]) == ("file", 4, [[8, 10]])
    site.commit(Checkpoint(0))
    done = checkpoint("copy", site.config(), "--from", folder, "--to", "kafka", "--replace")
    assert done.returncode == 0, done.stderr
    assert "1 partitions copied" in done.stdout
    assert "1 of which it had at other positions" in done.stdout
    assert site.kafka() == {site.first: Checkpoint(4, AHEAD[1:])}


def test_another_position_is_kept_unless_it_is_to_be_replaced(site: Site) -> None:
    site.file.save({site.first: Checkpoint(3)})
    store = database(site)
    store.save({site.first: Checkpoint(5)})
    done = checkpoint("copy", site.config(), "--to", url_of(site))
    assert done.returncode == 1
    assert "5, not 3; nothing was copied. --replace overwrites them" in complaint(done)
    assert loaded(store, [site.first]) == {site.first: Checkpoint(5)}
    assert checkpoint("copy", site.config(), "--to", url_of(site), "--replace").returncode == 0
    assert loaded(store, [site.first]) == {site.first: Checkpoint(3)}
    store.close()


def test_an_empty_store_and_an_unusable_url_are_told_without_its_password(site: Site) -> None:
    done = checkpoint("copy", site.config(), "--to", url_of(site))
    assert done.returncode == 1
    assert "has no position of this group" in complaint(done)
    site.file.save({site.first: Checkpoint(3)})
    for url in ("oracle://me:hunter2@db/x", "postgresql://me:hunter2@127.0.0.1:1/x"):
        done = checkpoint("copy", site.config(), "--to", url)
        assert done.returncode == 1
        assert "hunter2" not in complaint(done)
    done = checkpoint("show", site.config(url="postgresql://me:hunter2@127.0.0.1:1/x"), "--json")
    assert done.returncode == 1
    assert "cannot be reached" in complaint(done)
    assert "hunter2" not in done.stderr
