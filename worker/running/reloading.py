"""Comparing configurations, applying the new one to a running worker, and reporting what needs a restart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from handlers.hanging_calls import Bounded, GivenUp
from handlers.loading.registry import HandlerTypeError, OptionsError
from handlers.logs import get_logger
from worker.attempts.backoff import describe
from worker.attempts.circuit import BoundHandler
from worker.configuration import Configuration, ConfigurationError, load
from worker.configuration.agreement import disagreements
from worker.configuration.document import key_path
from worker.observing import logs
from worker.running.components import Components
from worker.running.handler_set import OPENING_SECONDS, HandlerOpenError
from worker.running.open_handlers import HandlerPlan
from worker.units.table import home_lane

log = get_logger("reload")

LIVE = (
    "batch",
    "checkpoint.interval",
    "dead_letter.max_ratio",
    "lanes.count",
    "lanes.max_bytes",
    "lanes.max_records",
    "lanes.parked",
    "lanes.work_stealing",
    "logging.level",
    "masking",
    "max_ahead",
    "revoke_timeout",
    "shutdown_timeout",
    "start_timeout",
    "stuck_after",
    "tables",
)
"""Key paths that a running worker applies, with all keys below them. Other changes need a restart."""


class FileWatch:
    """Checks the file on request. A change counts when two consecutive checks find the same content.

    So a file that is being written is not read half-way. The content decides, not the time: Kubernetes swaps
    a link to another folder when a ConfigMap changes, and editors rewrite unchanged files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = self._seen = self._digest()

    def changed(self) -> bool:
        """Return True once for each change. A missing file is no change."""
        digest = self._digest()
        settled = digest is not None and digest == self._seen
        self._seen = digest
        if not settled or digest == self._read:
            return False
        self._read = digest
        return True

    def taken(self) -> None:
        """The file is read for another reason: its present content is no change any more."""
        self._read = self._seen = self._digest()

    def _digest(self) -> bytes | None:
        try:
            return hashlib.blake2b(self._path.read_bytes(), digest_size=16).digest()
        except OSError:
            return None


