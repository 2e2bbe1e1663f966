"""Load a configuration from a file, or report everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from handlers.api import Handler
from handlers.loading.registry import HandlerTypeError, load_function, resolve, section_model
from handlers.options.faults import Explanation, check_model, check_options, explain
from worker.certificate import Certificate, CertificateError
from worker.configuration.agreement import disagreements, reserved_locations, shared_locations
from worker.configuration.document import (
    ConfigurationError,
    Document,
    Fault,
    KeyPath,
    key_path,
    parse,
    shown,
    typed,
)
from worker.configuration.kafka_properties import settings_faults
from worker.configuration.model import Configuration
from worker.configuration.secrets import MASK, Secrets, is_secret_place
from worker.configuration.sections import KafkaRule
from worker.configuration.shown import hidden_paths, secret_texts
from worker.configuration.table_rules import HANDLER_KEYS
from worker.configuration.variables import Variables

# Pydantic's errors for a wrong type, and the types that fix them.
_WANTED = {"string_type": (str,), "int_type": (int,), "float_type": (int, float), "bool_type": (bool,)}
_TRACING = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_SPARK = ("pyspark", "pyarrow", "obstore")


def load(
    path: Path, *, environment: Mapping[str, str] | None = None, check_handlers: bool = True
) -> Configuration:
    """Read and check a configuration file.

    Args:
        path: the YAML file.
        environment: the variables that `${NAME}` reads; default: the process's environment.
        check_handlers: check the handlers' modules, options and packages. Commands that run no handler
            skip it.

    Raises ConfigurationError: with every fault that was found."""
    text = _read(path)
    variables = Variables(os.environ if environment is None else environment, path.absolute().parent)
    document = parse(text, str(path), variables)
    if document.data is None:
        raise ConfigurationError(document.faults)
    _keep_properties_text(document)
    checker = _Checker(document)
    if check_handlers:
        checker.handlers(path.absolute().parent)
    configuration = checker.model()
    checker.properties()
    if configuration is not None:
        checker.agreement(configuration)
    if configuration is not None and not document.faults:
        checker.add(shared_locations(configuration), reserved_locations(configuration))
        if check_handlers:
            checker.add(
                _missing_packages(configuration), _unfit_functions(configuration, path.absolute().parent)
            )
            checker.certificate(configuration, path.absolute().parent)
    if configuration is None or document.faults:
        raise ConfigurationError(sorted(document.faults, key=lambda fault: fault.line or 0))
    return configuration.read_from(path, checker.secrets, frozenset(hidden_paths(document)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError([Fault(str(path), "the file is not UTF-8 text")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError([Fault(str(path), f"the file cannot be read ({reason})")]) from None


def _keep_properties_text(document: Document) -> None:
    """Keep the values of properties as text: a password of digits must not become a number."""
    for path, replacement in document.replaced.items():
        if path[:2] == ("kafka", "properties") and len(path) == 3:
            document.data["kafka"]["properties"][path[2]] = replacement.text


class _Checker:
    """Collects the faults of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._data: dict[Any, Any] = document.data
        self._faulty: set[str] = {fault.path for fault in document.faults}
        self.secrets = Secrets(secret_texts(document))
        # Messages of other libraries are redacted of every variable's value, secret or not.
        values = [value for replacement in document.replaced.values() for value in replacement.values]
        self._everything = Secrets([*secret_texts(document), *values])

    def model(self) -> Configuration | None:
        try:
            return Configuration.model_validate(self._data, context={"file": True})
        except ValidationError as error:
            if self._retyped(error, ()):
                return self.model()
            self._explained(explain(error.errors(include_url=False), Configuration), ())
            return None

    def handlers(self, folder: Path) -> None:
        section = self._data.get("spark")
        if isinstance(section, dict) and section:
            self._mend(section_model("spark"), section, ("spark",))
            self._explained(check_model(section_model("spark"), _texts(section), of_file=True), ("spark",))
        for place, entry in self._entries():
            handler_type = entry.get("type")
            if not isinstance(handler_type, str) or not handler_type or self._has_fault((*place, "type")):
                continue
            try:
                handler = resolve(handler_type, folder)
            except HandlerTypeError as error:
                # The problem names the module, which is part of the value.
                problem = "it names no handler" if self._hidden((*place, "type")) else error.problem
                found = f"found {self._shown((*place, 'type'))}: {problem}"
                self._add((*place, "type"), found, error.allowed, error.nearest)
                continue
            self._options(handler, place, entry, folder)

    def _options(self, handler: type[Handler], place: KeyPath, entry: dict[Any, Any], folder: Path) -> None:
        if handler.options_model is not None:
            self._mend(handler.options_model, entry, place)
        options = _texts(entry, without=HANDLER_KEYS)
        self._explained(check_options(handler, options, of_file=True), place)
        for name, arguments in handler.function_options.items():
            path, named = (*place, name), entry.get(name)
            if isinstance(named, str) and not self._has_fault(path):
                try:
                    load_function(named, folder, arguments)
                except HandlerTypeError as error:
                    problem = "it names no function" if self._hidden(path) else error.problem
                    self._add(path, f"found {self._shown(path)}: {problem}", error.allowed, error.nearest)

    def _mend(self, model: type[BaseModel], holder: dict[Any, Any], place: KeyPath) -> None:
        try:
            model.model_validate(_texts(holder, without=HANDLER_KEYS))
        except ValidationError as error:
            self._retyped(error, place)

    def properties(self) -> None:
        """Check kafka.properties alone, even if the rest of the configuration has faults."""
        kafka = self._data.get("kafka")
        properties = kafka.get("properties") if isinstance(kafka, dict) else None
        if not isinstance(properties, dict):
            return
        named = {name: value for name, value in properties.items() if isinstance(name, str)}
        for error in settings_faults(
            KafkaRule.model_construct(bootstrap_servers="any", group_id="any", topics=[], properties=named)
        ):
            name = error.key.removeprefix("kafka.properties").removeprefix(".")
            path: KeyPath = ("kafka", "properties", name) if name else ("kafka", "properties")
            self._add(path, error.problem)

    def certificate(self, configuration: Configuration, folder: Path) -> None:
        rule = configuration.http
        if rule is None or rule.tls is None:
            return
        try:
            Certificate(folder / rule.tls.certificate, folder / rule.tls.key)
        except CertificateError as error:
            self._add(tuple(error.key.split(".")), error.problem)

    def agreement(self, configuration: Configuration) -> None:
        for path, sentence in disagreements(configuration):
            self._add(path, f"found {self._shown(path)}; {sentence}")

    def add(self, *found: Iterable[tuple[KeyPath, str]]) -> None:
        for path, sentence in chain.from_iterable(found):
            self._add(path, sentence)

    def _entries(self) -> Iterator[tuple[KeyPath, dict[Any, Any]]]:
        tables = self._data.get("tables")
        for index, table in enumerate(tables if isinstance(tables, list) else []):
            handlers = table.get("handlers") if isinstance(table, dict) else None
            for number, entry in enumerate(handlers if isinstance(handlers, list) else []):
                if isinstance(entry, dict):
                    yield ("tables", index, "handlers", number), entry

    def _retyped(self, error: ValidationError, place: KeyPath) -> bool:
        """Convert variables' values to the type that is expected: the original text, or the number in it.

        Returns whether anything changed."""
        changed = False
        for one in error.errors(include_url=False, include_context=False):
            path = (*place, *one["loc"])
            replacement = self._document.replaced.get(path)
            if replacement is None or not replacement.whole or one["type"] not in _WANTED:
                continue
            value = replacement.text if one["type"] == "string_type" else typed(replacement.text)
            holder = self._value(path[:-1])
            if type(holder[path[-1]]) is not type(value):
                holder[path[-1]] = value
                changed = type(value) in _WANTED[one["type"]] or changed
        return changed

    def _explained(self, explanations: list[Explanation], place: KeyPath) -> None:
        for one in explanations:
            path = (*place, *one.path)
            if one.problem == "missing":
                self._add(path, one.message)
            elif one.problem == "refused":
                found = "" if isinstance(self._value(path), Mapping) else f"found {self._shown(path)}: "
                is_hidden = self._hidden(path)
                message = one.message.replace(str(self._value(path)), MASK) if is_hidden else one.message
                self._add(path, f"{found}{message}")
            else:
                found = f"found {self._shown(path)}" if one.problem == "value" else one.problem
                self._add(path, found, one.allowed, one.nearest)

    def _add(self, path: KeyPath, found: str, allowed: str = "", nearest: str | None = None) -> None:
        if self._has_fault(path):
            return
        # The nearest spelling of a hidden value would reveal it.
        near = (
            None
            if self._hidden(path) or any(one[: len(path)] == path for one in self._document.replaced)
            else nearest
        )
        self._document.add(path, self._everything.redact(found), allowed, near)
        self._faulty.add(key_path(path))

    def _has_fault(self, path: KeyPath) -> bool:
        return key_path(path) in self._faulty

    def _shown(self, path: KeyPath) -> str:
        return MASK if self._hidden(path) else shown(self._value(path))

    def _hidden(self, path: KeyPath) -> bool:
        return path in self._document.replaced or is_secret_place(path)

    def _value(self, path: KeyPath) -> Any:
        value: Any = self._data
        for key in path:
            try:
                value = value[key]
            except (LookupError, TypeError):
                return None
        return value


def _texts(mapping: Mapping[Any, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Convert the mapping to keyword arguments."""
    return {str(key): value for key, value in mapping.items() if key not in without}


def _unfit_functions(configuration: Configuration, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    for number, rule in enumerate(configuration.tables):
        if rule.transform is not None:
            try:
                rule.transform.load(folder)
            except HandlerTypeError as error:
                yield ("tables", number, "transform"), f"found {rule.transform.function}: {error}"


# ---- missing packages of extras


def _missing_packages(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Yield (path of a key, how to install the package that it needs)."""
    if configuration.tracing is not None and not _are_installed(_TRACING):
        yield ("tracing",), _advice("otel")
    if not _are_installed(_SPARK):
        for number, rule in enumerate(configuration.tables):
            for place, entry in enumerate(rule.handlers):
                if entry.type == "spark" or (entry.type, entry.options.get("format")) == ("files", "parquet"):
                    yield ("tables", number, "handlers", place), _advice("spark")


def _advice(extra: str) -> str:
    return f"its packages are not installed: pip install '.[{extra}]' in binlane's folder"


def _are_installed(names: Iterable[str]) -> bool:
    try:
        return all(find_spec(name) is not None for name in names)
    except ModuleNotFoundError:  # the parent package is missing too
        return False
