"""Which rows of a replica are wrong after duplicates, late records, deletes, ADD COLUMN and changed keys."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.context import Context
from benchmarks.results import Report
from benchmarks.spark.cases import CASES, COLUMNS, Arrival, Difference, arrivals, compare, model
from benchmarks.spark.feed import FileTarget, TableFilesTarget, Target, TopicTarget
from benchmarks.spark.load import DATABASE
from benchmarks.spark.reader import Reader, delta, reader
from benchmarks.spark.sides import (
    REPLICA,
    Side,
    auto_cdc,
    auto_cdc_checkpoints,
    auto_cdc_folders,
    binlane,
    peer,
)
from benchmarks.spark.watch import CHECKPOINTS, Watch

__all__ = ["run"]

_TABLES = [case.table for case in CASES]
_LIMIT_SECONDS = 600

Place = Callable[[Arrival], int]
"""The number of an arrival that a side's watch reports."""


def run(context: Context) -> Report:
    """Write the same records in two rounds to each side, and compare the tables with the model."""
    report = Report(
        "auto_cdc_rows",
        "Rows that differ from the source afterwards, of about 100 in each table",
        {"case": "Case"},
    )
    found: dict[str, list[Difference]] = {}
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary, reader() as asked:
        folder = Path(temporary)
        context.say("binlane")
        found["binlane"] = _binlane(context.bootstrap, folder / "binlane", asked)
        if context.with_peers:
            context.say("Structured Streaming")
            found["Structured Streaming"] = _streaming(folder / "streaming", asked)
            context.say("AUTO CDC")
            found["AUTO CDC"] = _auto_cdc(folder / "auto", asked)
    report.columns = {"case": "Case", **{who: who for who in found}}
    for number, case in enumerate(CASES):
        told = {who: differences[number] for who, differences in found.items()}
        texts = {who: str(each) for who, each in told.items()}
        rows = {f"{who}, rows": sum(vars(each).values()) for who, each in told.items()}
        report.row(case=case.title, **texts, **rows)
    report.notes.append(
        "Every table's records come in two rounds: the second after all tables show the first. A row is "
        "wrong if a column differs. binlane takes the order of the topic as the source's order, which is how "
        "Debezium and Canal write it. The job orders the changes of a batch by their number, and AUTO CDC "
        "orders all changes by it. Only the topic contains the DDL statement. The others get rows alone, "
        "because they would take it for a row."
    )
    return report


def _binlane(bootstrap: str, folder: Path, asked: Reader) -> list[Difference]:
    topic = TopicTarget(bootstrap, f"auto-cdc-rows-{time.time_ns()}")
    folders = {number: folder / "lake" / DATABASE / table for number, table in enumerate(_TABLES)}
    watch = Watch(folders)
    with binlane(bootstrap=bootstrap, topic=topic.topic, folder=folder, tables=[REPLICA]) as side:
        _two_rounds(side, [topic], watch, lambda arrival: arrival.record.number, ddl=True)
        side.stop()
    watch.close()
    return _differences(asked, folders)


def _streaming(folder: Path, asked: Reader) -> list[Difference]:
    files = FileTarget(folder / "files")
    folders = {number: folder / "lake" / DATABASE / table for number, table in enumerate(_TABLES)}
    watch = Watch(folders)
    with peer(source=files.folder, folder=folder, columns=COLUMNS) as side:
        _two_rounds(side, [files], watch, lambda arrival: arrival.sequence)
    watch.close()
    return _differences(asked, folders)


def _auto_cdc(folder: Path, asked: Reader) -> list[Difference]:
    files = TableFilesTarget(folder / "files", _TABLES)
    watch = Watch(auto_cdc_checkpoints(folder, _TABLES), CHECKPOINTS)
    with auto_cdc(source=files.folder, folder=folder, tables=_TABLES, columns=COLUMNS) as side:
        _two_rounds(side, [files], watch, lambda arrival: arrival.record.number)
    watch.close()
    return _differences(asked, auto_cdc_folders(folder, _TABLES))


def _two_rounds(
    side: Side, targets: Sequence[Target], watch: Watch, place: Place, *, ddl: bool = False
) -> None:
    side.wait_until_reading()
    begin = 0
    for round_ in (0, 1):
        arrived = [arrival for arrival in arrivals(round_, begin) if ddl or arrival.is_row]
        begin += len(arrived)
        last = [-1] * len(CASES)
        for arrival in arrived:
            last[arrival.record.table] = place(arrival)
        for target in targets:
            target.write([arrival.record for arrival in arrived])
            target.flush()
        side.wait(watch.showing(last), _LIMIT_SECONDS, f"get through round {round_ + 1}")


def _differences(asked: Reader, folders: Mapping[int, Path]) -> list[Difference]:
    found = []
    for number, folder in folders.items():
        rows = asked.ask(f"SELECT to_json(collect_list(struct(*))) FROM {delta(folder)}").row[0]
        found.append(compare(model(CASES[number]), json.loads(rows)))
    return found
