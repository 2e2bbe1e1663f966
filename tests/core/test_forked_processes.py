"""Child processes that a worker forks before it has threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Entry = Callable[..., dict[str, Any]]

_FIRST = """
import os, signal, socket, subprocess, sys, threading, time
from pathlib import Path
from handlers.metrics import NO_METRICS
from worker.processes.beginning import forked
from worker.processes.messages import Listener
from worker.processes.process import Process

def made(number, own):
    return Process(number, Listener(NO_METRICS, print, print), gone.append, own)

def lives(own):
    return Path(f"/proc/{own.child.pid}").exists()

gone = []
"""


def told(program: str, first: str = _FIRST) -> list[str]:
    """What a process of one thread prints."""
    path = ":".join(filter(None, sys.path))
    ran = subprocess.run(
        [sys.executable, "-c", first + program],
        check=False,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not ran.stderr
    return ran.stdout.split()


def test_forked_processes_answer_and_end_one_by_one() -> None:
    program = """
all_ = [made(number, own) for number, own in enumerate(forked(3))]
print(*[one.ask("kept") for one in all_])
all_[0].end()
print(all_[0].how_ended, all_[1].ask("kept"), all_[2].ask("kept"), sep=",")
os.kill(all_[2].pid, signal.SIGKILL)
print(all_[2].how_ended, all_[1].ask("kept"), sep=",")
all_[1].end()
print(len({one.pid for one in all_}), len(gone) <= 3)
"""
    assert " ".join(told(program)) == "0 0 0 exit code 0,0,0 SIGKILL,0 3 True"


def test_a_forked_process_holds_no_file_of_the_worker_but_its_own() -> None:
    program = """
def files(own):
    return {os.readlink(each) for each in Path(f"/proc/{own.pid}/fd").iterdir() if int(each.name) > 2}

first, second = (made(number, own) for number, own in enumerate(forked(2)))
first.ask("kept"), second.ask("kept")
print(os.readlink(f"/proc/{first.pid}/fd/0"), files(first) & files(second) or None)
print(len(files(first)), len(files(second)))
first.end()
second.end()
"""
    stdin, shared, *counts = told(program)
    assert (stdin, shared) == ("/dev/null", "None")
    assert counts == ["4", "4"], "the socket, the pipe, and two connections"


def test_no_forked_process_outlives_its_worker() -> None:
    program = """
own = made(0, forked(1)[0])
print(own.pid, own.ask("kept"), flush=True)
os.kill(own.pid, signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGKILL)
"""
    pid, _ = told(program)
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_no_copy_goes_on_as_another_worker() -> None:
    program = """
from worker.processes import child

def main(passing, life):
    os.close(-1)

child.main, sys.stderr = main, sys.stdout
print(*[each.child.wait() for each in forked(1)], "worker")
"""
    assert " ".join(told(program)) == "[Errno 9] Bad file descriptor 1 worker"


def test_a_worker_with_threads_forks_none() -> None:
    program = """
threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
print(len(forked(2)))
"""
    assert told(program) == ["0"]


def test_a_forked_process_is_killed_once() -> None:
    program = """
one = made(0, forked(1)[0])
one._own.child.kill()
print(one.how_ended)
one._own.child.kill()
one.end()
"""
    assert told(program) == ["SIGKILL"]


@pytest.mark.parametrize(("kind", "count"), [("InWorker", 0), ("Writing", 2)])
def test_forked_processes_that_no_handler_needs_end(
    writing: Entry, tmp_path: Path, kind: str, count: int
) -> None:
    program = f"""
from building import configuration
from process_stage import self_secrets
from worker.running.worker import Worker
first = forked(2)
rule, folder = {{"handlers": [{writing(kind)!r}]}}, {{"directory": {str(tmp_path)!r}}}
read = configuration(rule, lanes={{"processes": 2}}, checkpoint=folder, logging={{"level": "error"}})
worker = Worker(read.read_from(Path({__file__!r}), self_secrets()), first)
slots = worker.components.processes._slots
started = {{own.child.pid for own in first}}
worker._start_http = lambda: print(
    sum(map(lives, first)), len({{slot.present.pid for slot in slots if slot.present}} & started), flush=True
)
worker._open_handlers = worker.stop
worker.run()
"""
    assert told(program)[:2] == [str(count), str(count)]
