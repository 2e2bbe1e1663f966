"""A stop ends: whatever moment the signal comes at, and whatever hangs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handlers import Handler
from handlers.loading.registry import create
from worker.configuration import HandlerEntry
from worker.running.open_handlers import most_seconds

# Processes that mostly wait: beside others, and not alone at the end.
pytestmark = pytest.mark.long

CONFIG = """\
kafka: {bootstrap_servers: "127.0.0.1:1", group_id: g, topics: [t]}
http: null
logging: {format: json}
tables: [{match: "*", handlers: [{type: "hooks:Hooks"}]}]
"""

HOOKS = """
import ctypes
import threading
import time

from handlers import Handler


class Hooks(Handler):
    hangs = ""
    close_timeout = 0.3

    def open(self, context):
        if self.hangs == f"open {context.handler}":
            kept()

    def handle(self, batch):
        pass

    def close(self):
        print("closing\\n", end="", flush=True)  # in one piece: others close at the same time
        if self.hangs == "close":
            kept()


def kept():
    # No signal ends this call of C's: a mutex that is locked twice.
    print("kept\\n", end="", flush=True)
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
"""

PRELUDE = """
import os, random, signal, sys, threading, time
from pathlib import Path
import hooks
from worker.running import draining, process
from worker.observing import logs
from worker.running import reloading
from worker.running import worker as supervision
from worker.configuration import load
from worker.running.worker import Worker

def signal_at_random(number, most):
    time.sleep(random.uniform(0, most))
    os.kill(os.getpid(), number)

