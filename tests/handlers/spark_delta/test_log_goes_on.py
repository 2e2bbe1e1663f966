"""A log goes on where its table ends: else what lies between would be lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from delta_model import REF

from handlers.spark.delta.commits.commit_notes import LostCommit
from handlers.spark.delta.commits.exactly_once import check_goes_on
from handlers.spark.log.beside import Held
from handlers.spark.log.segment_file import BrokenLog


def log(last: int, removed: int = 0) -> Any:
    """What a log of segments tells."""
    return SimpleNamespace(last=last, removed=lambda: removed)


@pytest.mark.parametrize(
    ("held", "told", "has"),
    [
        (Held(), Held(), log(0)),
        (Held(5, 8), Held(5, 8), log(9, removed=8)),
        (Held(5, 8), Held(1, 4), log(9, removed=8)),  # not written down yet
        (Held(1, 4), Held(5, 8), log(9, removed=4)),  # what is missing is there still
    ],
)
def test_what_is_missing_in_the_table_is_in_the_log(held: Held, told: Held, has: Any) -> None:
    check_goes_on(REF, held, told, has)


def test_a_table_behind_what_was_removed_of_its_log_is_refused_with_both_numbers() -> None:
    with pytest.raises(LostCommit, match="had segment 8 of its log, and now has 4"):
        check_goes_on(REF, Held(1, 4), Held(5, 8), log(9, removed=8))


@pytest.mark.parametrize(("last", "told"), [(0, "is empty"), (7, "ends with 7")])
def test_a_log_that_ends_before_its_table_is_refused_with_both_numbers(last: int, told: str) -> None:
    with pytest.raises(BrokenLog, match=f"has segment 8, but its log .* {told}"):
        check_goes_on(REF, Held(5, 8), Held(5, 8), log(last))
