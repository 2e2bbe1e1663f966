"""Captured records, mutated: each is decoded or refused as undecodable, whatever is wrong with it."""

from __future__ import annotations

import os
from random import Random

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import STREAMS, mutated, originals, reader, try_out

INPUTS = 1_000_000
"""Of each format, whatever number of streams it has."""
MOST_GROWTH = 64 << 20
"""Bytes that a process may grow by from the first tenth of the inputs on."""


@pytest.mark.parametrize("name", STREAMS)
def test_a_mutated_record_is_decoded_or_refused(name: str) -> None:
    format_, found = reader(name), originals(name)
    assert sum(try_out(format_, record) for record in found[:300]) > 30

    @settings(max_examples=60, deadline=None)
    @given(seed=st.integers(0, 2**32))
    def try_one(seed: int) -> None:
        random = Random(seed)
        try_out(format_, mutated(random.choice(found), random))

    try_one()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", STREAMS)
def test_a_million_mutated_records_crash_nothing_and_leave_nothing_behind(name: str) -> None:
    count = INPUTS // sum(format_ == STREAMS[name] for format_ in STREAMS.values())
    seed = int(os.environ.get("BINLANE_SEED", "1"))
    random, found, format_ = Random(seed), originals(name), reader(name)
    process, begun = psutil.Process(), 0
    decoded = 0
    for number in range(count):
        if number == count // 10:
            begun = process.memory_info().rss
        decoded += try_out(format_, mutated(random.choice(found), random)) > 0
    assert decoded > count // 50, "nearly nothing was decoded: this tests refusing only"
    assert process.memory_info().rss - begun < MOST_GROWTH
