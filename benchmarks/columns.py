"""The cost of column rules compared with decoding."""

from __future__ import annotations

import gc
import time
from typing import Any, cast

from confluent_kafka import Message

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.topics import canal_value
from handlers import Change
from worker.column_rules.applying import bring_under
from worker.configuration import Configuration, TableRule
from worker.formats.interface import Record
from worker.formats.registry import get

__all__ = ["run"]

_ROUNDS = 7
_LEAST = 0.3
_RULES: dict[str, dict[str, Any]] = {
    "no rules": {},
    "exclude one column, rename another": {"columns": {"exclude": ["name"], "rename": {"amount": "total"}}},
    "hash one column": {"columns": {"mask": {"name": "hash"}}},
    "filter that keeps all rows": {"filter": "id >= 0"},
    "exclude, hash, add and filter": {
        "columns": {"exclude": ["n"], "mask": {"name": "hash"}, "add": {"origin": "topic"}},
        "filter": "id >= 0 AND name IS NOT NULL",
    },
}


def run(context: Context) -> Report:
    """Decode the same records with and without rules, in one thread."""
    count = context.pick(20_000, 1_000)
    report = Report(
        "columns",
        f"Column rules: {count:,} Canal records of 5 columns, decoded and changed by the rules, one thread",
        {"what": "Rules of the table", "rate": "Changes/s", "share": "Share of no rules"},
    )
    records = [
        cast(Record, Message(topic="bench", partition=0, offset=number, value=canal_value(number, 1, number)))
        for number in range(count)
    ]
    rules = {name: _rule(keys) for name, keys in _RULES.items()}
    best = dict.fromkeys(rules, float("inf"))
    for _ in range(_ROUNDS):  # in turns, because other processes may slow down any moment
        for name, rule in rules.items():
            best[name] = min(best[name], _seconds(rule, records))
    plain = best["no rules"]
    for name, seconds in best.items():
        report.row(what=name, rate=count / seconds, share=plain / seconds)
    excluded = best["exclude one column, rename another"]
    report.goals.append(at_least(_LEAST, plain / excluded, "of the rate", "one column excluded, one renamed"))
    report.notes.append(
        f"Best of {_ROUNDS} rounds. All figures include decoding. A table without rules gets the objects "
        "that its format decoded, without a copy (tests/core/test_ruled_batches.py)."
    )
    return report


def _rule(keys: dict[str, Any]) -> TableRule:
    made = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["bench"]},
            "masking": {"secret": "0123456789abcdef"},
            "tables": [{"match": "*", "handlers": [{"type": "log"}], **keys}],
        }
    )
    return made.tables[0]


def _seconds(rule: TableRule, records: list[Record]) -> float:
    decode, rows, statements = get("canal").decode, rule.row_rules, rule.statement_rules
    changes: list[Change] = []
    gc.collect()
    gc.disable()
    begin = time.perf_counter()
    for record in records:
        decode(record, changes)
        if rows is not None:
            bring_under(rows, statements, changes, len(changes) - 1, database="bench", table="t1")
    taken = time.perf_counter() - begin
    gc.enable()
    if len(changes) != len(records):
        raise BenchmarkError(f"{len(changes)} changes of {len(records)} records")
    return taken
