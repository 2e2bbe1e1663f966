"""play.py sends samples as they are, in their order, and says in a line what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

from examples.example_runs import play
from topic_messages import messages

from worker.local.broker import Broker


def test_records_arrive_as_they_are_and_in_order(broker: Broker, tmp_path: Path) -> None:
    lines = [
        {"topic": "play.one", "key": {"id": 1}, "value": {"n": 1}, "headers": {"h": "x"}},
        {"topic": "play.two", "partition": 1, "value": None},
        {"topic": "play.one", "value": {"base64": "AAH/"}},
    ]
    (tmp_path / "sample.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    done = play(
        str(tmp_path / "sample.jsonl"), "--bootstrap", broker.bootstrap_servers, "--make", "play.more"
    )

    assert (done.returncode, done.stdout) == (0, "3 records sent to play.one, play.two\n")
    first, second = messages(broker.bootstrap_servers, "play.one")
    assert (first.key(), first.value(), first.headers()) == (b'{"id": 1}', b'{"n": 1}', [("h", b"x")])
    assert (second.key(), second.value()) == (None, b"\0\1\xff")
    two = messages(broker.bootstrap_servers, "play.two")
    assert [(message.partition(), message.value()) for message in two] == [(1, None)]
    assert messages(broker.bootstrap_servers, "play.more") == []


def test_topics_are_made_without_records(broker: Broker) -> None:
    done = play("--bootstrap", broker.bootstrap_servers, "--make", "play.dead", "--make", "play.also")
    assert (done.returncode, done.stdout) == (0, "topics exist now: play.also, play.dead\n"), done.stderr
    assert messages(broker.bootstrap_servers, "play.dead") == []

    done = play("--bootstrap", broker.bootstrap_servers)
    assert done.returncode == 2
    assert done.stderr.endswith("play.py: error: name a FILE to send, or a topic to --make\n")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    done = play(str(tmp_path / "none.jsonl"))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"play.py: {tmp_path}/none.jsonl cannot be read (No such file or directory)\n"


def test_a_kafka_that_is_away_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"id": 1}\n')

    done = play(str(tmp_path / "one.jsonl"), "--bootstrap", "127.0.0.1:1")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("play.py: Kafka at 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1
