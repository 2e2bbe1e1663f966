"""Lookup of handler classes (built-in or by import path) and of functions named in the configuration."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Protocol

from pydantic import BaseModel

from handlers.api import Handler
from handlers.coroutines import awaited
from handlers.loading.user_code import OWN, unawaited, uncallable, user_module
from handlers.options.faults import check_options, nearest

BUILT_IN = {
    "clickhouse": "handlers.clickhouse:ClickHouseHandler",
    "elasticsearch": "handlers.elasticsearch:ElasticsearchHandler",
    "files": "handlers.files:FilesHandler",
    "kafka": "handlers.kafka.handler:KafkaHandler",
    "log": "handlers.log:LogHandler",
    "opensearch": "handlers.elasticsearch:ElasticsearchHandler",
    "redis": "handlers.redis:RedisHandler",
    "spark": "handlers.spark:SparkHandler",
    "sql": "handlers.sql:SqlHandler",
    "webhook": "handlers.webhook:WebhookHandler",
}
"""Modules are imported only when they are needed, because importing Spark is slow."""

_SECTIONS = {"spark": "handlers.spark.options:SparkSection"}

_OTHER_NAMES = {
    **dict.fromkeys(
        ("postgres", "postgresql", "mysql", "mariadb", "sqlite", "duckdb", "jdbc", "database"), "sql"
    ),
    **dict.fromkeys(("delta", "lake"), "spark"),
    **dict.fromkeys(("http", "https", "rest"), "webhook"),
    **dict.fromkeys(("file", "jsonl", "parquet"), "files"),
    **dict.fromkeys(("console", "print", "stdout"), "log"),
    **dict.fromkeys(("elastic", "es"), "elasticsearch"),
    "topic": "kafka",
}
"""Names that users may try -> the built-in handler to suggest."""

_ALLOWED = f"{', '.join(BUILT_IN)}, or an import path such as my_package.module:MyHandler"
_ALLOWED_FUNCTION = "an import path such as my_package.module:my_function"

_IMPORTABLE = "a module that Python can import"
_OTHER_NAME = "another name for your module"
_A_CLASS = "a class that inherits from binlane.Handler"

_METHODS: Mapping[str, tuple[str, ...]] = {
    "handle": ("batch",),
    "open": ("context",),
    "release": ("partitions",),
    "close": (),
    "status": (),
    "check": ("context",),
}
"""A handler's methods, with the arguments that the worker passes to each."""


class Entry(Protocol):
    """The part of a configuration entry that this module reads."""

    @property
    def type(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class HandlerTypeError(ValueError):
    """The type names no handler class, or the path names no function.

    `problem` says why, `allowed` what is valid, `nearest` what was probably meant. `str()` joins all three.
    """

    def __init__(self, problem: str, allowed: str, nearest: str | None = None) -> None:
        hint = f"; nearest: {nearest}" if nearest else ""
        super().__init__(f"{problem}; allowed: {allowed}{hint}")
        self.problem = problem
        self.allowed = allowed
        self.nearest = nearest


class OptionsError(ValueError):
    """A handler refused its options."""


def resolve(handler_type: str, folder: Path) -> type[Handler]:
    """Return the class that `handler_type` names: a built-in name, or `package.module:Class`.

    Modules are searched on PYTHONPATH, then in `folder` (that of the configuration file). `folder` stays on
    the import path, because the module may import its neighbours later.

    Raises HandlerTypeError if the name, module or class does not exist, or if the import fails. Also raised
    if the class is not a Handler, has no `handle`, or has a method that the worker cannot call."""
    path = BUILT_IN.get(handler_type, handler_type)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        raise HandlerTypeError("there is no such handler", _ALLOWED, _likely(handler_type))
    if not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        raise HandlerTypeError("not an import path", _ALLOWED)
    near = nearest(handler_type, BUILT_IN)
    if module_name.endswith(".py"):
        near = f"{module_name.removesuffix('.py')}:{class_name}"
    module = _module(module_name, class_name, folder, _ALLOWED, near)

    def is_handler(member: Any) -> bool:
        return inspect.isclass(member) and issubclass(member, Handler) and member is not Handler

    return _handler_class(_member(module, path, folder, is_handler, _A_CLASS), class_name)


def create(entry: Entry, folder: Path) -> Handler:
    """Create a handler for `entry`, or what stands for one with coroutines, without opening it.

    Raises HandlerTypeError as `resolve` does. Raises OptionsError if the options are not valid, or if
    `__init__` raises."""
    handler = resolve(entry.type, folder)
    faults = check_options(handler, entry.options)
    if faults:
        told = "; ".join(f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in faults)
        raise OptionsError(f"{entry.type}: {told}")
    try:
        return awaited(handler(**entry.options))
    except (Exception, SystemExit) as error:
        raise OptionsError(f"{entry.type} refused its options: {_told(error)}") from error


def load_function(path: str, folder: Path, arguments: Sequence[str]) -> Callable[..., Any]:
    """Return the function named by `path` (`package.module:function`). Modules are searched as in `resolve`.

    `arguments`: the names of its arguments, in order, for messages.

    Raises HandlerTypeError if the module or function does not exist, or if the import fails. Also raised if
    the function does not take these arguments, is `async`, or has a `yield`."""
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), name]):
        raise HandlerTypeError("not an import path", _ALLOWED_FUNCTION)
    module = _module(module_name, name, folder, _ALLOWED_FUNCTION, None)
    wanted = f"def {name}({', '.join(arguments)})"

    def is_own(member: Any) -> bool:
        return inspect.isfunction(member) and member.__module__ == module.__name__

    found: Callable[..., Any] = _member(module, path, folder, is_own, wanted)
    is_function = callable(found) and not inspect.isclass(found)
    problem = uncallable(found, arguments) if is_function else "is not a function"
    if problem is not None:
        raise HandlerTypeError(f"{name} {problem}", wanted)
    return found


