"""What cannot be handled ends in the dead-letter topic, whole and once, and comes back from there."""

from __future__ import annotations

import json
import secrets
import time

import pytest
from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.letters import binlane, judging, letters, listed, set_topic, with_dead_letters
from integration.process import eventually
from integration.source import canal_insert
from integration.stage import Stage

from worker.configuration import load
from worker.dead_letters.topic import open_topic
from worker.local.broker import Broker

pytestmark = pytest.mark.long

QUICK = {"max_attempts": 3, "initial_delay": "10ms", "max_delay": "50ms"}
POISON = 250


# A handler that says which change it refuses: tests/core/test_execution_rejected.py.
@pytest.mark.parametrize("how", [pytest.param("at", marks=pytest.mark.soak), "error"])
def test_one_poison_row_in_a_batch_of_500_ends_as_one_dead_letter_and_replay_applies_it(
    stage: Stage, broker: Broker, how: str
) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    poison = stage.gate()
    bad = judging(stage, "bad", reject={"shop.t0": [POISON]}, reject_while=str(poison), how=how)
    table = {"match": "*", "handlers": [bad, judging(stage, "good")], "retry": QUICK}
    table |= {"on_failure": "dead_letter", "batch": {"max_wait": "1s"}}
    source = stage.source()
    source.insert("t0", records=500)
    source.flush()
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage)).start()
    stage.wait_committed_to_the_end()

    assert any(event.get("records") == 500 for event in stage.run.events()), "it was one batch"
    [letter] = letters(stage)
    headers = dict(letter.headers() or [])
    assert letter.value() == canal_insert("t0", [POISON])
    assert letter.key() == b"t0"
    assert headers["binlane.topic"] == stage.topic.encode()
    assert headers["binlane.offset"] == str(POISON).encode()
    assert (headers["binlane.handler"], headers["binlane.index"]) == (b"bad", b"0")
    assert headers["binlane.attempts"] == (b"3" if how == "error" else b"1")
    assert b"row 250 of shop.t0 is refused" in (headers["binlane.error"] or b"")
    rows = [row["seq"] for row in stage.run.rows("bad")]
    assert rows == [seq for seq in range(500) if seq != POISON]
    assert [row["seq"] for row in stage.run.rows("good")] == list(range(500))
    assert worker.metric("binlane_dead_letters_total", table="shop.t0") == 1
    assert worker.metric("binlane_tables_blocked") == 0
    [logged] = worker.logged("dead_letter")
    assert logged["position"] == f"{stage.topic}[0] offset 250 row 0"
    assert "name" not in logged, "nothing of the record"

    done = binlane(worker, "dead-letters", "replay", "CONFIG", "--all", "--yes")
    assert done.returncode == 1
    kind = "RuntimeError" if how == "error" else "Rejected"
    assert f"0:0  shop.t0  failed: handler bad: {kind}: row 250 of shop.t0 is refused" in done.stdout
    assert [letter["replayed"] for letter in listed(worker)] == [False]

    # A worker that was killed before its checkpoint writes the letter again.
    again = [(name, b"later" if name == "binlane.time" else value) for name, value in headers.items()]
    source.producer.produce(f"{stage.topic}.dead", letter.value(), letter.key(), headers=again)
    source.flush()
    poison.unlink()
    which = "--all" if how == "at" else "0:0"
    done = binlane(worker, "dead-letters", "replay", "CONFIG", which, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    place = f"{stage.topic}[0] offset 250 row 0"
    assert f"0:0  shop.t0  insert of {place} → bad (and 0:1, the same failure)" in done.stdout
    assert [letter["replayed"] for letter in listed(worker)] == [True, True]
    assert binlane(worker, "dead-letters", "replay", "CONFIG", "--all", "--yes").stdout == (
        "no dead letters to replay\n"
    )
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows, ["bad", "good"]), NothingTwice())


def test_failing_rows_of_one_record_make_a_letter_each_and_its_other_rows_are_applied(
    stage: Stage, broker: Broker
) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    poison = stage.gate()
    bad = judging(stage, reject={"shop.t0": [11, 13]}, reject_while=str(poison), how="alone")
    table = {"match": "*", "handlers": [bad], "on_failure": "dead_letter"}
    source = stage.source()
    source.insert("t0", rows=5, records=4)
    source.flush()
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage, 1.0)).start()
    stage.wait_committed_to_the_end()
    found = letters(stage)
    assert [dict(letter.headers() or [])["binlane.index"] for letter in found] == [b"1", b"3"]
    assert {letter.value() for letter in found} == {canal_insert("t0", range(10, 15))}
    assert stage.run.seqs() == {"shop.t0": [n for n in range(20) if n not in (11, 13)]}

    poison.unlink()
    assert binlane(worker, "dead-letters", "replay", "CONFIG", "--all", "--yes").returncode == 0
    stage.check(NothingLost(source.rows), NothingTwice())


