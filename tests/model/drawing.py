"""Random examples: any tool, rules and steps that go together with a target."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from .rules import DELETES, Rules
from .run import Example
from .source import ADDED, KEYS, VALUES, Row, Step
from .targets.interface import Target
from .told import Limits
from .writers import canal, debezium, dts, maxwell, own_json
from .writers.writing import Image, Writer

_BOOLS = (True, False)
_IMAGES: tuple[Image, ...] = ("full", "noblob", "minimal")
WRITERS: dict[str, Sequence[Writer]] = {
    "json": [own_json.Changes(*one) for one in itertools.product(_BOOLS, own_json.OLD, _BOOLS)],
    "json-upserts": [own_json.Upserts(*one) for one in itertools.product(_BOOLS, _BOOLS)],
    "debezium-postgres": [
        debezium.PostgreSQL(*one) for one in itertools.product(_BOOLS, debezium.IDENTITIES, _BOOLS)
    ],
    "debezium-mysql": [debezium.MySQL(schemas) for schemas in _BOOLS],
    "canal": [canal.Flat("full"), canal.Packets("full")],
    "canal-noblob": [canal.Flat("noblob"), canal.Packets("noblob")],
    "canal-minimal": [canal.Flat("minimal"), canal.Packets("minimal")],
    "maxwell": [maxwell.Maxwell(*one) for one in itertools.product(_BOOLS, _IMAGES)],
    "dts": [dts.DTS()],
}
"""Tool -> its settings."""
TOLD = tuple(tool for tool in WRITERS if tool not in ("canal-noblob", "canal-minimal"))
"""The tools whose records show what a row lacks; docs/sources.md names the limit of the others."""

_OFTEN = {"debezium-postgres": 2}
"""Tool -> how many times as often as another."""
_NEVER_CHANGES = ("put", "add", "snapshot", "truncate")
_KINDS: dict[Any, int] = {
    "change": 33,
    "put": 16,
    "move": 10,
    "delete": 10,
    "replace": 10,
    "sweep": 8,
    "add": 6,
    "snapshot": 5,
    "truncate": 2,
}
"""Step -> how often of a hundred."""
_ROWS, _STEPS = 4, 16
"""Of an example: how many numbers its rows have, and how many steps at most."""


@dataclass(frozen=True)
class Drawing:
    target: Target
    tools: Sequence[str] = TOLD
    with_rules: bool = True

    def together(self, random: Random) -> list[Example]:
        """As many as go together."""
        return [self.one(random) for _ in range(self.target.at_once)]

    def one(self, random: Random) -> Example:
        limits, size = self.target.limits, self.target.size
        fitting = [
            [writer for writer in WRITERS[tool] if _fits(writer, limits)]
            for tool in self.tools
            for _ in range(_OFTEN.get(tool, 1))
        ]
        writer = random.choice(random.choice(list(filter(None, fitting))))
        return Example(
            key=random.choice(_keys(writer, limits)),
            writer=writer,
            rules=self._rules(random),
            steps=_steps(random, writer, rows=_ROWS * size, most=_STEPS * size),
            read_at_once=random.randint(1, 4 * size),
            batch=random.choice((1, 3, 100) if size == 1 else (8, 30, 100)),
            again=random.choice((0, 0, 0, 1, 3, 100)),
            restarts=random.random() < 0.2,
        )

    def _rules(self, random: Random) -> Rules:
        if not self.with_rules or random.random() < 0.4:
            return Rules()
        hides = random.random() < 0.5
        if self.target.limits.needs_old_rows:
            return Rules(hides)
        return Rules(hides, random.random() < 0.5, random.choice(DELETES))


def _fits(writer: Writer, limits: Limits) -> bool:
    return (writer.tells_old_rows or not limits.needs_old_rows) and (writer.tells_gaps or limits.holds_parts)


def _keys(writer: Writer, limits: Limits) -> Sequence[tuple[str, ...]]:
    """Of the tables that the tool's records can tell, and that the target takes or refuses."""
    if isinstance(writer, debezium.PostgreSQL) and writer.identity == "index":
        return KEYS[:1]  # a key with a column of the index looks like a key that is told
    is_tried = writer.tells_whole and limits.without_key != "untried"
    return (*KEYS, ()) if is_tried else KEYS


def _steps(random: Random, writer: Writer, *, rows: int, most: int) -> list[Step]:
    """A row or two, and what happens to them and to others."""
    count = random.randint(most // 4, most)
    never_changes = isinstance(writer, debezium.PostgreSQL) and writer.identity == "nothing"
    weights = {
        kind: weight
        for kind, weight in _KINDS.items()
        if (kind != "move" or writer.moves_keys) and (kind in _NEVER_CHANGES or not never_changes)
    }
    kinds = ["put", "put", *random.choices(list(weights), list(weights.values()), k=count)]
    steps = [_step(random, kind, rows) for kind in kinds]
    if never_changes:
        for number, step in enumerate(steps):
            (step.row or {})["id"] = number
    return steps


def _step(random: Random, kind: Any, rows: int) -> Step:
    number, new_id = random.randrange(rows), random.randint(1, rows)
    match kind:
        case "put" | "replace":
            row = {"id": new_id, **_values(random, VALUES)}
            if kind == "put" and random.random() < 0.4:
                row = {"id": new_id, "region": row["region"], **_some(random, row)}
            return Step(kind, number if kind == "replace" else 0, row)
        case "change" | "sweep":
            columns = [name for name in VALUES if kind == "change" or name != "region"]
            return Step(kind, number if kind == "change" else 0, _values(random, _few(random, columns)))
        case "move":
            return Step(kind, number, {"id": new_id, **_some(random, _values(random, VALUES))})
        case "delete":
            return Step(kind, number)
    return Step(kind)


def _few(random: Random, columns: Sequence[str]) -> list[str]:
    """One column as a rule: most updates leave the large value as it is. Perhaps those that come later too,
    which are passed over if they are not there."""
    found = random.sample(columns, k=random.choice((1, 1, 1, 2, 4)))
    return found + [name for name in ADDED if name not in found and random.random() < 0.3]


def _some(random: Random, row: Row) -> Row:
    part = random.random()
    return {name: value for name, value in row.items() if random.random() < part}


def _values(random: Random, names: Iterable[str]) -> Row:
    return {name: random.choice(VALUES[name]) for name in names}
