"""That there is no table is believed only of an error that says so: else all of it would be made again."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException

from handlers.spark.delta.commits.held_segments import exists, held_by
from handlers.spark.delta.evolving import look, schema
from handlers.spark.log.beside import Held
from handlers.spark.read.current import columns_of
from handlers.spark.table_ref import TableRef

REF = TableRef("lake.shop.orders", None, "/lake/_binlane/shop/orders/pending")


class Catalog:
    """A session whose every look fails so."""

    def __init__(self, condition: str | None) -> None:
        self._condition = condition

    def _fail(self, _text: str) -> Any:
        raise AnalysisException("no answer", errorClass=self._condition)

    sql = table = _fail


@pytest.mark.parametrize(
    "condition", ["TABLE_OR_VIEW_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND"]
)
def test_an_error_that_says_so_means_that_there_is_no_table(condition: str) -> None:
    session: Any = Catalog(condition)
    assert not exists(session, REF)
    assert held_by(session, REF) == Held()
    assert schema(session, REF) is None
    assert look(session, REF) is None
    assert columns_of(session, REF) is None


@pytest.mark.parametrize("condition", [None, "_LEGACY_ERROR_TEMP_3065", "DELTA_TABLE_ALREADY_EXISTS"])
def test_any_other_error_is_raised(condition: str | None) -> None:
    session: Any = Catalog(condition)
    for ask in (exists, held_by, schema, look, columns_of):
        with pytest.raises(AnalysisException, match="no answer"):
            ask(session, REF)  # type: ignore[operator]