def test_while_the_topic_refuses_a_letter_nothing_is_finished_and_then_it_goes_on(
    stage: Stage, broker: Broker
) -> None:
    """The letter is larger than the topic takes; the source's topic has no such limit."""
    broker.create_topic(f"{stage.topic}.dead", max_message_bytes="1000")
    table = {"match": "*", "handlers": [judging(stage, reject={"shop.t0": [2]})], "on_failure": "dead_letter"}
    source = stage.source()
    for seq in range(5):
        text = json.loads(canal_insert("t0", [seq]))
        text["data"][0]["name"] = secrets.token_hex(4000)
        source.send(json.dumps(text).encode(), key=b"t0")
    source.insert("t1", records=5)
    source.flush()
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage), lanes={"count": 1}).start()

    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    eventually(lambda: worker.table("shop.t1").get("finished_records") == 5)
    assert "dead" in worker.table("shop.t0")["error"]
    assert "max.message.bytes" in worker.table("shop.t0")["error"]
    assert worker.status()["state"] == "running"
    assert worker.metric("binlane_tables_blocked") == 1
    eventually(lambda: stage.committed()[0] == 2)
    assert stage.run.seqs()["shop.t0"] == [0, 1]
    calls = sum(event["event"] == "start" for event in stage.run.events())

    set_topic(stage, f"{stage.topic}.dead", "max.message.bytes", "100000")
    stage.wait_committed_to_the_end()
    assert stage.run.seqs()["shop.t0"] == [0, 1, 3, 4]
    assert len(letters(stage)) == 1
    starts = sum(event["event"] == "start" for event in stage.run.events())
    assert starts == calls + 1, "only for what comes after"
    assert worker.sigterm() == 0
    stage.check(NothingTwice())


def test_a_topic_that_is_not_there_is_waited_for(stage: Stage, broker: Broker) -> None:
    table = {"match": "*", "handlers": [judging(stage, reject={"shop.t0": [2]})], "on_failure": "dead_letter"}
    source = stage.source()
    source.insert("t0", records=5)
    source.insert("t1", records=5)
    source.flush()
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage)).start()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    assert stage.committed()[0] <= 2
    assert f"the dead-letter topic {stage.topic}.dead cannot be written" in worker.table("shop.t0")["error"]
    assert "Unknown topic" in worker.table("shop.t0")["error"]
    (target,) = (each for each in worker.status()["targets"] if each["handler"] == "__dead_letter__")
    assert target["missing_topic"] == f"{stage.topic}.dead"
    down = {each["handler"]: each["up"] for each in worker.status()["targets"]}
    assert down == {"judging": True, "__dead_letter__": False}
    assert worker.healthy()

    broker.create_topic(f"{stage.topic}.dead")
    stage.wait_committed_to_the_end(60)
    assert len(letters(stage)) == 1
    assert len(worker.logged("dead_letters_impossible")) == 1
    assert len(worker.logged("dead_letters_possible_again")) == 1
    assert worker.sigterm() == 0


def test_a_flood_halts_its_table_and_no_other(stage: Stage, broker: Broker) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    bad = judging(stage, reject={"shop.t0": "all"}, how="error")
    retry = {"max_attempts": 1, "initial_delay": "10ms"}
    table = {"match": "*", "handlers": [bad], "retry": retry, "on_failure": "dead_letter"}
    source = stage.source()
    source.insert("t0", records=300)
    source.insert("t1", records=300)
    source.flush()
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage, 0.05)).start()
    eventually(lambda: worker.status()["state"] == "halted")
    eventually(lambda: worker.table("shop.t1").get("finished_records") == 300)
    assert worker.table("shop.t0")["state"] == "blocked"
    assert "dead_letter.max_ratio 0.05" in worker.table("shop.t0")["error"]
    eventually(lambda: stage.committed()[0] == 50)
    assert [dict(letter.headers() or [])["binlane.offset"] for letter in letters(stage)] == [
        str(n).encode() for n in range(50)
    ]
    assert worker.sigterm() == 1


def test_undecodable_records_are_dead_letters_byte_for_byte_with_and_without_a_table(
    stage: Stage, broker: Broker
) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    poison = [
        b"\xff\xfe no JSON at all",
        b'{"database":"shop","table":"t0","type":"INSERT","es":1,"data":"no rows"}',
        b"",
    ]
    source = stage.source()
    source.insert("t0", records=3)
    headers = [("trace", b"\x00\xff"), ("nothing", None), ("trace", b"again")]
    for value in poison:
        source.producer.produce(stage.topic, value, b"\x80key", headers=headers)
        source.insert("t0", records=2)
    source.insert("t1", records=3)
    source.flush()
    worker = stage.worker(handlers=[judging(stage)], dead_letter=with_dead_letters(stage)).start()
    stage.wait_committed_to_the_end()

    found = {letter.value(): letter for letter in letters(stage)}
    assert set(found) == set(poison)
    for letter in found.values():
        told = letter.headers() or []
        assert letter.key() == b"\x80key"
        assert [(name, value) for name, value in told if not name.startswith("binlane.")] == headers
        assert b"undecodable record: " in (dict(told)["binlane.error"] or b"")
    tables = {value: dict(letter.headers() or [])["binlane.table"] for value, letter in found.items()}
    assert tables == {
        poison[0]: b"__undecodable__",
        poison[1]: b"shop.t0",
        poison[2]: b"__undecodable__",
    }
    assert worker.metric("binlane_dead_letters_total") == 3
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())

    shown = binlane(worker, "dead-letters", "show", "CONFIG", listed(worker)[0]["place"])
    assert shown.returncode == 0
    assert "header trace: 2 bytes: 00 ff" in shown.stdout
    assert "key: 4 bytes: 80 6b 65 79" in shown.stdout
    done = binlane(worker, "dead-letters", "replay", "CONFIG", "--all", "--yes")
    assert done.returncode == 1
    assert done.stdout.count("failed: undecodable record") == 3
    assert worker.sigterm() == 0