supervision._WATCH_SECONDS = 0.001
logs.configure("info", "json")
worker = Worker(load(Path("binlane.yaml"), check_handlers=False))
"""

RUN = """
os._exit(worker.run())
"""

ONCE_RUNNING = """
def stop_once_it_runs():
    while worker._state != "running":
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=stop_once_it_runs, daemon=True).start()
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(script)`: a process of Python that may import `hooks`, in a folder with a configuration."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "binlane.yaml").write_text(CONFIG)
    (tmp_path / "hooks.py").write_text(HOOKS)

    def start(script: str) -> subprocess.Popen[str]:
        root = Path(__file__).parents[1]
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{root}:{tmp_path}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], within: float = 30.0) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    out, err = process.communicate(timeout=within)
    return process.returncode, out, err


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    while (found := process.stdout.readline().strip()) != line:
        assert found, f"it ended without {line}: {process.communicate()}"


# ---- signals


def test_a_signal_while_the_main_thread_holds_the_lock_of_its_event_stops_the_worker(start: Start) -> None:
    script = """
class Lock:
    def __init__(self):
        self.lock, self.left = threading.Lock(), 1

    def __enter__(self):
        self.lock.__enter__()
        if threading.current_thread() is threading.main_thread() and worker._state == "running" and self.left:
            self.left -= 1
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):  # moments for a handler to run in
                pass

    def __exit__(self, *error):
        self.lock.__exit__(*error)

    def acquire(self, *arguments):
        return self.lock.acquire(*arguments)

    def release(self):
        self.lock.release()

worker._stop._cond = threading.Condition(Lock())
"""
    code, _, log = ended(start(PRELUDE + script + RUN))
    assert code == 0, log


def test_a_thousand_signals_at_random_moments_of_the_loop_are_taken(start: Start) -> None:
    script = """
def signals():
    while worker._state != "running":
        time.sleep(0.01)
    for _ in range(1000):
        signal_at_random(signal.SIGHUP, 0.003)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=signals, daemon=True).start()
"""
    code, _, log = ended(start(PRELUDE + script + RUN), within=60)
    assert code == 0, log
    assert log.count("reload_found_no_changes") > 50


def test_each_of_a_thousand_watches_ends_by_a_signal_at_a_random_moment(start: Start) -> None:
    script = """
from worker.running.process import take_signals

supervision._WATCH_SECONDS = 0.0  # half of the time inside of Event.wait
sys.setswitchinterval(0.0001)
take_signals({signal.SIGTERM: worker._stop.set})
for _ in range(1000):
    worker._stop.clear()
    threading.Thread(target=signal_at_random, args=(signal.SIGTERM, 0.002), daemon=True).start()
    worker._watch()
os._exit(7)
"""
    code, _, log = ended(start(PRELUDE + script), within=60)
    assert code == 7, log


def test_a_second_signal_stops_at_once_whatever_keeps_the_main_thread(start: Start) -> None:
    process = start(PRELUDE + "worker._start_http = hooks.kept\n" + RUN)
    wait_for(process, "kept")
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    code, _, log = ended(process)
    assert code == 1
    assert "second signal: stopping at once" in log


def test_a_process_that_a_handler_forks_off_has_its_own_signals(start: Start) -> None:
    script = """
import multiprocessing, os, signal, threading, time
from worker.running.process import take_signals

taken = threading.Event()
take_signals({signal.SIGTERM: lambda: (print("taken", flush=True), taken.set())})
for _ in range(20):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join()
print("ended by", -child.exitcode, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
taken.wait(20)
os._exit(0)
"""
    code, out, _ = ended(start(script))
    assert (code, out.split("\n")[:2]) == (0, ["ended by 15", "taken"])


# ---- what hangs


def test_a_worker_whose_main_thread_is_kept_ends_with_the_stacks_of_what_runs(start: Start) -> None:
    script = "worker._start_http = hooks.kept\nsupervision.stop_seconds = lambda **_: 0.3\n"
    process = start(PRELUDE + script + RUN)
    wait_for(process, "kept")
    process.send_signal(signal.SIGTERM)
    code, _, log = ended(process)
    assert code == 1
    assert "MainThread = 0x" in log
    assert "in kept" in log


TWO = CONFIG.replace(
    '{type: "hooks:Hooks"}', '{type: "hooks:Hooks", name: opens}, {type: "hooks:Hooks", name: hangs}'
)

RELOAD = f"""
def reload():
    while worker._state != "running":
        time.sleep(0.01)
    Path("new.yaml").write_text('''{TWO}''')
    Path("new.yaml").replace("binlane.yaml")  # at one go: the worker looks at it a thousand times a second
    os.kill(os.getpid(), signal.SIGHUP)

threading.Thread(target=reload, daemon=True).start()
"""


def test_a_stop_waits_for_no_handler_that_is_opened_at_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "binlane.yaml").write_text(TWO)
    process = start(PRELUDE + "hooks.Hooks.hangs = 'open hangs'\n" + RUN)
    wait_for(process, "kept")
    process.send_signal(signal.SIGTERM)
    code, out, log = ended(process)
    assert (code, out.split()) == (0, ["closing"]), log  # the one that is open
    assert re.search(r"start_given_up.*hooks.py:\d+ kept", log)


STARTING = """
supervision.OPENING_SECONDS = reloading.OPENING_SECONDS = 0.5
hooks.Hooks.hangs = "open hangs"
"""


def test_a_start_that_takes_longer_than_it_may_ends_the_worker_and_names_the_handler(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "binlane.yaml").write_text(f"{TWO}start_timeout: 2s\n")
    script = """
fail = worker.fail
worker.fail = lambda error: (print(worker.started(), flush=True), fail(error))[1]
"""
    code, out, log = ended(start(PRELUDE + STARTING + script + RUN))
    assert code == 1
    told = "starting: handler hangs is being opened"
    assert out.splitlines() == ["kept", told, "closing"]  # the one that is open
    assert re.search(r"worker_fault.*handler hangs has not opened .*hooks.py:\d+ kept", log), log
    assert "Traceback" not in log


def test_a_reload_whose_handler_takes_longer_than_it_may_is_refused_and_closes_what_it_opened(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "binlane.yaml").write_text(f"{CONFIG}start_timeout: 2s\n")
    script = """
refused = worker.components.metrics.reload
def reloaded(result):
    refused(result)
    print(result, worker.started(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
worker.components.metrics.reload = reloaded
"""
    reload = RELOAD.replace("''')", "start_timeout: 2s\n''')")
    code, out, log = ended(start(PRELUDE + STARTING + script + reload + RUN))
    assert code == 0, log
    # Of the new configuration the one that was opened, at once; at the end the one that stayed.
    assert out.splitlines() == ["kept", "closing", "refused None", "closing"]
    assert re.search(r"reload_refused.*handler hangs has not opened .*hooks.py:\d+ kept", log), log


def test_a_stop_waits_for_no_handler_that_a_reload_opens(start: Start) -> None:
    script = """
hooks.Hooks.hangs = "open hangs"
drain = worker._drain
worker._drain = lambda: (print(worker._shown_state(), worker.ready(), sep=" | ", flush=True), drain())[1]
"""
    process = start(PRELUDE + script + RELOAD + RUN)
    wait_for(process, "kept")
    process.send_signal(signal.SIGTERM)
    code, out, log = ended(process)
    assert code == 0, log
    # What was there, and what the reload had opened by then.
    assert out.splitlines() == ["draining | the worker is draining", "closing", "closing"]
    assert re.search(r"reload_given_up.*hooks.py:\d+ kept", log)


def test_a_stop_begins_while_a_handler_that_has_left_is_closed(start: Start) -> None:
    script = 'hooks.Hooks.hangs, hooks.Hooks.close_timeout = "close", 2.0\n'
    process = start(PRELUDE + script + RELOAD + RUN)
    wait_for(process, "kept")
    process.send_signal(signal.SIGTERM)
    code, _, log = ended(process)
    assert code == 1
    assert log.index("draining") < log.index("handler_close_failed")


def test_a_close_that_hangs_is_waited_for_so_long_and_the_others_are_called(start: Start) -> None:
    script = """
two = CONFIG.replace('{type: "hooks:Hooks"}', '{type: "hooks:Hooks"}, {type: "hooks:Hooks", name: other}')
Path("binlane.yaml").write_text(two)
worker = Worker(load(Path("binlane.yaml"), check_handlers=False))
hooks.Hooks.hangs = "close"
worker._start_threads = worker.stop  # once they are open
"""
    code, out, log = ended(start(PRELUDE + f"CONFIG = '''{CONFIG}'''\n" + script + RUN))
    assert code == 1
    assert sorted(out.split()) == ["closing", "closing", "kept", "kept"]
    assert log.count("handler_close_failed") == 2
    assert re.search(r"hooks.py:\d+ kept", log)


@pytest.mark.parametrize(
    ("part", "told", "closes"),
    [
        ("committer.commit = hooks.kept", "stopping, commit: not done within", True),
        ("lanes.stop = hooks.kept", "stopping, lanes: not done within", False),  # a handler may be at work
        ("lanes.stop = lambda: 1 / 0", "ZeroDivisionError", False),
    ],
)
def test_a_part_of_the_stop_that_hangs_or_fails_keeps_no_other_from_its_turn(
    start: Start, part: str, told: str, closes: bool
) -> None:
    script = f"""
draining.COMMIT_SECONDS = draining.LANES_SECONDS = 0.3
worker._configuration = worker._configuration.model_copy(update={{"shutdown_timeout": 0.1}})
worker.components.{part}
"""
    code, out, log = ended(start(PRELUDE + script + ONCE_RUNNING + RUN))
    assert code == 1
    assert told in log
    assert ("closing" in out) == closes
    assert log.index("draining") < log.index('"event": "stopped"')


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e12, -1.0, None])
def test_a_close_timeout_that_no_clock_can_wait_for_counts_as_the_usual_one(seconds: Any) -> None:
    handler = create(HandlerEntry(type="log"), Path())
    handler.close_timeout = seconds
    assert most_seconds([handler]) == Handler.close_timeout


def test_a_worker_with_an_endless_close_timeout_says_so_and_stops(start: Start) -> None:
    script = """
hooks.Hooks.close_timeout = float("inf")
"""
    code, _, log = ended(start(PRELUDE + script + ONCE_RUNNING + RUN))
    assert code == 0, log
    assert log.count("handler_close_timeout_unusable") == 1


def test_a_signal_whose_taker_fails_keeps_no_later_one_from_being_taken(start: Start) -> None:
    script = """
import os, signal, time
from worker.running.process import take_signals

take_signals({signal.SIGHUP: lambda: 1 / 0, signal.SIGTERM: lambda: os._exit(7)})
os.kill(os.getpid(), signal.SIGHUP)
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(20)
"""
    code, out, _ = ended(start(script))
    assert code == 7
    assert "ZeroDivisionError" in out


@pytest.mark.parametrize(
    ("before", "worked"),
    [
        ("os.close(2)", 0),
        ("os.close(0); os.close(1); os.close(2)", 1),
    ],
)
def test_the_exit_code_of_run_is_the_workers_though_nobody_takes_what_it_says(
    start: Start, tmp_path: Path, before: str, worked: int
) -> None:
    script = f"""
import os, sys
if "AGAIN" not in os.environ:
    {before}
    os.execve(sys.executable, sys.orig_argv, {{**os.environ, "AGAIN": "1"}})
from worker import cli
from worker.commands import run as command

class Drained:
    def __init__(self, configuration, forked):
        pass

    def run(self):
        print("drained")
        with open("number", "w") as file:
            file.write(str(file.fileno()))
        return {worked}

command.Worker = Drained
sys.argv = ["binlane", "run", "binlane.yaml"]
cli.main()
"""
    code, _, log = ended(start(script))
    assert code == worked, log
    assert int((tmp_path / "number").read_text()) > 2  # none of the standard ones


# ---- the last resort

RESORT = """
import atexit, ctypes, os, sys, threading, time
from worker.running import process
process._HARD_SECONDS = 1.0
resort = process.LastResort(5)
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("threading.Thread(target=time.sleep, args=(60,)).start()", 5),  # Python waits for it at its end
        ("atexit.register(time.sleep, 60)", 5),
        ("from concurrent.futures import ThreadPoolExecutor as P; P().submit(time.sleep, 60)", 5),
        ("ctypes.PyDLL(None).sleep(60)", 1),  # no other thread of Python runs meanwhile
    ],
)
def test_the_last_resort_ends_a_process_that_does_not_end_and_writes_the_stacks(
    start: Start, script: str, code: int
) -> None:
    began = time.monotonic()
    found, _, log = ended(start(f"{RESORT}resort.arm(0.3)\n{script}\nsys.exit(0)"))
    assert found == code
    assert time.monotonic() - began < 45, "what keeps it takes a minute"
    assert "most recent call first" in log


def test_the_last_resort_ends_a_process_whose_standard_error_nobody_reads(start: Start) -> None:
    script = "threading.Thread(target=os.write, args=(2, b'x' * 1000000)).start()\ntime.sleep(0.2)\n"
    process = start(f"{RESORT}{script}resort.arm(0.3)")
    assert process.wait(60) == 5


def test_a_process_that_ends_in_time_is_left_alone(start: Start) -> None:
    code, _, log = ended(start(f"{RESORT}resort.arm(20)\nsys.exit(3)"))
    assert (code, log) == (3, "")


def test_a_command_ends_though_a_handler_has_left_a_thread(start: Start, tmp_path: Path) -> None:
    script = """
import sys, threading, time
from worker import cli
from worker.cli import process
process._END_SECONDS = 0.3
threading.Thread(target=time.sleep, args=(60,)).start()
sys.argv = ["binlane", "schema"]
cli.main()
"""
    code, out, log = ended(start(script))
    assert code == 0
    assert out.startswith("{")
    assert "most recent call first" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_worker_takes_its_own_ends_the_command_with_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    configuration = tmp_path / "shop.yaml"
    os.mkfifo(configuration)
    command = [sys.executable, "-m", "binlane", "run", str(configuration)]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stderr=subprocess.PIPE, text=True
    ) as process:
        with configuration.open("w"):  # it reads its configuration, which never comes
            # Python looks for a signal before it reads, and not between its look and the read.
            status = Path(f"/proc/{process.pid}/stat")
            while status.read_text().rpartition(") ")[2][0] != "S":
                time.sleep(0.01)
            process.send_signal(number)
            assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
