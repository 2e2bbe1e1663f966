"""Random examples: any tool, rules and steps that go together with a target."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st

from .rules import DELETES, Rules
from .run import Example
from .source import KEYS, steps
from .targets.interface import Target
from .told import Limits
from .writers import canal, debezium, dts, maxwell, own_json
from .writers.writing import Writer

__all__ = ["TOLD", "WRITERS", "examples"]

_BOOLS = (True, False)
WRITERS: dict[str, Sequence[Writer]] = {
    "json": [
        *(own_json.Upserts(*one) for one in itertools.product(_BOOLS, _BOOLS)),
        *(own_json.Changes(*one) for one in itertools.product(_BOOLS, own_json.OLD, _BOOLS)),
    ],
    "debezium-postgres": [
        debezium.PostgreSQL(*one) for one in itertools.product(_BOOLS, debezium.IDENTITIES, _BOOLS)
    ],
    "debezium-mysql": [debezium.MySQL(schemas) for schemas in _BOOLS],
    "canal": [canal.Flat(without_blobs=False), canal.Packets(without_blobs=False)],
    "canal-noblob": [canal.Flat(without_blobs=True), canal.Packets(without_blobs=True)],
    "maxwell": [maxwell.Maxwell(knows_types) for knows_types in _BOOLS],
    "dts": [dts.DTS()],
}
"""Tool -> its settings."""
TOLD = tuple(tool for tool in WRITERS if tool != "canal-noblob")
"""The tools whose records show what a row lacks; docs/sources.md names the limit of the other."""


def _fits(writer: Writer, limits: Limits) -> bool:
    return (writer.tells_old_rows or not limits.needs_old_rows) and (writer.tells_gaps or limits.holds_parts)


def examples(
    target: Target, *, tools: Sequence[str] = TOLD, with_rules: bool = True, most_steps: int = 10
) -> st.SearchStrategy[Example]:
    fitting = {tool: [writer for writer in WRITERS[tool] if _fits(writer, target.limits)] for tool in tools}
    rules = st.builds(
        Rules,
        st.booleans(),
        st.just(False) if target.limits.needs_old_rows else st.booleans(),
        st.just("apply") if target.limits.needs_old_rows else st.sampled_from(DELETES),
    )
    none = st.just(Rules())
    return st.builds(
        Example,
        key=st.sampled_from(KEYS),
        writer=st.one_of(*(st.sampled_from(writers) for writers in fitting.values() if writers)),
        rules=none | rules if with_rules else none,
        steps=steps(most_steps, target.rounds),
        read_at_once=st.integers(1, 4),
        batch=st.sampled_from((1, 3, 100)),
        again=st.booleans(),
    )