@pytest.mark.soak
def test_letters_are_listed_chosen_and_tried_without_effect(stage: Stage, broker: Broker) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    poison = stage.gate()
    reject = {"shop.t0": [0, 1], "shop.t1": [2]}
    bad = judging(stage, reject=reject, reject_while=str(poison), how="at")
    table = {"match": "*", "handlers": [bad], "on_failure": "dead_letter"}
    source = stage.source()
    source.insert("t0", records=3)
    source.flush()
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage)).start()
    stage.wait_committed_to_the_end()
    time.sleep(0.01)
    source.insert("t1", records=3)
    source.flush()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    poison.unlink()

    def ask(*arguments: str) -> str:
        done = binlane(worker, "dead-letters", *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
        return done.stdout

    found = listed(worker)
    assert [(each["place"], each["table"], each["source"]["offset"]) for each in found] == [
        ("0:0", "shop.t0", 0),
        ("0:1", "shop.t0", 1),
        ("0:2", "shop.t1", 5),
    ]
    table_of_all = ask("list", "CONFIG")
    assert "Rejected: row 0 of shop.t0 is refused" in table_of_all
    assert table_of_all.endswith("3 dead letters, 3 not replayed\n")
    assert json.loads(ask("list", "CONFIG", "--json", "--table", "shop.t1")) == [found[2]]
    assert json.loads(ask("list", "CONFIG", "--json", "--limit", "2")) == found[1:]
    assert json.loads(ask("list", "CONFIG", "--json", "--since", found[2]["time"])) == [found[2]]
    assert json.loads(ask("list", "CONFIG", "--json", "--since", "2999-01-01")) == []

    mark = stage.run.mark()
    assert ask("replay", "CONFIG", "--all", "--dry-run").endswith(
        "3 of 3 dead letters would be replayed, 0 failed\n"
    )
    assert stage.run.mark() == mark
    nobody = binlane(worker, "dead-letters", "replay", "CONFIG", "--all")
    assert (nobody.returncode, nobody.stdout) == (2, "")
    assert "confirm with --yes" in nobody.stderr

    ask("replay", "CONFIG", "0:1", "--yes")
    assert [each["replayed"] for each in listed(worker)] == [False, True, False]
    ask("replay", "CONFIG", "--table", "shop.t0", "--yes")
    assert [each["replayed"] for each in listed(worker)] == [True, True, False]
    ask("replay", "CONFIG", "--all", "--yes")
    rows = [(row["table"], row["seq"]) for row in stage.run.events()[mark:] if row["event"] == "row"]
    assert rows == [("shop.t0", 1), ("shop.t0", 0), ("shop.t1", 2)]
    stage.check(NothingLost(source.rows), NothingTwice())

    with open_topic(load(worker.folder / "binlane.yaml", check_handlers=False)) as topic:
        # Without it, letters of a topic that was made anew would be taken for those at the same offsets.
        assert topic.topic_id is not None

    missing = binlane(worker, "dead-letters", "show", "CONFIG", "0:99")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "has no record at offset 99: it has 0 to 2" in missing.stderr
    assert binlane(worker, "dead-letters", "show", "CONFIG", "first").returncode == 2
    assert binlane(worker, "dead-letters", "replay", "CONFIG").returncode == 2


def test_check_tells_whether_letters_can_be_written(stage: Stage, broker: Broker) -> None:
    source = stage.source()
    source.insert("t0")
    source.flush()
    worker = stage.worker(handlers=[judging(stage)], dead_letter=with_dead_letters(stage)).start()
    done = binlane(worker, "check", "CONFIG", "--connect")
    assert done.returncode == 1
    assert f"dead-letter topic {stage.topic}.dead: the topic does not exist" in done.stderr
    broker.create_topic(f"{stage.topic}.dead")
    done = binlane(worker, "check", "CONFIG", "--connect")
    assert f"dead-letter topic {stage.topic}.dead: reached: 1 partitions" in done.stdout
    assert done.returncode == 0
