"""Calls of code of others that would do nothing: of `async def`, or of a body with `yield`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from handlers.api import StopWorker


def uncallable(function: Callable[..., Any], arguments: Sequence[str]) -> str | None:
    """Why a call of it with these arguments would fail or do nothing; None: it would not."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is async, and nobody would await it"
    if inspect.isgeneratorfunction(function):
        return "has a yield, and nobody would iterate over it"
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        return f"cannot be called with ({', '.join(arguments)}): {error}"
    return None


def refuse_unrun(answer: object, of: object) -> None:
    """To be given what a call returned.

    Raises StopWorker if that is code which has not run: every further batch would be lost in the same way."""
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        if inspect.iscoroutine(answer):
            answer.close()  # else Python complains that nobody awaited it
        name = getattr(of, "__qualname__", None) or f"{type(of).__name__}.handle"
        raise StopWorker(
            f"{name} returned a {type(answer).__name__}, of which nothing has run: write it without async "
            f"and yield, or call asyncio.run(...) in it"
        )
