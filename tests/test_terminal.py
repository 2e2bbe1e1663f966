"""What records, letters and errors hold is shown on a terminal, and never obeyed by it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from configuration.shorthand import TABLES
from confluent_kafka import Producer

from worker.commands.dead_letters import list_letters, show
from worker.commands.output import Output
from worker.commands.sampling.sample import show_samples
from worker.configuration import load
from worker.local.broker import Broker
from worker.observing import logs
from worker.observing.visible_text import visible

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202eb\rc"
OBEYED = set(EVIL) - set("ab]0;owned[2J31mc")


def test_what_a_terminal_would_obey_is_written_out() -> None:
    told = visible(EVIL)
    assert told.isprintable()
    assert told == "a\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u007f\\u202eb\\rc"
    assert visible("Größe 東京 👍") == "Größe 東京 👍"
    assert visible("pay\u3164\ufe0f\u2800\U000e0101") == "pay\\u3164\\ufe0f\\u2800\\udb40\\udd01", (
        "they show nothing"
    )
    assert visible("a\n\tb") == "a\\n\\tb"
    assert visible("a\n\tb", lines=True) == "a\n\tb"


@pytest.fixture
def config(broker: Broker, make_topic: Callable[[], str], tmp_path: Path) -> Path:
    """Its dead-letter topic has one letter, every text of which is evil."""
    topic, dead = make_topic(), make_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    own = {"topic": topic, "partition": "0", "offset": "0", "attempts": "1"}
    own |= dict.fromkeys(("table", "handler", "error", "time", "worker", EVIL), EVIL)
    producer.produce(
        dead,
        key=EVIL.encode(),
        value=json.dumps({"text": EVIL}, ensure_ascii=False).encode(),
        headers=[(EVIL, EVIL.encode()), *((f"binlane.{name}", own[name].encode()) for name in own)],
    )
    assert producer.flush(20) == 0
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"kafka: {{bootstrap_servers: '{broker.bootstrap_servers}', group_id: g, topics: [{topic}]}}\n"
        f"dead_letter: {{topic: {dead}}}\n"
        "logging: {format: json}\n" + TABLES
    )
    return path


@pytest.mark.parametrize("command", ["list", "list as JSON", "show"])
def test_a_letter_cannot_command_the_terminal(
    config: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = show(config, "0:0") if command == "show" else list_letters(config, as_json=command != "list")
    told = capsys.readouterr()
    assert (code, told.err) == (0, "")
    assert "owned" in told.out
    assert not OBEYED & set(told.out)
    if command == "list as JSON":
        [letter] = json.loads(told.out)
        assert letter["error"] == EVIL


def test_a_sample_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    record = {"data": [{"id": EVIL}], "database": EVIL, "table": "t", "type": "INSERT", "isDdl": False}
    record |= {"mysqlType": {"id": "text"}, "pkNames": ["id"], "es": 1}
    (tmp_path / "records.jsonl").write_text(json.dumps(record) + "\n" + json.dumps({"type": EVIL}) + "\n")
    (tmp_path / "shop.yaml").write_text(
        "kafka: {bootstrap_servers: 'localhost:1', group_id: g, topics: [t]}\n" + TABLES
    )
    show_samples(
        load(tmp_path / "shop.yaml"), tmp_path / "records.jsonl", Console(width=160), Output("check")
    )
    told = capsys.readouterr().out
    assert "owned" in told
    assert not OBEYED & set(told)


def test_a_log_on_the_console_cannot_command_the_terminal() -> None:
    stream = io.StringIO()
    logs.configure(format="console", stream=stream)
    try:
        Path(EVIL).read_text()
    except OSError as error:
        logs.get_logger("worker").exception("failed", table="shop.orders\x1b[2J", error=error)
    logging.getLogger("uvicorn").warning("foreign %s", EVIL)
    assert "owned" in stream.getvalue()
    assert not OBEYED & set(stream.getvalue())
