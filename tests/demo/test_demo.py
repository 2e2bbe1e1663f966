"""`binlane demo` as its users start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from spark_sessions import LIGHT_JAVA

pytestmark = pytest.mark.long

DEMO = (sys.executable, "-m", "binlane", "demo", "--changes", "1000")
ENVIRONMENT = {**os.environ, "JAVA_TOOL_OPTIONS": LIGHT_JAVA}


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments], capture_output=True, text=True, timeout=560, check=False, env=ENVIRONMENT
    )


@pytest.mark.timeout(600)  # two Sparks and a Kafka: a minute, but on a busy machine many
def test_the_demo_shows_that_the_replica_equals_the_source(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    ended = demo("--directory", str(folder))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    [count] = re.findall(r"✓ ([\d,]+) changes of 10 tables: every replica row is equal", ended.stdout)
    assert int(count.replace(",", "")) >= 1_000
    assert {path.name for path in (folder / "lake" / "shop").iterdir()} >= {"orders", "audit_log"}
    assert re.search(r"✓ the view of \w+: [\d,]+ rows, equal to the source", ended.stdout)
    assert "✓ everything merged into the Delta tables" in ended.stdout
    assert "ended with exit code 0" in ended.stdout
    assert str(folder) in ended.stdout
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= 100 or lines[-1].endswith(str(folder))


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    ended = demo("--directory", str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr == f"binlane demo: {tmp_path} is not an empty folder: name a new one\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


# Kafka ends with a parent that is killed: test_broker.py; Spark does: handlers/test_spark_process.py.
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.soak
def test_a_demo_that_is_ended_leaves_no_process_behind(sent: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        DEMO,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    assert any("binlane run" in line for line in process.stdout)
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) >= 4  # two guards, Kafka and the worker
    process.send_signal(sent)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == (130 if sent == signal.SIGINT else -signal.SIGKILL), output
    _, alive = psutil.wait_procs(started, timeout=100)
    assert not alive
    if sent == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []
