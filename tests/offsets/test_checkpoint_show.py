"""`binlane checkpoint show`: run as a process against a real broker."""

from __future__ import annotations

import json

import pytest
from checkpoint_site import AHEAD, RECORDS, TEN, Site, checkpoint, complaint, shown, started_checkpoint

from offsets.journal import Entry, Journal
from offsets.types import Checkpoint
from worker.local.broker import Broker


def test_a_group_without_a_past_begins_at_initial(site: Site) -> None:
    found = shown(site.config(initial="latest"))
    assert found["group"] == site.group
    assert [(each["topic"], each["partition"]) for each in found["partitions"]] == [
        (site.topic, 0),
        (site.topic, 1),
    ]
    first = found["partitions"][0]
    assert (first["beginning"], first["end"]) == (0, RECORDS)
    assert first["stores"] == {"file": None, "kafka": None}
    assert (first["start"]["offset"], first["start"]["place"]) == (RECORDS, "latest")
    assert first["start"]["source"] == "initial"
    assert "neither the local file nor Kafka" in first["start"]["reason"]


def test_every_store_is_shown_with_what_is_finished_ahead(site: Site) -> None:
    topic_id = site.topic_id()
    marks = site.commit(Checkpoint(3, AHEAD[:1], topic_id))
    site.file.save({site.first: Checkpoint(3, AHEAD, topic_id)}, marks)
    first = shown(site.config())["partitions"][0]
    assert first["stores"] == {
        "file": {
            "offset": 3,
            "finished_ahead": 3,
            "ahead": [[5, 6], [8, 10]],
            "acknowledged": 3,
            "topic_id": topic_id,
        },
        "kafka": {"offset": 3, "finished_ahead": 1, "ahead": [[5, 6]], "topic_id": topic_id},
    }
    assert first["topic_id"] == topic_id
    assert first["start"]["offset"] == 3
    assert first["start"]["ahead"] == [[5, 6], [8, 10]]
    assert "agree on 3" in first["start"]["reason"]


def test_what_the_file_says_is_finished_ahead_does_not_count_behind_a_commit_of_another(site: Site) -> None:
    """It went on at the same offset with what it knew, and repeats the rest."""
    marks = site.commit(Checkpoint(3, AHEAD[:1]))
    site.file.save({site.first: Checkpoint(3, AHEAD)}, marks)
    site.commit(Checkpoint(3, AHEAD[:1]))
    start = shown(site.config())["partitions"][0]["start"]
    assert (start["offset"], start["source"], start["ahead"]) == (3, "kafka", [[5, 6]])
    assert "another worker" in start["reason"]


def test_what_was_remembered_of_another_topic_of_that_name_does_not_count(site: Site) -> None:
    site.file.save({site.first: Checkpoint(7, AHEAD[1:], "of-another")})
    first, second = shown(site.config(initial="latest"))["partitions"]
    assert (first["start"]["place"], first["start"]["ahead"]) == ("earliest", [])
    assert f"id of-another, but the present id is {site.topic_id()}" in first["start"]["reason"]
    assert second["start"]["place"] == "earliest", "the group read the topic before it was made anew"


def test_a_partition_that_was_added_to_what_the_group_reads_begins_at_its_beginning(site: Site) -> None:
    site.commit(Checkpoint(5, (), None, 2))
    assert shown(site.config(initial="latest"))["partitions"][1]["start"]["place"] == "latest"
    site.commit(Checkpoint(5, (), None, 1))
    start = shown(site.config(initial="latest"))["partitions"][1]["start"]
    assert (start["place"], start["source"]) == ("earliest", "initial")
    assert "added later" in start["reason"]


def test_a_topic_that_came_after_the_group_began_begins_at_its_beginning(site: Site, broker: Broker) -> None:
    later = f"{site.topic}.later"
    broker.create_topic(later, 1)
    site.commit(Checkpoint(5))

    def begins(*topics: str) -> str:
        found = shown(site.config({"topics": list(topics)}, initial="latest"))["partitions"]
        return str(next(each["start"]["place"] for each in found if each["topic"] == later))

    assert begins(f"^{site.topic}") == "earliest"
    assert begins(site.topic, later) == "latest", "a person has added it"


def test_a_topic_came_later_if_only_the_file_knows_the_group(site: Site, broker: Broker) -> None:
    later = f"{site.topic}.later"
    broker.create_topic(later, 1)
    site.file.save({site.first: Checkpoint(5)}, {})
    found = shown(site.config({"topics": [f"^{site.topic}"]}, initial="latest"))["partitions"]
    assert [each["start"]["place"] for each in found if each["topic"] == later] == ["earliest"]


