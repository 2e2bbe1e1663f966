"""docs/guarantees.md names the test of each promise: they are there."""

from __future__ import annotations

from pathlib import Path

from named_tests import missing, named

_GUARANTEES = Path(__file__).parents[1] / "docs" / "guarantees.md"


def test_every_test_that_the_guarantees_name_is_there() -> None:
    text = _GUARANTEES.read_text()
    assert len(named(text)) > 30
    assert not missing(text)


def test_no_promise_is_without_a_test() -> None:
    text = _GUARANTEES.read_text().partition("## What is not promised")[0]
    without = [part.partition("\n")[0] for part in text.split("\n## ")[1:] if not named(part)]
    assert not without
