"""Positions of other clients become commands that `binlane checkpoint set` takes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from worker.cli import app
from worker.local.broker import Broker

SCRIPT = Path(__file__).parents[2] / "examples" / "positions.py"


def dts(group: str, offset: int = 14_540_205) -> str:
    """A line of the demo's file, as its LocalFileMetaStore writes it."""
    place = {"topic": "cn_hangzhou_rm_1_dts", "partition": 0, "offset": offset, "timestamp": 1_700_000_000}
    return json.dumps({"groupID": group, "streamCheckpoint": [place | {"info": ""}]})


def canal(*clients: int) -> str:
    """A meta.dat, as Canal's FileMixedMetaManager writes it."""
    position = {"gtid": "", "included": False, "journalName": "mysql-bin.002943", "position": 151_295_060}
    cursor = {
        "identity": {"slaveId": -1, "sourceAddress": {"address": "localhost", "port": 3306}},
        "postion": position | {"serverId": 1, "timestamp": 1_700_000_000_999},
    }
    named = [
        {"clientIdentity": {"clientId": each, "destination": "example", "filter": ""}, "cursor": cursor}
        for each in clients
    ]
    return json.dumps({"clientDatas": named, "destination": "example"})


def run(folder: Path, name: str, text: str, *options: str) -> tuple[int, list[str], str]:
    (folder / name).write_text(text)
    command = [sys.executable, str(SCRIPT), "shop.yaml", name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_dts_becomes_its_offset_and_tells_the_time(tmp_path: Path) -> None:
    code, lines, _ = run(tmp_path, "localCheckpointStore", dts("dtsgroup") + "\n")
    topic = "cn_hangzhou_rm_1_dts"
    assert code == 0
    assert lines == [
        f"# {topic}[0]: offset 14540205, source time 2023-11-14T22:13:20Z; "
        "the record at this offset comes again",
        f"binlane checkpoint set shop.yaml --topic {topic} --partition 0 --offset 14540205",
    ]


def test_of_several_groups_one_is_chosen(tmp_path: Path) -> None:
    text = f"{dts('a')}\n{dts('b', 7)}\n"
    code, lines, errors = run(tmp_path, "localCheckpointStore", text)
    assert (code, lines) == (1, [])
    assert "choose one with --group: a, b" in errors
    code, lines, _ = run(tmp_path, "localCheckpointStore", text, "--group", "b")
    assert (code, lines[1].endswith("--offset 7")) == (0, True)


def test_canal_becomes_a_time_for_each_partition(tmp_path: Path) -> None:
    code, lines, _ = run(tmp_path, "meta.dat", canal(1001), "--topic", "cdc.shop", "--partitions", "2")
    assert code == 0
    time = "2023-11-14T22:13:20Z"
    assert lines == [
        line
        for partition in (0, 1)
        for line in (
            f"# cdc.shop[{partition}]: source time {time}, binlog mysql-bin.002943:151295060; "
            "changes of that second and later come again",
            f"binlane checkpoint set shop.yaml --topic cdc.shop --partition {partition} --time {time}",
        )
    ]


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (canal(1001), (), "--topic"),
        (canal(1001, 1002), ("--topic", "t"), "choose one with --client: 1001, 1002"),
        (canal(), ("--topic", "t"), "choose one with --client"),
        ("no json", (), "JSONDecodeError"),
        ("", (), "IndexError"),
        ("{}", (), "KeyError"),
    ],
)
def test_what_is_none_is_told(tmp_path: Path, text: str, options: tuple[str, ...], told: str) -> None:
    code, lines, errors = run(tmp_path, "meta.dat", text, *options)
    assert (code, lines) == (1, [])
    assert errors.startswith("meta.dat: ")
    assert told in errors


EVIL = "mysql-bin.1\nrm -rf /tmp/x\u2028\x1b[2J\u202e"


def test_no_name_of_the_file_begins_a_command_or_commands_the_terminal(tmp_path: Path) -> None:
    text = canal(1001).replace("mysql-bin.002943", json.dumps(EVIL)[1:-1])
    code, lines, _ = run(tmp_path, "meta.dat", text, "--topic", "cdc.shop", "--partitions", "2")
    assert (code, [line.split()[0] for line in lines]) == (0, ["#", "binlane"] * 2)
    assert all(line.isprintable() for line in lines)
    for wrong in (
        dts("g").replace("cn_hangzhou_rm_1_dts", json.dumps(EVIL)[1:-1]),
        dts("a") + "\n" + dts("b"),
    ):
        code, lines, errors = run(tmp_path, "localCheckpointStore", wrong.replace('"b"', json.dumps(EVIL)))
        assert (code, lines) == (1, [])
        assert errors.rstrip("\n").isprintable()


def test_the_worker_then_begins_there(tmp_path: Path, broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for second in (1_699_999_999, 1_700_000_000, 1_700_000_001):
        producer.produce(topic, b"{}", timestamp=second * 1000)
    producer.flush()
    kafka = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic, "topics": [topic]}
    config = tmp_path / "shop.yaml"
    checkpoint = {"directory": str(tmp_path / "state")}
    tables = [{"match": "*", "handlers": [{"type": "log"}]}]
    config.write_text(
        json.dumps({"kafka": kafka, "format": "canal", "tables": tables, "checkpoint": checkpoint})
    )
    _, of_canal, _ = run(tmp_path, "meta.dat", canal(1001), "--topic", topic)
    _, of_dts, _ = run(tmp_path, "localCheckpointStore", dts("g", 2).replace("cn_hangzhou_rm_1_dts", topic))
    for lines, begins in ((of_canal, 1), (of_dts, 2)):
        command = shlex.split(lines[1].replace("shop.yaml", str(config)))[1:]
        done = CliRunner().invoke(app, command, standalone_mode=False)
        assert done.return_value == 0, done.output
        shown = CliRunner().invoke(app, ["checkpoint", "show", str(config), "--json"], standalone_mode=False)
        assert f"the local file and Kafka agree on {begins}" in shown.output, shown.output