class Reloader:
    """Checks the configuration file, and applies it when it has changed. The main thread's own.

    A broken new file, or one whose handlers cannot be opened, changes nothing. Code of handlers (their
    import, `open`, `close`) runs in a separate thread, so that a stop does not wait for it. Changes to lanes
    and tables are made by the fetcher's thread between two polls, when nothing is routed."""

    def __init__(
        self, configuration: Configuration, components: Components, *, stopped: Callable[[], bool]
    ) -> None:
        self.configuration = configuration
        """The present configuration of the worker."""
        self._components = components
        self._stopped = stopped
        self._watch = FileWatch(configuration.path)
        self._wanted = False

    def want(self) -> None:
        """Read the file at the next look, changed or not (SIGHUP)."""
        self._wanted = True

    def look(self) -> bool:
        """Return True if this has changed the configuration."""
        if self._components.handlers.has_retired:
            self._components.handlers.close_retired(self._in_use(), stopped=self._stopped)
        if self._wanted:
            self._watch.taken()
        elif not self._watch.changed():
            return False
        self._wanted = False
        try:
            taken = self._reload()
        except GivenUp as error:
            log.warning("reload_given_up", reason=str(error))
            return False
        self._components.metrics.reload("success" if taken is not None else "refused")
        return bool(taken)

    def _reload(self) -> bool | None:
        """Return True if something changed, False if nothing needed to, None if it was refused."""
        old = self.configuration
        try:
            new = Bounded("reload-read", lambda: load(old.path)).unless(self._stopped)
        except ConfigurationError as error:
            for fault in error.faults:
                log.error("reload_refused", fault=str(fault), hint="the old configuration stays in use")
            return None
        # Before logging anything about it: a handler that cannot open may quote its new password.
        old.secrets.learn(new.secrets)
        changes = compare(old, new)
        now = merge(old, new)
        for path, problem in disagreements(now):
            log.error(
                "reload_refused",
                fault=f"{key_path(path)}: {problem}",
                hint="without the keys that need a restart, the configuration conflicts; restart the worker",
            )
            return None
        if changes.live:
            try:
                plan = self._opened(now)
            except (HandlerTypeError, OptionsError, HandlerOpenError) as error:
                log.error("reload_refused", fault=describe(error), hint="the old configuration stays in use")
                return None
            if not self._components.requests.ask(lambda: self._adopt(plan), give_up=self._stopped):
                return None  # the worker stops; the new configuration no longer matters
            log.info("reloaded", changed=changes.live)
        elif not changes.restart:
            log.info("reload_found_no_changes")
        if changes.restart:
            log.warning(
                "reload_needs_restart", keys=changes.restart, hint="these keep their old values until then"
            )
        return bool(changes.live)

    def _opened(self, now: Configuration) -> HandlerPlan:
        handlers = self._components.handlers
        opening = Bounded("reload-open", lambda: handlers.plan(now))
        try:
            return opening.unless(self._stopped, now.start_timeout + OPENING_SECONDS)
        except TimeoutError as error:
            handlers.give_up_plan()
            raise HandlerOpenError(f"handler {handlers.opening} has not opened ({error})") from None

    def _adopt(self, plan: HandlerPlan) -> None:
        """Between two polls, on the fetcher's thread: nothing is routed or offered meanwhile."""
        components, now, old = self._components, plan.configuration, self.configuration
        components.handlers.adopt(plan)
        changed = components.book.adopt(now)
        components.lanes.give_tables(changed)
        if now.lanes != old.lanes:
            count = now.lanes.count
            free = components.lanes.resize(
                now.lanes, lambda unit: home_lane(unit.table.label, count), components.book.all()
            )
            components.man(free)
        for stage in components.stages:
            stage.adopt(now)
        if now.dead_letter is not None and components.dead_letters is not None:
            components.dead_letters.allow(now.dead_letter.max_ratio)
        components.stuck.after = now.stuck_after
        components.committer.pace(now.checkpoint.interval)
        components.starts.adopt(now)
        if now.logging.level != old.logging.level:
            logs.configure(now.logging.level, now.logging.format, redact=now.secrets.redact)
        self.configuration = now

    def _in_use(self) -> set[BoundHandler]:
        """Return the handlers that a table or a running batch still has."""
        components = self._components
        used = {bound for work in components.lanes.seen.running() for bound in work.table.handlers}
        busy = components.book.busy(components.backlog.parts, components.lanes.at_rest)
        return used | {bound for unit in busy for bound in unit.table.handlers}


@dataclass(frozen=True, slots=True)
class _Changes:
    """The key paths whose values differ, sorted."""

    live: tuple[str, ...]
    """Paths in LIVE, or below one."""
    restart: tuple[str, ...]
    """All other paths."""

    def __bool__(self) -> bool:
        return bool(self.live or self.restart)


def compare(old: Configuration, new: Configuration) -> _Changes:
    """Return the key paths whose values differ. The values themselves may be secret and are left out."""
    paths = sorted(set(_differing(old, new, "")))
    live = [path for path in paths if any(path == key or path.startswith(f"{key}.") for key in LIVE)]
    return _Changes(tuple(live), tuple(path for path in paths if path not in live))


def merge(old: Configuration, new: Configuration) -> Configuration:
    """Return the configuration to continue with: LIVE keys from `new`, all others from `old`.

    It keeps the `Secrets` object of `old`, which all parts share. The caller adds the secrets of `new` to it.
    """
    updates: dict[str, object] = {}
    for path in LIVE:
        section, _, key = path.partition(".")
        wanted = getattr(new, section)
        if not key:
            updates[section] = wanted
            continue
        present = updates.get(section, getattr(old, section))
        if isinstance(present, BaseModel) and isinstance(wanted, BaseModel):
            updates[section] = present.model_copy(update={key: getattr(wanted, key)})
    return old.model_copy(update=updates).read_from(new.path, old.secrets, old.hidden | new.hidden)


def _differing(old: object, new: object, path: str) -> list[str]:
    if isinstance(old, BaseModel) and isinstance(new, BaseModel) and type(old) is type(new):
        return [
            found
            for name, field in type(old).model_fields.items()
            for found in _differing(
                getattr(old, name), getattr(new, name), f"{path}.{field.alias or name}".lstrip(".")
            )
        ]
    return [] if _plain(old) == _plain(new) else [path]


def _plain(value: object) -> object:
    """Dump models to plain values: their private attributes always differ."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.model_dump() if isinstance(value, BaseModel) else value