def section_model(name: str) -> type[BaseModel]:
    """Return the model of a configuration section that belongs to a handler (`spark`)."""
    module_name, _, class_name = _SECTIONS[name].partition(":")
    model: type[BaseModel] = getattr(importlib.import_module(module_name), class_name)
    return model


def _module(name: str, member: str, folder: Path, allowed: str, near: str | None) -> ModuleType:
    text = str(folder.absolute())
    if text not in sys.path:
        sys.path.append(text)
        importlib.invalidate_caches()
    try:
        return _imported(name, member)
    except ModuleNotFoundError as error:
        missing = (error.name or "").removeprefix("user_")
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise HandlerTypeError(
                f"there is no module {missing} on PYTHONPATH or in {text}", allowed, near
            ) from None
        raise _unusable(error, folder) from error
    except (Exception, SystemExit) as error:
        raise _unusable(error, folder) from error


def _unusable(error: BaseException, folder: Path) -> HandlerTypeError:
    """Describe what a module raised at import, with the line in the user's code."""
    place = ""
    if not isinstance(error, SyntaxError):  # its text already names the line
        top = str(folder.absolute())
        own = [each for each in extract_tb(error.__traceback__) if each.filename.startswith(top)]
        place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return HandlerTypeError(f"its module cannot be imported: {_told(error)}{place}", _IMPORTABLE)


def _member(
    module: ModuleType, path: str, folder: Path, is_meant: Callable[[Any], bool], otherwise: str
) -> Any:
    """Return the member that `path` names. If it is missing, raise HandlerTypeError: with the members that
    `is_meant` accepts, or with the module of this name that hides the user's."""
    module_name, _, name = path.partition(":")
    found = getattr(module, name, None)
    if found is not None:
        return found
    own = folder.absolute() / f"{module_name.replace('.', '/')}.py"
    file = getattr(module, "__file__", None)
    problem = f"the module {module_name} has no {name}"
    if own.exists() and (file is None or not own.samefile(file)):
        problem += f": it was loaded from {file or 'Python itself'}, which is found before {own}"
        raise HandlerTypeError(problem, _OTHER_NAME)
    there = sorted(each for each, member in vars(module).items() if is_meant(member))
    near = nearest(name, there)
    raise HandlerTypeError(problem, ", ".join(there) or otherwise, near and f"{module_name}:{near}")


def _imported(name: str, member: str) -> ModuleType:
    if name.partition(".")[0] not in OWN:
        return importlib.import_module(name)
    # The user may have a module with one of binlane's names: use the module that has `member`.
    try:
        own = importlib.import_module(name)
    except ModuleNotFoundError:
        own = None
    if own is not None and hasattr(own, member):
        return own
    return user_module(name) or own or importlib.import_module(name)


def _handler_class(found: Any, class_name: str) -> type[Handler]:
    if not inspect.isclass(found):
        raise HandlerTypeError(f"{class_name} is not a class", _A_CLASS)
    if not issubclass(found, Handler):
        raise HandlerTypeError(
            f"{class_name} does not inherit from binlane.Handler", "a class that inherits from it"
        )
    if found.handle is Handler.handle:
        raise HandlerTypeError(f"{class_name} has no handle method", "a class with handle(self, batch)")
    for name, arguments in _METHODS.items():
        own = inspect.getattr_static(found, name)
        called = ("self", *arguments) if inspect.isfunction(own) else arguments
        problem = unawaited(found, name) or uncallable(getattr(found, name), called, awaits=True)
        if problem is not None:
            wanted = f"def {name}({', '.join(('self', *arguments))})"
            raise HandlerTypeError(f"{class_name}.{name} {problem}", wanted)
    return found


def _likely(handler_type: str) -> str | None:
    """Guess the intended type. The usual mistake is `package.module.Class`, without a colon."""
    *module, class_name = handler_type.split(".")
    if module and class_name[:1].isupper() and all(name.isidentifier() for name in module):
        return f"{'.'.join(module)}:{class_name}"
    return _OTHER_NAMES.get(handler_type.casefold()) or nearest(handler_type, BUILT_IN)


def _told(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the process: sys.exit({'' if error.code is None else repr(error.code)})"
    return " ".join(f"{type(error).__name__}: {error}".split())
