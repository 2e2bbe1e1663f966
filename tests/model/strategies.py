"""Random examples: any tool, rules and steps that go together with a target."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st

from .rules import DELETES, Rules
from .run import Example
from .source import KEYS, steps
from .targets.interface import Target
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


def examples(
    target: Target, *, tools: Sequence[str] = TOLD, with_rules: bool = True, most_steps: int = 10
) -> st.SearchStrategy[Example]:
    writers = [
        writer
        for tool in tools
        for writer in WRITERS[tool]
        if (writer.tells_old_rows or not target.limits.needs_old_rows)
        and (writer.tells_gaps or target.limits.holds_parts)
    ]
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
        writer=st.sampled_from(writers),
        rules=none | rules if with_rules else none,
        steps=steps(most_steps),
        read_at_once=st.integers(1, 4),
        batch=st.sampled_from((1, 3, 100)),
        again=st.booleans(),
    )
