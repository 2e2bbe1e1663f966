"""`binlane checkpoint set`: run as a process against a real broker."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from checkpoint_site import AHEAD, RECORDS, TEN, Site, checkpoint, complaint, shown
from confluent_kafka import Consumer
from memory_store import loaded

from offsets.journal import Entry, Journal
from offsets.types import Checkpoint


def set_to(site: Site, config: Path, *where: object) -> subprocess.CompletedProcess[str]:
    return checkpoint("set", config, "--topic", site.topic, "--partition", 0, *where)


def test_a_position_is_moved_in_every_store(site: Site) -> None:
    site.file.save({site.first: Checkpoint(7, AHEAD[1:])})
    site.commit(Checkpoint(7, AHEAD[1:]))
    config = site.config(kafka={"properties": {"group.instance.id": "replica-0"}})
    done = set_to(site, config, "--offset", 2)
    assert done.returncode == 0, done.stderr
    assert f"{site.topic}[0] is now at 2" in done.stdout
    assert site.kafka() == {site.first: Checkpoint(2)}
    entry = site.file.load_entries([site.first])[site.first]
    assert entry.checkpoint == Checkpoint(2, (), site.topic_id(), 0)
    assert entry.acknowledged is not None
    assert entry.acknowledged.offset == 2
    assert "agree on 2" in shown(config)["partitions"][0]["start"]["reason"]


def test_a_group_that_never_ran_can_be_placed(site: Site) -> None:
    config = site.config(initial="latest")
    assert set_to(site, config, "--offset", RECORDS).returncode == 0
    assert site.kafka() == {site.first: Checkpoint(RECORDS)}
    assert shown(config)["partitions"][1]["start"]["place"] == "latest", "as without it"


def test_a_time_moves_to_the_first_record_from_then_on_and_says_whose_time_it_is(site: Site) -> None:
    done = set_to(site, site.config(), "--time", "2026-03-01T14:00:00+01:00")
    assert done.returncode == 0, done.stderr
    assert site.kafka() == {site.first: Checkpoint(3)}
    assert "is now at 3" in done.stdout
    assert "Kafka timestamp (not the source's time) at or after 2026-03-01T13:00:00.000Z" in done.stdout


def journal_of(site: Site) -> Journal:
    return Journal(site.folder / "state" / "journal", site.group)


def test_a_time_of_the_source_is_found_in_the_journal(site: Site) -> None:
    eight = int(TEN.timestamp() * 1000) - 7_200_000  # two hours before Kafka had it
    hours = [
        Entry(site.first, place, eight + (place - 1) * 3_600_000, site.topic_id()) for place in (2, 4, 7)
    ]
    journal_of(site).append(hours)
    done = set_to(site, site.config(), "--time", "2026-03-01T11:30:00Z")
    assert done.returncode == 0, done.stderr
    assert site.kafka() == {site.first: Checkpoint(4)}
    assert "is now at 4, in Kafka and in " in done.stdout
    assert "by source time, from the journal: all earlier changes happened before " in done.stdout
    assert "2026-03-01T11:30:00.000Z, and later ones start before offset 7" in done.stdout
    [moved, *_] = journal_of(site).history([site.first], 1)[site.first]
    assert (moved.offset, moved.source_ms, moved.moved) == (4, None, True)


@pytest.mark.parametrize(
    ("time", "offset", "why"),
    [
        ("2026-03-01T08:30:00Z", 0, "the journal starts later, at 2026-03-01T09:00:00.000Z of source time"),
        ("2026-03-01T15:00:00Z", 5, "the journal ends before, at 2026-03-01T14:00:00.000Z of source time"),
    ],
)
def test_a_time_that_the_journal_does_not_hold_is_kafkas_and_why_is_told(
    site: Site, time: str, offset: int, why: str
) -> None:
    eight = int(TEN.timestamp() * 1000) - 7_200_000
    hours = [Entry(site.first, place, eight + (place - 1) * 3_600_000) for place in (2, 4, 7)]
    journal_of(site).append(hours)
    done = set_to(site, site.config(), "--time", time)
    assert done.returncode == 0, done.stderr
    assert site.kafka() == {site.first: Checkpoint(offset)}
    assert "Kafka timestamp (not the source's time)" in done.stdout
    assert why in done.stdout


@pytest.mark.parametrize("journal", [None, {"max_age": "1h"}])
def test_without_a_journal_and_with_one_of_another_topic_time_is_kafkas(
    site: Site, journal: dict[str, str] | None
) -> None:
    journal_of(site).append(
        [Entry(site.first, 2, 0, "of-another"), Entry(site.first, 9, 2**42, "of-another")]
    )
    done = set_to(site, site.config(journal=journal), "--time", "2026-03-01T13:00:00Z")
    assert done.returncode == 0, done.stderr
    assert site.kafka() == {site.first: Checkpoint(3)}
    why = "there is no journal" if journal is None else "the journal has no source time for it"
    assert why in done.stdout


def test_a_journal_that_cannot_be_written_is_told_and_the_position_moved(site: Site) -> None:
    (site.folder / "state").mkdir()
    (site.folder / "state" / "journal").write_text("not a folder")
    done = set_to(site, site.config(), "--offset", 2)
    assert done.returncode == 0
    assert "the position was moved, but the journal could not record this" in done.stderr
    assert site.kafka() == {site.first: Checkpoint(2)}


def test_a_time_after_the_last_record_moves_to_the_end_and_says_so(site: Site) -> None:
    done = set_to(site, site.config(), "--time", "2030-01-01")
    assert done.returncode == 0, done.stderr
    assert site.kafka() == {site.first: Checkpoint(RECORDS)}
    assert "so this is the end" in done.stdout


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest, site: Site) -> Iterator[Consumer]:
    consumer = site.consumer(**{"group.protocol": request.param, "client.id": "binlane"})
    consumer.subscribe([site.topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def test_an_active_group_is_left_alone(site: Site, member: Consumer) -> None:
    site.file.save({site.first: Checkpoint(7)})
    member.commit(offsets=[confluent_kafka.TopicPartition(*site.first, 7)], asynchronous=False)
    done = set_to(site, site.config(), "--offset", 2)
    assert done.returncode == 1
    said = complaint(done)
    assert f"group {site.group} is active (binlane at 127.0.0.1)" in said
    assert "stop its workers first" in said
    assert site.kafka() == {site.first: Checkpoint(7)}
    assert loaded(site.file, [site.first]) == {site.first: Checkpoint(7)}


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        (["--partition", 0, "--offset", 11], 1, "has offsets 0 to 10, not 11; the position was not changed"),
        (["--partition", 5, "--offset", 0], 1, "has no partition 5: "),
        (["--partition", 0], 2, "either --offset or --time"),
        (["--partition", 0, "--offset", 1, "--time", "2026-03-01"], 2, "either --offset or --time"),
        (["--partition", 0, "--time", "noon"], 2, "ISO 8601"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    site: Site, where: Sequence[object], code: int, said: str
) -> None:
    site.commit(Checkpoint(4))
    done = checkpoint("set", site.config(), "--topic", site.topic, *where)
    assert done.returncode == code
    assert said in complaint(done)
    assert site.kafka() == {site.first: Checkpoint(4)}


def test_a_missing_topic_is_told(site: Site) -> None:
    done = checkpoint("set", site.config(), "--topic", "cdc.nowhere", "--partition", 0, "--offset", 0)
    assert done.returncode == 1
    assert "there is no such topic" in complaint(done)


def test_a_local_file_that_cannot_be_written_is_told(site: Site) -> None:
    (site.folder / "state").write_text("not a folder")
    done = set_to(site, site.config(), "--offset", 2)
    assert done.returncode == 1
    assert "moved in Kafka, but not in the local file" in complaint(done)
    assert site.kafka() == {site.first: Checkpoint(2)}


def test_an_unusable_configuration_is_told_by_its_key(site: Site) -> None:
    done = set_to(site, site.config(initial="earlyest"), "--offset", 2)
    assert done.returncode == 2
    assert "checkpoint.initial" in complaint(done)
