"""From names in the configuration to code: handlers' classes, built-in or by import path, and functions."""

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
from handlers.loading.calls import uncallable
from handlers.loading.user_modules import OWN, user_module
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
"""Imported only when asked for: Spark takes its time."""

_SECTIONS = {"spark": "handlers.spark.section:SparkSection"}

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
"""What others call what a built-in handler does."""

_ALLOWED = f"{', '.join(BUILT_IN)}, or an import path such as my_package.module:MyHandler"
_ALLOWED_FUNCTION = "an import path such as my_package.module:my_function"

_IMPORTABLE = "a module that Python can import"
_OTHER_NAME = "another name for your module"

_METHODS: Mapping[str, tuple[str, ...]] = {
    "handle": ("batch",),
    "open": ("context",),
    "release": ("partitions",),
    "close": (),
    "status": (),
    "check": ("context",),
}
"""Of a handler, with what the worker calls each with."""


class Entry(Protocol):
    """The part of a configuration entry that is read here."""

    @property
    def type(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class HandlerTypeError(ValueError):
    """The type leads to no handler class, or the path to no function.

    `problem` says why, `allowed` what would do, `nearest` what was meant; its text is all of it in one line.
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
    """The class that `handler_type` names: a built-in name, or `package.module:Class`.

    Modules are looked up on PYTHONPATH, then in `folder` (the configuration file's own), which stays on the
    import path so that the module may import its neighbours later.

    Raises HandlerTypeError: no such name, module or class; a module that fails when imported; a class that is
    no Handler, has no `handle`, or has a method that the worker cannot call.
    """
    path = BUILT_IN.get(handler_type, handler_type)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        raise HandlerTypeError("there is no such handler", _ALLOWED, _likely(handler_type))
    if not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        raise HandlerTypeError("it is no import path", _ALLOWED)
    near = nearest(handler_type, BUILT_IN)
    if module_name.endswith(".py"):
        near = f"{module_name.removesuffix('.py')}:{class_name}"
    module = _module(module_name, class_name, folder, _ALLOWED, near)
    found = getattr(module, class_name, None)
    if found is None:
        _refuse_hiding(module, module_name, class_name, folder)
        classes = [
            name
            for name, member in vars(module).items()
            if inspect.isclass(member) and issubclass(member, Handler) and member is not Handler
        ]
        raise _missing(module_name, class_name, classes, "a class that inherits from binlane.Handler")
    return _handler_class(found, class_name)


def create(entry: Entry, folder: Path) -> Handler:
    """A handler of its own for `entry`, not opened yet.

    Raises HandlerTypeError: as `resolve`; OptionsError: its options are not what it takes, or its `__init__`
    raised.
    """
    handler = resolve(entry.type, folder)
    faults = check_options(handler, entry.options)
    if faults:
        told = "; ".join(f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in faults)
        raise OptionsError(f"{entry.type}: {told}")
    try:
        return handler(**entry.options)
    except (Exception, SystemExit) as error:
        raise OptionsError(f"{entry.type} refused its options: {_told(error)}") from error


def load_function(path: str, folder: Path, arguments: Sequence[str]) -> Callable[..., Any]:
    """The function that `path` (`package.module:function`) names; modules are looked up as by `resolve`.

    `arguments`: the names of what it will be called with, in order, for messages.

    Raises HandlerTypeError: no such module or function; a module that fails when imported; a function that
    does not take these arguments, is `async`, or has a `yield`.
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), name]):
        raise HandlerTypeError("it is no import path", _ALLOWED_FUNCTION)
    module = _module(module_name, name, folder, _ALLOWED_FUNCTION, None)
    found = getattr(module, name, None)
    wanted = f"{name}({', '.join(arguments)})"
    if found is None:
        _refuse_hiding(module, module_name, name, folder)
        own = [
            each
            for each, member in vars(module).items()
            if inspect.isfunction(member) and member.__module__ == module.__name__
        ]
        raise _missing(module_name, name, own, f"def {wanted}")
    if not callable(found) or inspect.isclass(found):
        raise HandlerTypeError(f"{name} is no function", f"def {wanted}")
    problem = uncallable(found, arguments)
    if problem is not None:
        raise HandlerTypeError(f"{name} {problem}", f"def {wanted}")
    function: Callable[..., Any] = found
    return function


def section_model(name: str) -> type[BaseModel]:
    """The model of a section of the configuration that belongs to handlers (`spark`)."""
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
    """What a module raised when it was imported, with the line of the user's that did."""
    place = ""
    if not isinstance(error, SyntaxError):  # which tells it itself
        top = str(folder.absolute())
        own = [each for each in extract_tb(error.__traceback__) if each.filename.startswith(top)]
        place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return HandlerTypeError(f"its module cannot be imported: {_told(error)}{place}", _IMPORTABLE)


def _refuse_hiding(module: ModuleType, name: str, member: str, folder: Path) -> None:
    """Raise HandlerTypeError if the user's module of that name is hidden by another one."""
    own = folder.absolute() / f"{name.replace('.', '/')}.py"
    file = getattr(module, "__file__", None)
    if own.exists() and (file is None or not own.samefile(file)):
        problem = f"the module {name} has no {member}: it is the one of {file or 'Python itself'}"
        raise HandlerTypeError(f"{problem}, which comes before {own}", _OTHER_NAME)


def _imported(name: str, member: str) -> ModuleType:
    if name.partition(".")[0] not in OWN:
        return importlib.import_module(name)
    # A name of binlane's may be a module of the user's, too: then it is the one that has what is asked for.
    try:
        own = importlib.import_module(name)
    except ModuleNotFoundError:
        own = None
    if own is not None and hasattr(own, member):
        return own
    return user_module(name) or own or importlib.import_module(name)


def _handler_class(found: Any, class_name: str) -> type[Handler]:
    if not inspect.isclass(found):
        raise HandlerTypeError(f"{class_name} is not a class", "a class that inherits from binlane.Handler")
    if not issubclass(found, Handler):
        raise HandlerTypeError(
            f"{class_name} does not inherit from binlane.Handler", "a class that inherits from it"
        )
    if found.handle is Handler.handle:
        raise HandlerTypeError(f"{class_name} has no handle method", "a class with handle(self, batch)")
    for name, arguments in _METHODS.items():
        own = inspect.getattr_static(found, name)
        called = ("self", *arguments) if inspect.isfunction(own) else arguments
        problem = uncallable(getattr(found, name), called)
        if problem is not None:
            wanted = f"def {name}({', '.join(('self', *arguments))})"
            raise HandlerTypeError(f"{class_name}.{name} {problem}", wanted)
    return found


def _missing(module_name: str, name: str, there: list[str], otherwise: str) -> HandlerTypeError:
    """`there`: what the module has of this kind."""
    near = nearest(name, there)
    allowed = ", ".join(sorted(there)) or otherwise
    problem = f"the module {module_name} has no {name}"
    return HandlerTypeError(problem, allowed, near and f"{module_name}:{near}")


def _likely(handler_type: str) -> str | None:
    """`package.module.Class` is the usual slip: a colon belongs before the class."""
    *module, class_name = handler_type.split(".")
    if module and class_name[:1].isupper() and all(name.isidentifier() for name in module):
        return f"{'.'.join(module)}:{class_name}"
    return _OTHER_NAMES.get(handler_type.casefold()) or nearest(handler_type, BUILT_IN)


def _told(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the process: sys.exit({'' if error.code is None else repr(error.code)})"
    return " ".join(f"{type(error).__name__}: {error}".split())
