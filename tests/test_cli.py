"""The command line as a user meets it: processes, exit codes, one line for each fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked_commands import forked_binlane

USABLE = """\
kafka:
  bootstrap_servers: localhost:1
  group_id: shop
  topics: [cdc.shop]
tables:
  - match: shop.orders_[0-9]
    batch: {max_records: 5, max_wait: 250ms}
    handlers:
      - type: neighbour:Copy
        name: mirror
      - type: neighbour:Copy
        password: ${PASSWORD}
    retry: {max_attempts: null}
  - match: shop.*
    handlers: [{type: "neighbour:Copy"}]
    on_failure: skip
"""
MODULE = """\
import logging

from handlers import Handler

class Copy(Handler):
    def __init__(self, password=None):
        self.password = password

    def handle(self, batch): ...

    def check(self, context):
        if self.password:
            logging.getLogger("copy").warning("login with %s", self.password)
            raise ConnectionError(f"password {self.password} refused")
"""
MOVE = ["checkpoint", "set", "a", "--topic", "t", "--partition", "0"]
CONFIGURATION_COMMANDS = (["check"], ["run"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(USABLE)
    (tmp_path / "neighbour.py").write_text(MODULE)
    return tmp_path


def binlane(
    *arguments: str | Path, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return forked_binlane(arguments, folder, {"FORCE_COLOR": "", **environment})


def started_binlane(
    *arguments: str | Path, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same, started as users start it."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "binlane", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env=kept | environment,
    )


def test_the_version_is_the_distributions() -> None:
    done = started_binlane("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"binlane {version('binlane')}\n", "")


def test_the_command_leads_to_main() -> None:
    (command,) = entry_points(group="console_scripts", name="binlane")
    assert command.value == "binlane.__main__:main"


def test_help_lists_every_command() -> None:
    done = started_binlane("--help")
    assert done.returncode == 0
    commands = done.stdout.split("Commands:")[1]
    for name in ("run", "check", "schema", "demo", "status", "checkpoint", "dead-letters", "broker"):
        assert f"  {name} " in commands


@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        ["check"],
        ["schema"],
        ["demo"],
        ["status"],
        ["checkpoint", "show"],
        ["checkpoint", "set"],
        ["dead-letters", "replay"],
        ["broker"],
    ],
)
def test_every_command_explains_itself(command: list[str]) -> None:
    done = binlane(*command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: binlane {' '.join(command)}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frobnicate"], "binlane: No such command 'frobnicate'. (see binlane --help)"),
        (["check"], "binlane: Missing argument 'CONFIG'. (see binlane --help)"),
        (
            ["check", "a", "--frobnicate"],
            "binlane: No such option: --frobnicate (see binlane --help)",
        ),
        (["checkpoint"], "binlane: Missing command. (see binlane --help)"),
        (
            MOVE,
            "binlane: Invalid value: give either --offset or --time (see binlane --help)",
        ),
        (
            [*MOVE, "--offset", "1", "--time", "2026-11-01"],
            "binlane: Invalid value: give either --offset or --time (see binlane --help)",
        ),
        (
            [*MOVE, "--time", "noon"],
            "binlane: Invalid value: --time: found 'noon'; "
            "allowed: an ISO 8601 time such as 2026-11-21T10:00:00Z (see binlane --help)",
        ),
        (
            ["dead-letters", "list", "a", "--anything"],
            "binlane: No such option: --anything (see binlane --help)",
        ),
    ],
)
def test_an_unusable_command_line_is_one_line_and_exit_code_2(arguments: list[str], line: str) -> None:
    done = binlane(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{line}\n")


def test_no_command_shows_the_help_and_fails() -> None:
    done = binlane()
    assert done.returncode == 2
    assert "Usage: binlane" in done.stdout


@pytest.mark.parametrize("command", CONFIGURATION_COMMANDS)
def test_an_unusable_configuration_is_a_line_for_each_fault_and_exit_code_2(
    command: list[str], folder: Path
) -> None:
    text = USABLE.replace("neighbour:Copy\n        name", "neighbour:Cop\n        name")
    (folder / "shop.yaml").write_text(text.replace("on_failure: skip", "on_failure: stop"))
    done = started_binlane(*command, "shop.yaml", folder=folder, PASSWORD="hunter2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        'shop.yaml:9: tables[0].handlers[0].type: found "neighbour:Cop": '
        "the module neighbour has no Cop; allowed: Copy; nearest: neighbour:Copy",
        'shop.yaml:16: tables[1].on_failure: found "stop"; allowed: halt, skip, dead_letter',
    ]


@pytest.mark.parametrize("command", CONFIGURATION_COMMANDS)
def test_a_missing_configuration_is_one_line_and_exit_code_2(command: list[str], folder: Path) -> None:
    done = binlane(*command, "other.yaml", folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "other.yaml: the file cannot be read (No such file or directory)\n"


def test_check_shows_which_pattern_leads_to_which_handlers(folder: Path) -> None:
    done = binlane("check", "shop.yaml", folder=folder, PASSWORD="hunter2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("shop.yaml: usable\n")
    told = "A deployment has to give a start 310 s and a stop 120 s (startup probe, grace period)."
    assert done.stdout.splitlines()[-1] == told
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line
    ]
    assert rows == [
        ["shop.orders_[0-9]", "mirror (neighbour:Copy)", "5 records, 16MiB, 250ms", "for ever", "halt"],
        ["", "neighbour:Copy", "", "", ""],
        ["shop.*", "neighbour:Copy", "1000 records, 16MiB, 0s", "10", "skip"],
    ]


def test_check_finds_modules_on_pythonpath(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (folder / "neighbour.py").rename(other / "neighbour.py")
    assert started_binlane("check", "shop.yaml", folder=folder, PASSWORD="a").returncode == 2
    found = started_binlane("check", "shop.yaml", folder=folder, PASSWORD="a", PYTHONPATH=str(other))
    assert found.returncode == 0


def test_check_connect_tells_what_cannot_be_reached_and_no_secret(folder: Path) -> None:
    config = (folder / "shop.yaml").read_text()
    url = "postgresql://shop:hunter2@127.0.0.1:1/shop"
    (folder / "shop.yaml").write_text(f"checkpoint: {{url: '{url}'}}\n{config}")
    done = started_binlane("check", "shop.yaml", "--connect", folder=folder, PASSWORD="hunter2")
    assert done.returncode == 1
    assert "hunter2" not in done.stdout + done.stderr
    kafka, checkpoints, logged, handler = done.stderr.splitlines()
    assert checkpoints.startswith("checkpoints in postgresql+psycopg://shop:***@127.0.0.1:1/shop")
    assert "cannot be reached: connection failed" in checkpoints
    assert json.loads(logged)["event"] == "login with ***"
    assert kafka.startswith("kafka localhost:1: no answer within 10 s: ")
    assert "Connection refused" in kafka
    assert handler == "handler neighbour:Copy: ConnectionError: password *** refused"
    assert done.stdout.splitlines()[-2:] == ["handler mirror: reached", "handler neighbour:Copy: reached"]


def test_schema_prints_a_json_schema() -> None:
    done = started_binlane("schema")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m binlane schema | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_neither_help_nor_schema_loads_spark_or_the_worker() -> None:
    script = (
        "import sys; sys.argv = ['binlane', {command!r}]\n"
        "from worker.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {{'pyspark', 'pyarrow', 'worker.running.worker'}}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    for command in ("--help", "schema"):
        done = subprocess.run(
            [sys.executable, "-c", script.format(command=command)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "[]\n", command


def test_a_worker_loads_what_it_may_not_need_only_when_it_is_configured() -> None:
    script = (
        "import sys; import binlane, worker.commands.run, worker.processes.child; "
        "print([m for m in sys.argv[2:] if m in sys.modules])"
    )
    spark_and_databases = ["pyspark", "pyarrow", "sqlalchemy", "sqlglot", "psycopg", "redis"]
    server = ["uvicorn", "starlette", "worker.http.app", "worker.http.server"]
    folders = ("canal", "debezium", "dts", "maxwell", "own_json")
    formats = [f"worker.formats.{folder}.format" for folder in folders]
    of_formats = ["worker.formats.debezium.postgres_types", "handlers.mysql.ddl"]
    handlers = [f"handlers.{name}.handler" for name in ("kafka", "redis", "spark", "sql", "webhook")]
    terminal = ["rich.traceback", "rich.pretty", "pygments"]
    heavy = [*spark_and_databases, *server, *terminal, *formats, *of_formats, *handlers]
    assert [name for name in heavy if find_spec(name) is None] == []
    command = [sys.executable, "-c", script, "binlane", *heavy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
