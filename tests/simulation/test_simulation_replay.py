"""A seed is a whole run: each replay is the same to the last turn."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from worker.attempts import circuit

from .plan import Plan
from .run import run, run_all, simulating

_PROJECT = Path(__file__).parents[2]


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    found = []
    for hash_seed in ("0", "1"):
        # Together they have every fault, and ways through sets of partitions and tables.
        seeds = [0, 3, 5, 19, 24, 30, 36, 54, 70, 136, 305, 452, 812]
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--hash", *(f"--seed={seed}" for seed in seeds)],
            cwd=_PROJECT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )
        found.append(done.stdout.splitlines())
        assert len(found[-1]) == len(seeds)
    assert found[0] == found[1]


def test_a_seed_gives_the_same_run_whatever_ran_before() -> None:
    alone = {seed: run_all([seed])[0].hash for seed in (21, 22, 23)}
    after_others = {each.seed: each.hash for each in run_all([20, 21, 22, 23, 24])}
    assert alone.items() <= after_others.items()


def test_a_seed_gives_the_same_run_whatever_runs_beside_it() -> None:
    """In threads of the same process, of the worker's own code: as the watch over a Spark of other tests."""
    alone = run_all([21])[0].hash
    over = threading.Event()
    log = structlog.get_logger()

    def run_on() -> None:
        while not over.is_set():
            assert abs(circuit.time.monotonic() - time.monotonic()) < 10
            circuit.threading.Event().wait(1e-4)
            circuit.time.sleep(1e-4)
            log.info("beside")

    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run_on)
        try:
            found = {run_all([21])[0].hash for _ in range(3)}
        finally:
            over.set()
        assert running.exception() is None
    assert found == {alone}


def test_other_seeds_give_other_runs() -> None:
    assert len({each.hash for each in run_all(range(10))}) == 10


def test_the_trace_tells_what_was_handled_and_committed() -> None:
    with simulating():
        result = run(Plan.of(1))
    told = [what for _, _, what in result.trace]
    assert sum(what.startswith("handles ") for what in told) > 10
    assert any(what.startswith("commits ") for what in told)
    times = [when for when, _, _ in result.trace]
    assert times == sorted(times)


def test_nothing_of_a_simulation_is_left_in_the_workers_modules() -> None:
    run_all([1])
    owners = [m for name, m in sys.modules.items() if name.startswith(("worker.", "offsets.", "handlers."))]
    owners += [each for module in owners for each in vars(module).values() if isinstance(each, type)]
    assert len(owners) > 200
    left = [
        f"{owner}.{name}"
        for owner in owners
        for name, value in vars(owner).items()
        if "simulation" in str(getattr(value, "__module__", "")) or type(value).__name__ == "SimpleNamespace"
    ]
    assert left == []
    threads = [each for each in owners if isinstance(each, type) and threading.Thread in each.__bases__]
    assert {"Fetcher", "Processor", "Committer"} <= {each.__name__ for each in threads}
