"""`python -m tests.simulation --seeds 1000`, or `--seed 7` to replay one and see its trace."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from .plan import Plan
from .run import Result, run, run_all, simulating

_CHUNK = 25
PlanOf = Callable[[int], Plan]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seed", type=int, action="append", default=[], help="replay this one and print its trace"
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--hash", action="store_true", help="print one number that tells such a run from others"
    )
    parser.add_argument("--children", action="store_true", help="every worker has child processes")
    given = parser.parse_args()
    plan_of = Plan.with_children if given.children else Plan.of
    if given.seed:
        return max(_replay(plan_of(seed), given.hash) for seed in given.seed)
    return _run_all(range(given.first, given.first + given.seeds), given.processes, plan_of)


def _replay(plan: Plan, hash_only: bool) -> int:
    with simulating():
        result = run(plan)
    if hash_only:
        print(result.hash)
        return 0
    print(plan)
    for when, who, what in result.trace:
        print(f"{when - 1000:10.4f}  {who:10} {what}")
    for violation in result.violations:
        print(f"BROKEN  {violation}")
    return 1 if result.violations else 0


def _run_all(seeds: range, processes: int, plan_of: PlanOf) -> int:
    began = time.monotonic()
    broken, told = 0, Counter[str]()
    for number, result in enumerate(_results(seeds, processes, plan_of), 1):
        told.update(result.happened)
        told.update(handled=result.handled, repeated=result.repeated)
        if result.violations:
            broken += 1
            print(f"seed {result.seed}: {result.violations[0][-2000:]}", flush=True)
        if number % 1000 == 0:
            print(f"{number} runs, {broken} broken, {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(", ".join(f"{what} {count}" for what, count in sorted(told.items())))
    print(f"{len(seeds)} runs, {broken} broken, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


def _results(seeds: range, processes: int, plan_of: PlanOf) -> Iterator[Result]:
    chunks = [seeds[place : place + _CHUNK] for place in range(0, len(seeds), _CHUNK)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for results in pool.map(partial(run_all, plan_of=plan_of), chunks):
            yield from results


if __name__ == "__main__":
    raise SystemExit(main())
