"""The property that all examples have: a target holds what the model says, or the change is in an error."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from .drawing import Drawing
from .rules import Rules
from .run import Example, differences
from .source import Step
from .targets.interface import Target

_TRIES = 400
"""How many smaller examples are looked at."""


def check(target: Target, drawing: Drawing, *, first: int, count: int) -> None:
    """Try the examples of the seed `first`, `count` times as many as go together. Raises AssertionError with
    the smallest that is wrong."""
    random = Random(first)
    for _ in range(count):
        together = drawing.together(random)
        wrong = _wrong(together, target)
        if wrong:
            sys.stderr.write(f"found one, and look for a smaller one: {wrong[-1]}\n")
            raise AssertionError("\n".join(_Smaller(target, wrong).found(together)))


def _wrong(together: Sequence[Example], target: Target) -> list[str]:
    try:
        return differences(together, target)
    except Exception as error:
        return [*map(str, together), *traceback.format_exception(error)]


@dataclass
class _Smaller:
    """Looks for less that is wrong too."""

    target: Target
    wrong: list[str]
    tries: int = 0

    def found(self, together: list[Example]) -> list[str]:
        """What is wrong with the smallest."""
        for example in together if len(together) > 1 else ():
            if self._is_wrong([example]):
                return self.found([example])
        if len(together) == 1:
            example = together[0]
            for ways in (_with_fewer_steps, _plainer, _with_fewer_steps, _with_plainer_rows, _plainer):
                example = self._walk(example, ways)
        return self.wrong

    def _walk(self, example: Example, ways: Callable[[Example], Iterator[Example]]) -> Example:
        """Go on from what is wrong, until no way leads on."""
        is_found = True
        while is_found:
            is_found = False
            for other in ways(example):
                if self._is_wrong([other]):
                    example, is_found = other, True
                    break
        return example

    def _is_wrong(self, together: list[Example]) -> bool:
        self.tries += 1
        wrong = _wrong(together, self.target) if self.tries <= _TRIES else []
        self.wrong = wrong or self.wrong
        return bool(wrong)


def _with_fewer_steps(example: Example) -> Iterator[Example]:
    steps = example.steps
    size = len(steps) // 2
    while size:
        for place in range(len(steps) - size, -1, -size):
            yield replace(example, steps=steps[:place] + steps[place + size :])
        size //= 2


def _plainer(example: Example) -> Iterator[Example]:
    rules = example.rules
    plainer: list[Example] = [
        replace(example, again=0),
        replace(example, restarts=False),
        replace(example, read_at_once=1),
        replace(example, batch=1),
        replace(example, rules=Rules()),
        replace(example, rules=replace(rules, hides=False)),
        replace(example, rules=replace(rules, filters=False)),
        replace(example, rules=replace(rules, deletes="apply")),
        replace(example, key=("id",)),
    ]
    return (other for other in plainer if other != example)


def _with_plainer_rows(example: Example) -> Iterator[Example]:
    for place, step in enumerate(example.steps):
        for row in _plainer_rows(step):
            steps = [*example.steps[:place], replace(step, row=row), *example.steps[place + 1 :]]
            yield replace(example, steps=steps)


def _plainer_rows(step: Step) -> Iterator[dict[str, object]]:
    row = step.row or {}
    for name in row:
        if name not in ("id", "region"):
            yield {other: value for other, value in row.items() if other != name}
