"""What the README says to type works as it is typed, in its order, in a folder with only the examples."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import plain_http
import pytest
from delta_reading import read_delta
from examples.example_runs import EXAMPLES, ROOT, configurations
from examples.terminal import Terminal
from integration.process import eventually
from typer.testing import CliRunner

import binlane.spark
from worker.cli import app
from worker.configuration import ConfigurationError
from worker.local.broker_settings import free_port

pytestmark = pytest.mark.long

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
[SHOP, MIRROR_YAML] = [text for language, text in BLOCKS if language == "yaml"]
[MIRROR] = [text for language, text in BLOCKS if language == "python"]
TYPED = [
    [line.partition("  #")[0].strip() for line in text.splitlines()]
    for language, text in BLOCKS
    if not language
]
"""The commands of each block, without what the README says of them."""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    for name, place in (("examples", EXAMPLES), (".venv", Path(sys.prefix))):
        (tmp_path / name).symlink_to(place)
    opened = Terminal(tmp_path, {port: free_port() for port in ("9092", "8080", "8081")})
    yield opened
    opened.close()


def test_the_walk_of_the_readme(terminal: Terminal) -> None:
    make, broker, play, check_and_run, look, mirror = TYPED
    assert [line.split()[0] for line in make] == ["make", "make"]  # demo and test have tests of their own
    folder = terminal.folder

    said = terminal.leave_running(*broker)
    eventually(lambda: _answers(terminal, play), within=180, what="the broker takes the sample's records")

    # The default of http.port stands in no file.
    shop = f"{SHOP}http: {{host: 127.0.0.1, port: 8080}}\n"
    (folder / "shop.yaml").write_text(terminal.text(shop))
    activate, *checks, run = broker[0], *check_and_run
    reached, decoded = (terminal.type(activate, check) for check in checks)
    assert "topic example.canal: reached" in reached
    assert "handler spark: reached" in reached
    assert re.search(r"^29 records: ", decoded, re.MULTILINE)

    terminal.leave_running(activate, run)
    status, tables = look[1:]
    address = terminal.text("http://localhost:8080")
    watched = f"{status.replace('status', f'status {address}')} | head -n 1"
    eventually(lambda: "running" in _said(terminal, activate, watched), within=90, what="it runs")
    eventually(
        lambda: _merged(address) == {"shop.orders", "shop.customers"}, within=180, what="all is merged"
    )
    assert re.search(r"shop\.orders\W+replica\W+4\b", terminal.type(activate, tables))
    assert terminal.control_c() == 0

    assert sorted(row["id"] for row in read_delta(folder / "lake/shop/orders")) == [1000, 5001, 5003, 5004]

    (folder / "mirror.py").write_text(MIRROR)
    (folder / "mirror.yaml").write_text(terminal.text(MIRROR_YAML))
    said = terminal.leave_running(activate, *mirror)
    lines = eventually(lambda: _printed(said), within=60, what="the changes of shop.orders are printed")
    assert lines[-1].startswith("insert shop.orders {'id': 5004} ")
    assert all(line.endswith(" EUR") for line in lines)
    assert terminal.control_c() == 0
    assert terminal.control_c() == 0, "the broker"


def _answers(terminal: Terminal, play: list[str]) -> bool:
    try:
        return terminal.type(*play) == "29 records sent to example.canal\n"
    except AssertionError:
        return False


def _said(terminal: Terminal, *lines: str) -> str:
    try:
        return terminal.type(*lines)
    except AssertionError:
        return ""


def _merged(address: str) -> set[str]:
    """The Spark tables that hold all that was received."""
    [handler] = plain_http.get(f"{address}/api/status").json()["handlers"]
    return {
        table["table"]
        for table in handler["tables"]
        if table["merged_source_time_ms"] is not None and not table["waiting_rows"]
    }


def _printed(said: Path) -> list[str] | None:
    lines = [line for line in said.read_text().splitlines() if " shop.orders " in line and "EUR" in line]
    return lines if len(lines) == 9 else None


def test_what_the_readme_calls_is_there() -> None:
    [arguments] = re.findall(r"`binlane\.spark\.current\((.*)\)`", README)
    inspect.signature(binlane.spark.current).bind(*arguments.split(", "))
    command = re.sub(r"\s+", " ", re.findall(r"`binlane (verify .*?)`", README, re.DOTALL)[0])
    found = CliRunner().invoke(app, command.replace("shop.yaml", "none.yaml").split(), standalone_mode=False)
    assert isinstance(found.exception, ConfigurationError), "the command is taken; its file is not there"


@pytest.mark.parametrize("page", [ROOT / "README.md", EXAMPLES / "README.md"], ids=["README", "examples"])
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    links = [page.parent / link for link in re.findall(r"\]\(([^)#]+)", text)]
    typed = [ROOT / path for path in re.findall(r"examples/[\w./-]+\.(?:yaml|py|jsonl)\b", text)]
    assert [str(path) for path in links + typed if not path.exists()] == []


def test_the_page_of_the_examples_names_each() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in configurations() if f"]({name}.yaml)" not in text] == []
