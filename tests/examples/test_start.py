"""What docs/start.md says to type works as it is typed, in its order, in a folder with only the examples."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documentation.blocks import ROOT, blocks
from examples.example_runs import EXAMPLES
from examples.terminal import Terminal
from integration.process import eventually
from typer.testing import CliRunner

from worker.cli import app
from worker.local.broker_settings import free_port

PAGE = ROOT / "docs" / "start.md"
SHOWN = [block for block in blocks() if block.page == PAGE]


def shown(language: str, begin: str = "") -> str:
    [text] = [each.text for each in SHOWN if each.language == language and each.text.startswith(begin)]
    return text


RECORDS, CONFIGURATION = shown("json"), shown("yaml")
TYPED = [block.text.splitlines() for block in SHOWN if not block.language]


def test_the_sample_is_read_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trips.jsonl").write_text(RECORDS)
    Path("trips.yaml").write_text(CONFIGURATION)
    [line] = [line for lines in TYPED for line in lines if "--sample" in line]
    answer = CliRunner().invoke(app, line.split()[1:])
    assert answer.exit_code == 0, answer.output
    assert "4 records: " in answer.output
    for said in ("insert", "update", "delete", "fleet.trips", "9.4", "11.80"):
        assert said in answer.output


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    for name, place in (("examples", EXAMPLES), (".venv", Path(sys.prefix))):
        (tmp_path / name).symlink_to(place)
    opened = Terminal(tmp_path, {port: free_port() for port in ("9092", "8080")})
    yield opened
    opened.close()


@pytest.mark.soak
def test_the_walk_of_the_page(terminal: Terminal) -> None:
    _, broker, quick, sample, play, run, look, query = [[*map(_typed, lines)] for lines in TYPED]
    activate, folder = broker[0], terminal.folder
    terminal.leave_running(*broker)
    for name, text in (("trips.jsonl", RECORDS), ("trips.yaml", CONFIGURATION)):
        (folder / name).write_text(terminal.text(text))
    with (folder / "trips.yaml").open("a") as file:
        file.write(
            terminal.text("http: {host: 127.0.0.1, port: 8080}\n")
        )  # the default, where it may be taken
    terminal.type(activate, *sample)
    eventually(lambda: _sent(terminal, activate, play), within=60, what="the broker takes the records")
    walk_quickly(terminal, activate, quick)
    [check] = re.findall(r"`(binlane check \S+ --connect)`", PAGE.read_text())
    assert "topic fleet.trips: reached" in terminal.type(activate, check)

    said = terminal.leave_running(activate, *run)
    eventually(lambda: "partition_assigned" in said.read_text(), within=120, what="it runs")
    expected = [line.split() for line in shown("text", "id").splitlines()]
    eventually(
        lambda: [line.split() for line in terminal.type(activate, *query).splitlines()][-2:] == expected,
        within=90,
        what="the row is there",
    )
    status, tables = look[1:]
    assert "running" in terminal.type(
        activate, status.replace("status", f"status {terminal.text('localhost:8080')}")
    )
    assert "fleet.trips" in terminal.type(activate, tables)
    assert terminal.control_c() == 0


def walk_quickly(terminal: Terminal, activate: str, quick: list[str]) -> None:
    """From a topic that nobody has described to rows in SQLite."""
    play, init, run = quick
    assert "29 records sent to example.canal" in terminal.type(activate, play)
    assert "format canal, which reads 29 of 29 records" in terminal.type(activate, init)
    with (terminal.folder / "shop.yaml").open("a") as file:
        file.write("http: null\n")  # 8080 is that of the worker below
    terminal.leave_running(activate, run)
    (terminal.folder / "rows.py").write_text(shown("python", "import sqlite3"))
    rows, expected = [activate, "python rows.py"], shown("text", "(1000")
    eventually(lambda: _typed_in_time(terminal, rows).strip() == expected.strip(), within=60, what="rows")
    assert terminal.control_c() == 0


def _typed_in_time(terminal: Terminal, lines: list[str]) -> str:
    try:
        return terminal.type(*lines)
    except AssertionError:
        return ""


def _typed(line: str) -> str:
    return line.partition("  #")[0].strip()


def _sent(terminal: Terminal, activate: str, play: list[str]) -> bool:
    try:
        return "4 records sent to fleet.trips" in terminal.type(activate, *play)
    except AssertionError:
        return False
