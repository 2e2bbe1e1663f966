"""An installation without the extra `spark`: what needs it says so in one line, and all else works."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
HIDDEN = """\
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "obstore"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""
CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: g, topics: [example.canal]}
format: canal
tables:
  - match: shop.*
    handlers: [%s]
"""
ADVICE = "pip install '.[spark]' in binlane's folder"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sitecustomize.py").write_text(HIDDEN)
    return tmp_path


def run(folder: Path, handler: str, *arguments: str) -> tuple[int, str]:
    (folder / "shop.yaml").write_text(CONFIG % handler)
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(PROJECT)))}
    command = [sys.executable, "-m", "binlane", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr if done.returncode else done.stdout


def test_other_handlers_need_nothing_of_it(folder: Path) -> None:
    code, told = run(folder, "{type: log}, {type: redis, url: 'redis://localhost'}", "check", "shop.yaml")
    assert code == 0, told
    assert "shop.*" in told


@pytest.mark.parametrize(
    "handler", ["{type: spark, mode: replica}", "{type: files, directory: out, format: parquet}"]
)
@pytest.mark.parametrize("command", ["check", "run"])
def test_a_handler_that_needs_it_is_a_fault_that_says_what_to_install(
    folder: Path, handler: str, command: str
) -> None:
    code, told = run(folder, "{type: log}, " + handler, command, "shop.yaml")
    assert code == 2
    assert told == f"shop.yaml:5: tables[0].handlers[1]: its packages are not installed: {ADVICE}\n"


@pytest.mark.parametrize(
    "arguments", [("tables", "shop.yaml"), ("verify", "shop.yaml", "--against", "sqlite:///x"), ("demo",)]
)
def test_a_command_that_needs_it_says_what_to_install(folder: Path, arguments: tuple[str, ...]) -> None:
    code, told = run(folder, "{type: log}", *arguments)
    assert code == 2
    assert told.endswith(
        f"binlane: {arguments[0]} needs Spark, which is not installed: {ADVICE} (see binlane --help)\n"
    )


def test_a_query_says_which_extra_it_needs(folder: Path) -> None:
    code, told = run(folder, "{type: log}", "query", "shop.yaml", "SELECT 1")
    assert code
    assert "query needs DuckDB and Arrow, which are not installed: pip install '.[read]' in binlane's" in told


def test_a_broker_needs_nothing_of_it(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, told = run(folder, "{type: log}", "broker", "--port", str(port))
    assert code == 1
    assert told.startswith(f"binlane broker: port {port} of 127.0.0.1 is in use")
