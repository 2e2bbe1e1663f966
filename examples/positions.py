"""Print the commands with which binlane begins where another client of change records ended.

    python examples/positions.py binlane.yaml localCheckpointStore
    python examples/positions.py binlane.yaml meta.dat --topic cdc.shop --partitions 3

`localCheckpointStore` is the file of Alibaba's DTS subscription demo. It has offsets. `meta.dat` is the file
of a Canal instance. It has a time. This program changes nothing: read its output, then run the commands.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("config", metavar="CONFIG", help="the worker's configuration")
    arguments.add_argument("file", type=Path, metavar="FILE", help="localCheckpointStore or meta.dat")
    arguments.add_argument("--group", help="of DTS: the consumer group, if the file has several")
    arguments.add_argument("--client", type=int, help="of Canal: the client's id, if the file has several")
    arguments.add_argument("--topic", help="of Canal: the topic that it writes to")
    arguments.add_argument("--partitions", type=int, default=1, help="of Canal: partitions of that topic")
    options = arguments.parse_args()
    try:
        documents = [json.loads(line) for line in options.file.read_text("utf-8").splitlines() if line]
        found = list(
            of_canal(documents[0], options) if "clientDatas" in documents[0] else of_dts(documents, options)
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        print(f"{options.file}: {type(error).__name__}: {shown(str(error))}", file=sys.stderr)
        return 1
    for topic, partition, position, meaning in found:
        print(f"# {topic}[{partition}]: {shown(meaning)}")
        move = ["binlane", "checkpoint", "set", options.config, "--topic", topic]
        print(shlex.join([*move, "--partition", str(partition), *position]))
    return 0


Move = tuple[str, int, list[str], str]
"""Topic, partition, the position as options of `binlane checkpoint set`, and what it means."""


def of_dts(lines: list[dict[str, Any]], options: argparse.Namespace) -> Iterator[Move]:
    """A line for each group. The offset is that of the last handled record, which comes again."""
    chosen = one(lines, "groupID", options.group, "--group")
    for each in chosen["streamCheckpoint"]:
        offset, seconds = int(each["offset"]), int(each["timestamp"])
        meaning = f"offset {offset}, source time {at(seconds)}; the record at this offset comes again"
        if not re.fullmatch("[A-Za-z0-9._-]+", each["topic"]):
            raise ValueError(f"Kafka has no topic with such a name: {each['topic']}")
        yield each["topic"], int(each["partition"]), ["--offset", str(offset)], meaning


def of_canal(document: dict[str, Any], options: argparse.Namespace) -> Iterator[Move]:
    """Canal's clients have a place in the binlog, which is in no record of every format. Its time is."""
    if not options.topic:
        raise ValueError("give the topic with --topic: the file does not name it")
    clients = [
        {"id": each["clientIdentity"]["clientId"], **each["cursor"]["postion"]}  # Canal spells it so
        for each in document["clientDatas"]
    ]
    chosen = one(clients, "id", options.client, "--client")
    time = at(int(chosen["timestamp"]) // 1000)
    place = f"{chosen['journalName']}:{chosen['position']}"
    for partition in range(options.partitions):
        meaning = f"source time {time}, binlog {place}; changes of that second and later come again"
        yield options.topic, partition, ["--time", time], meaning


def one(found: list[dict[str, Any]], key: str, wanted: object, option: str) -> dict[str, Any]:
    """Return the one that is wanted, or the only one. Raises ValueError."""
    chosen = [each for each in found if wanted is None or each[key] == wanted]
    if len(chosen) != 1:
        raise ValueError(f"choose one with {option}: {', '.join(str(each[key]) for each in found)}")
    return chosen[0]


def shown(text: str) -> str:
    """On one line, and nothing that a terminal obeys: a line break would begin a command of the file's."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def at(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    raise SystemExit(main())
