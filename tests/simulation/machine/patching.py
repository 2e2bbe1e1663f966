"""The simulated `threading`, `time`, Kafka ... in place of the real ones in the worker's modules."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import queue
import random
import secrets
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from zlib import crc32

import structlog

import worker.running.worker as running
from handlers.loading import registry
from offsets import file_lock
from offsets.finished import map as finished_map
from offsets.finished import reading, segment
from offsets.journal import files as journal_files
from offsets.run import Run
from offsets.stores import file as file_store
from offsets.tracker import OffsetTracker
from worker.fetching import fetcher
from worker.running import components, process, reloading
from worker.units import parking_files
from worker.units.assigned_partition import Assignment
from worker.units.unit import Unit

from . import threads
from .child_patching import put_children
from .scheduler import current

__all__ = ["patched"]

_PACKAGES = ("worker.", "offsets.", "handlers.")


def _monotonic() -> float:
    return current().now if _here() else time.monotonic()


def _wall() -> float:
    return 1_763_000_000.0 + current().now if _here() else time.time()


def _any() -> float:
    return current().random.random()


def _bits(count: int) -> int:
    return current().random.getrandbits(count)


def _sleep(seconds: float) -> None:
    if _here():
        current().park(seconds)
    else:
        time.sleep(seconds)


def _here() -> bool:
    """Is this the thread that simulates? What runs beside it, such as the watch over a Spark of other tests,
    has the real things: otherwise it would use up turns and chances of the seed."""
    return threading.get_ident() == _simulating[-1]


_simulating: list[int] = [0]


class _Instead:
    """A module with other things in it, for the thread that simulates."""

    def __init__(self, real: types.ModuleType, **simulated: Any) -> None:
        self._real = real
        self._simulated = simulated

    def __getattr__(self, name: str) -> Any:
        return self._simulated[name] if _here() else getattr(self._real, name)


_time = _Instead(time, monotonic=_monotonic, time=_wall, perf_counter=_monotonic, sleep=_sleep)
_threading = _Instead(
    threading,
    Lock=threads.Lock,
    RLock=threads.RLock,
    Condition=threads.Condition,
    Event=threads.Event,
    Thread=threads.Thread,
    get_ident=threads.get_ident,
    current_thread=threads.current_thread,
    main_thread=threading.main_thread,
    local=threading.local,
    TIMEOUT_MAX=threading.TIMEOUT_MAX,
)
_queue = _Instead(queue, SimpleQueue=threads.SimpleQueue, Empty=queue.Empty)
_random = _Instead(random, random=_any)
_secrets = _Instead(secrets, randbits=_bits)
_ON_DISK = (file_store, segment, file_lock, journal_files, parking_files)
_gc = types.SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *_: None)

_REPLACED: dict[int, Any] = {
    id(threading): _threading,
    id(time): _time,
    id(queue): _queue,
    id(random): _random,
    id(secrets): _secrets,
    id(concurrent.futures.ThreadPoolExecutor): threads.Pool,
}
_FACTORIES: dict[Any, Any] = {
    threading.Lock: threads.Lock,
    threading.Event: threads.Event,
    threading.Condition: threads.Condition,
}
_DEFAULTS: dict[Any, Any] = {time.monotonic: _monotonic, time.time: _wall, time.sleep: _sleep}


class _Request(fetcher._Request):
    """What it is waited for by was chosen when its class was made: before anything is replaced."""

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__(do)
        for each in dataclasses.fields(fetcher._Request):
            if each.default_factory in _FACTORIES:
                setattr(self, each.name, _FACTORIES[each.default_factory]())


class _NoWatch:
    """Nobody edits the configuration but the simulation."""

    def __init__(self, path: object) -> None:
        pass

    def changed(self) -> bool:
        return False

    def taken(self) -> None:
        pass


@contextlib.contextmanager
def patched(world: Any) -> Iterator[None]:
    """`world`: the module with what makes a worker's surroundings: Consumer, AdminClient, LastResort ..."""
    undo: list[Callable[[], None]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        setattr(owner, name, value)
        undo.append(lambda: setattr(owner, name, before))

    def logged(logger: Any, name: str, event: Any) -> Any:
        if _here():
            return world.logged(logger, name, event)
        raise structlog.DropEvent

    logging = structlog.get_config()
    _simulating.append(threading.get_ident())
    try:  # what is put in place is taken out again, also when something of it is not there any more
        replaced = {**_REPLACED, id(registry.create): world.create_handler}
        for name, module in list(sys.modules.items()):
            if name.startswith(_PACKAGES) and module is not None:
                _patch_module(module, put, replaced)
        put(fetcher, "_Request", _Request)
        put(process, "gc", _gc)
        put(running, "take_signals", world.take_signals)
        put(running, "LastResort", world.LastResort)
        put(components, "Consumer", world.Consumer)
        put(components, "AdminClient", world.AdminClient)
        put(components, "own_store", world.own_store)
        put(components, "journal_of", world.journal_of)
        put(reloading, "load", world.load_configuration)
        put(reloading, "FileWatch", _NoWatch)
        # By default, a set's order depends on where in memory its members are: another one in each process.
        put(Assignment, "__hash__", lambda one: one.partition.partition * 1_000 + one.epoch)
        put(Unit, "__hash__", lambda one: crc32(one.table.label.encode()))
        put(Run, "finish", world.finish)
        put(Run, "finish_records", world.finish_records)
        put(OffsetTracker, "register", world.register)
        put(components, "FinishedMap", world.FinishedMap)
        put(finished_map, "boot_id", world.boot_id)
        put(reading, "boot_id", world.boot_id)
        put(segment, "mmap", world.Mmap)
        put_children(put, _gc)
        for module in _ON_DISK:
            put(module, "os", world.Os)
            if hasattr(module, "fcntl"):
                put(module, "fcntl", world.Fcntl)
        structlog.configure(
            processors=[logged],
            wrapper_class=structlog.make_filtering_bound_logger("info"),
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )
        yield
    finally:
        structlog.configure(**logging)
        for each in reversed(undo):
            each()
        _simulating.pop()


def _patch_module(
    module: types.ModuleType, put: Callable[[Any, str, Any], None], replaced: Mapping[int, Any]
) -> None:
    for name, value in list(vars(module).items()):
        if id(value) in replaced:
            put(module, name, replaced[id(value)])
        elif isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            _patch_defaults(value, put)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for own in vars(value).values():
                if isinstance(own, types.FunctionType):
                    _patch_defaults(own, put)
            if threading.Thread in value.__bases__:
                put(value, "__bases__", (threads.Thread,))


def _patch_defaults(function: types.FunctionType, put: Callable[[Any, str, Any], None]) -> None:
    if any(_known(each) for each in function.__defaults__ or ()):
        put(function, "__defaults__", tuple(_DEFAULTS[d] if _known(d) else d for d in function.__defaults__))
    if any(_known(each) for each in (function.__kwdefaults__ or {}).values()):
        changed = {n: _DEFAULTS[d] if _known(d) else d for n, d in function.__kwdefaults__.items()}
        put(function, "__kwdefaults__", changed)


def _known(value: object) -> bool:
    return isinstance(value, types.BuiltinFunctionType) and value in _DEFAULTS