def test_a_position_that_somebody_moved_in_kafka_wins(site: Site) -> None:
    site.file.save({site.first: Checkpoint(7)}, site.commit(Checkpoint(7)))
    site.commit(Checkpoint(2))
    start = shown(site.config())["partitions"][0]["start"]
    assert (start["offset"], start["source"]) == (2, "kafka")
    assert "moved" in start["reason"]


@pytest.mark.parametrize(
    ("initial", "offset"),
    [("2026-03-01T12:30:00Z", 3), ("2030-01-01T00:00:00Z", RECORDS), ("2020-01-01T00:00:00Z", 0)],
)
def test_a_time_begins_at_the_first_record_from_then_on(site: Site, initial: str, offset: int) -> None:
    site.commit(Checkpoint(5))
    start = shown(site.config(initial=initial, force=True))["partitions"][0]["start"]
    assert (start["offset"], start["source"]) == (offset, "force")


def test_an_offset_that_kafka_does_not_have_is_told(site: Site) -> None:
    site.commit(Checkpoint(400))
    start = shown(site.config())["partitions"][0]["start"]
    assert (start["place"], start["offset"]) == (400, 0)
    assert start["lost"] == f"Kafka has nothing from {RECORDS} on: the topic was recreated or truncated"


def test_topics_are_found_by_regular_expression_and_missing_ones_told(site: Site) -> None:
    config = site.config(kafka={"topics": [f"^{site.topic[:-3]}", "cdc.no.such"]})
    found = shown(config)
    assert {each["topic"] for each in found["partitions"]} == {site.topic}
    assert found["warnings"] == ["no topic in Kafka matches cdc.no.such"]


def test_topics_with_ddl_are_shown_too(site: Site) -> None:
    config = site.config(kafka={"topics": ["cdc.no.such"], "ddl_topics": [site.topic]})
    config.write_text(config.read_text() + "format: debezium\n")
    assert {each["topic"] for each in shown(config)["partitions"]} == {site.topic}


def test_people_get_a_table(site: Site) -> None:
    site.file.save({site.first: Checkpoint(3, AHEAD)}, site.commit(Checkpoint(3)))
    done = checkpoint("show", site.config())
    assert done.returncode == 0
    assert done.stderr == ""
    for text in (f"group {site.group}", f"{site.topic}[0]", "0 to 10", "+3 ahead", "agree on 3", "(file)"):
        assert text in done.stdout


def test_the_history_of_each_partition_is_told_newest_first(site: Site) -> None:
    config = site.config()
    second = int(TEN.timestamp() * 1000)
    journal = Journal(site.folder / "state" / "journal", site.group)
    journal.append([Entry(site.first, place, second + place) for place in range(1, 31)])
    assert "history" not in shown(config)["partitions"][0]
    done = checkpoint("set", config, "--topic", site.topic, "--partition", 0, "--offset", 4)
    assert done.returncode == 0, done.stderr
    done = checkpoint("show", config, "--json", "--history", "--limit", 3)
    first, other = json.loads(done.stdout)["partitions"]
    assert [(each["offset"], each["source_time"], each["moved"]) for each in first["history"]] == [
        (4, None, True),
        (30, "2026-03-01T10:00:00.030Z", False),
        (29, "2026-03-01T10:00:00.029Z", False),
    ]
    assert other["history"] == []
    done = checkpoint("show", config, "--history")
    assert done.stdout.count(f"{site.topic}[0]") == 21, "20 of the journal, and where it stands"
    assert "set by a command" in done.stdout
    assert "2026-03-01T10:00:00.030Z" in done.stdout


def test_a_damaged_file_is_told_and_kafka_shown(site: Site) -> None:
    site.commit(Checkpoint(3))
    site.file.path.parent.mkdir()
    site.file.path.write_text("scribble")
    done = checkpoint("show", site.config(), "--json")
    found = json.loads(done.stdout)
    assert "is damaged" in found["warnings"][0]
    assert found["partitions"][0]["start"]["source"] == "kafka"
    assert "checkpoint_file_damaged" in done.stderr


def test_a_file_of_a_newer_version_is_told(site: Site) -> None:
    site.file.path.parent.mkdir()
    site.file.path.write_text('{"binlane_checkpoint":99}\n')
    done = checkpoint("show", site.config())
    assert done.returncode == 1
    assert "newer binlane" in complaint(done)


def test_an_unreachable_broker_is_told(site: Site) -> None:
    done = started_checkpoint("show", site.config(kafka={"bootstrap_servers": "127.0.0.1:1"}))
    assert done.returncode == 1
    assert "127.0.0.1:1" in complaint(done)
