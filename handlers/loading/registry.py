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
from handlers.loading.user_code import OWN, uncallable, user_module
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
    """Create a handler for `entry`, without opening it.

    Raises HandlerTypeError as `resolve` does. Raises OptionsError if the options are not valid, or if
    `__init__` raises."""
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
    """Return the function named by `path` (`package.module:function`). Modules are searched as in `resolve`.

    `arguments`: the names of its arguments, in order, for messages.

    Raises HandlerTypeError if the module or function does not exist, or if the import fails. Also raised if
    the function does not take these arguments, is `async`, or has a `yield`."""
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), name]):
        raise HandlerTypeError("not an import path", _ALLOWED_FUNCTION)
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
        raise HandlerTypeError(f"{name} is not a function", f"def {wanted}")
    problem = uncallable(found, arguments)
    if problem is not None:
        raise HandlerTypeError(f"{name} {problem}", f"def {wanted}")
    function: Callable[..., Any] = found
    return function


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


def _refuse_hiding(module: ModuleType, name: str, member: str, folder: Path) -> None:
    """Raise HandlerTypeError if another module of this name hides the user's."""
    own = folder.absolute() / f"{name.replace('.', '/')}.py"
    file = getattr(module, "__file__", None)
    if own.exists() and (file is None or not own.samefile(file)):
        problem = f"the module {name} has no {member}: it was loaded from {file or 'Python itself'}"
        raise HandlerTypeError(f"{problem}, which is found before {own}", _OTHER_NAME)


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
    """Return the error for a missing name. `there`: the module's names of this kind."""
    near = nearest(name, there)
    allowed = ", ".join(sorted(there)) or otherwise
    problem = f"the module {module_name} has no {name}"
    return HandlerTypeError(problem, allowed, near and f"{module_name}:{near}")


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
