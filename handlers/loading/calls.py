"""Detection of user functions whose call would run nothing: `async def`, or a body with `yield`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from handlers.api import StopWorker


def uncallable(function: Callable[..., Any], arguments: Sequence[str]) -> str | None:
    """Explain why a call with these arguments would fail or do nothing; None if it would work."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is async, and binlane would not await it"
    if inspect.isgeneratorfunction(function):
        return "has a yield, and binlane would not iterate over it"
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        return f"cannot be called with ({', '.join(arguments)}): {error}"
    return None


def refuse_unrun(answer: object, of: object) -> None:
    """Check what a call of `of` returned.

    Raises StopWorker if it is code that has not run: each further batch would be lost in the same way."""
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        if inspect.iscoroutine(answer):
            answer.close()  # otherwise Python warns that the coroutine was never awaited
        name = getattr(of, "__qualname__", None) or f"{type(of).__name__}.handle"
        raise StopWorker(
            f"{name} returned a {type(answer).__name__}, which has not run: write it without async and "
            "yield, or call asyncio.run(...) in it"
        )
