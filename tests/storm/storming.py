"""One storm from its beginning to its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from servers.postgres_server import PostgresServer

from storm.faults import Faults
from storm.parts.load import Table
from storm.parts.sampling import Sampling, growth, read_samples
from storm.parts.targets import faults_of_database, faults_of_files, faults_of_spark
from storm.plan import schedule
from storm.report import Report
from storm.rig import Rig, Scale

__all__ = ["storm"]


def storm(
    folder: Path,
    scale: Scale,
    kinds: dict[str, int],
    seconds: float,
    *,
    database: PostgresServer,
    url: str,
    patience: float = 120.0,
    sampled: bool = False,
    say: Callable[[str], None] = print,
) -> Report:
    """Run it, and judge: `broken` of the report is empty when everything held.

    patience: seconds that records may stand still after a fault; at the end all has to be drained within
    three times that. sampled: what grows in the worker that is never ended is broken, too, and the folder
    gets `samples.csv` and `samples.png`.
    """
    events = schedule(scale.seed, kinds, seconds)
    told = "\n".join(map(str, events))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedule.txt").write_text(f"seed {scale.seed}\n{told}\n")
    rig = Rig(folder, scale, database, url)
    faults = Faults(rig)
    sampling = Sampling(rig) if sampled else None
    broken: list[str] = []
    codes: dict[str, int | None] = {}
    try:
        began = time.monotonic()
        rig.start()
        say(
            f"everything runs after {time.monotonic() - began:.0f} s; {len(events)} faults in {seconds:.0f} s"
        )
        if sampling:
            sampling.start()
            begun = time.monotonic()
        faults.play(events)
        say(f"{len(faults.happened)} faults after {time.monotonic() - began:.0f} s; {rig.load.sent} records")
        try:
            rig.drain(3 * patience)
        except (TimeoutError, AssertionError) as fault:
            broken.append(f"progress: {fault}")
        if sampling:
            sampling.stop()
            broken += _drawn(rig, sampling, [each.begun - begun for each in faults.happened])
        codes = rig.end()
        say(f"drained after {time.monotonic() - began:.0f} s")
        broken += [
            "\n  ".join(
                [f"{worker.name} ended with {codes[worker.name]}; it said last:", *worker.last_said()]
            )
            for worker in rig.workers
            if codes[worker.name] != 0
        ]
        broken += _targets(rig)
    except TimeoutError as fault:
        broken.append(f"progress: {fault}")
    finally:
        faults.stop()
        rig.close()
        rig.judge.look()
    report = Report.of(rig, faults.happened)
    report.broken += broken + [f"a fault could not be made: {each}" for each in faults.failed]
    report.broken += [
        f"progress: {row.standstill:.0f} s of standstill after {kind}"
        for kind, row in report.rows.items()
        if row.standstill > patience
    ]
    surprises = [each for worker in rig.workers for each in worker.surprises]
    report.broken += [each for each in surprises if " with 1:" not in each]
    for each in surprises:
        say(each)
    if report.broken:
        say(f"seed {scale.seed}; the schedule, marks and logs are in {folder}")
    return report


def _drawn(rig: Rig, sampling: Sampling, faults: list[float]) -> list[str]:
    from storm.picture import draw

    (rig.folder / "faults.txt").write_text("".join(f"{when:.1f}\n" for when in faults))
    samples = read_samples(sampling.file)
    draw(samples, faults, rig.spared.name, rig.folder / "samples.png")
    return growth(samples, rig.spared.name)


def _targets(rig: Rig) -> list[str]:
    def of(*letters: str) -> list[Table]:
        return [table for table in rig.load.tables if table.name[0] in letters]

    folders = [worker.process.folder / "lake" for worker in rig.members]
    found = faults_of_files(folders, of("a"))
    found += faults_of_files([rig.lone.process.folder / "lake"], of("l"))
    found += faults_of_database(rig.url, of("b", "r"))
    if rig.spark:
        found += faults_of_spark(rig.folder / "spark" / "lake", of("s"))
    return found
