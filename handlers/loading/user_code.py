"""Users' modules and functions: names that binlane has too, and calls that would run nothing."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from handlers.api import Handler, StopWorker

OWN = frozenset(("binlane", "handlers", "offsets", "worker"))
"""These names always import binlane's own packages, whatever is on the path."""

_PREFIX = "user_"


def unawaited(handler: type[Handler], method: str) -> str | None:
    """Explain why binlane would not await a handler's method, if it is async."""
    own, handle = getattr(handler, method), handler.handle
    if not inspect.iscoroutinefunction(own):
        return None
    if method == "status":
        return "is async, but it is asked from any thread, and must answer at once"
    if not inspect.iscoroutinefunction(handle):
        return "is async, but handle is not: make both async, or neither"
    for base in handler.__mro__[:-1]:
        threaded = vars(base).get("handle", handle)
        if base is not Handler and not inspect.iscoroutinefunction(threaded):
            return f"is async, but {base.__name__}.handle, which it overrides, is not: it needs a thread"
    return None


def uncallable(function: Callable[..., Any], arguments: Sequence[str], *, awaits: bool = False) -> str | None:
    """Explain why a call with these arguments would fail or do nothing; None if it would work.

    `awaits`: what a coroutine function returns is awaited."""
    if inspect.iscoroutinefunction(function) and not awaits:
        return "is async, and binlane would not await it"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
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
            f"{name} returned a {type(answer).__name__}, which has not run: write it with async def and "
            "without yield"
        )


def user_module(name: str) -> ModuleType | None:
    """Import the user's module with one of binlane's names: `handlers` as `user_handlers`, for example.

    None if the import path has no such file. Within the module, `import handlers` is binlane's.
    Raises whatever the module raises. Raises ModuleNotFoundError if a part of `name` after the first does
    not exist."""
    top, _, rest = name.partition(".")
    if f"{_PREFIX}{top}" not in sys.modules:
        file = _file_of(top)
        if file is None:
            return None
        _load(f"{_PREFIX}{top}", file)
    return importlib.import_module(f"{_PREFIX}{name}" if rest else f"{_PREFIX}{top}")


def _file_of(top: str) -> Path | None:
    """Return the first file or folder on the import path that is not binlane's own."""
    own = Path(__file__).resolve().parents[2]
    for entry in sys.path:
        folder = Path(entry or ".").resolve()
        if folder == own:
            continue
        for file in (folder / top / "__init__.py", folder / f"{top}.py", folder / top):
            if file.exists():
                return file
    return None


def _load(name: str, file: Path) -> None:
    if file.is_dir():  # a package without __init__.py
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(file)]
        return
    folders = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
