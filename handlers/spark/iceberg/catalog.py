"""The Iceberg catalog of a worker, by PyIceberg's configuration."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from pathlib import Path
from typing import Any

from handlers.api import TargetUnavailable
from handlers.spark.locations import location
from handlers.spark.options import SparkSection
from handlers.spark.table_ref import as_texts, path_safe

logging.getLogger("pyiceberg").setLevel(logging.WARNING)  # it reports each table that it reads with PyArrow
_AWAY = re.compile(
    "(Server|ServiceUnavailable|TooManyRequests|AuthorizationExpired|Connection|Timeout|Interface|Operational"
    "|EndpointConnection|ConnectTimeout|ReadTimeout)Error|CommitStateUnknownException|WaitingForLockException"
    "|TTransportException|Timeout"
)
_STORE_AWAY = re.compile(
    "AWS Error (NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING|REQUEST_TIMEOUT)"
    r"|HTTP status (429|5\d\d)|UNAVAILABLE|timed out|could(n't| not) connect",
    re.IGNORECASE,
)  # what Arrow says of a store
_KINDS = {"sqlite": "sql", "postgresql": "sql", "thrift": "hive"}
_MOST_SECONDS = 30.0
"""How long a catalog may take to answer, and to get a lock."""


class IcebergCatalog:
    """Loads and creates tables. Connects at the first use. Any thread may call any method.

    Methods raise TargetUnavailable while the catalog cannot be reached, RuntimeError if it is not well
    configured, and what PyIceberg raises."""

    def __init__(self, section: SparkSection, folder: Path) -> None:
        """`folder`: where relative paths begin (the configuration file's folder)."""
        given = as_texts(section.iceberg)
        self._name = given.pop("name", "default")
        by_address = _KINDS.get(re.split("[:+]", given.get("uri", ""))[0], "")  # as PyIceberg infers it
        kind = "" if "py-catalog-impl" in given else given.get("type", by_address).lower()
        if kind == "sql" and "uri" in given:
            given = {"pool_pre_ping": "true", **given, "uri": _database(given["uri"], folder)}
        self._warehouse: str | None = None
        if kind in ("sql", "hive", "glue", "dynamodb"):  # a REST catalog has its own warehouse
            own = f"{section.warehouse.rstrip('/')}/iceberg"
            given["warehouse"] = self._warehouse = location(given.get("warehouse", own).rstrip("/"), folder)
        self._given = given
        self._lock = threading.Lock()  # guards the next
        self._loaded: Any = None

    def load(self, name: tuple[str, ...]) -> Any:
        """Return the table, None if it does not exist."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError  # noqa: PLC0415 (an extra)

        try:
            table = self.connected().load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        # PyIceberg would repeat a refused commit on top of the other writer's, which may have the same rows.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table

    def location_of(self, name: tuple[str, ...]) -> str | None:
        """Return where to create a table, whatever its name is. None: the catalog decides."""
        if self._warehouse is None:
            return None
        properties = self.connected().load_namespace_properties(name[:-1])
        above = properties.get("location", f"{self._warehouse}/{path_safe('.'.join(name[:-1]))}")
        own = f"{above.rstrip('/')}/{path_safe(name[-1])}"
        metadata = self.connected()._load_file_io(location=own).new_input(f"{own}/metadata")
        return f"{own}-{uuid.uuid4().hex[:8]}" if metadata.exists() else own  # a renamed table has it

    def connected(self) -> Any:
        """Return PyIceberg's catalog."""
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 (it takes a second, and is an extra)

        with self._lock:
            try:
                if self._loaded is None:
                    if self._warehouse is None:
                        _limit_answers()
                    self._loaded = load_catalog(self._name, **self._given)
                    _limit_locks(getattr(self._loaded, "engine", None))
            except Exception as error:
                if is_outage(error):
                    raise TargetUnavailable(f"the Iceberg catalog cannot be reached: {error}") from error
                raise RuntimeError(
                    f"the Iceberg catalog {self._name!r} cannot be used ({type(error).__name__}: {error}): "
                    "set spark.iceberg to PyIceberg's properties, as {type: sql, uri: sqlite:///catalog.db}"
                ) from error
            return self._loaded


def _database(uri: str, folder: Path) -> str:
    """Return an SQL catalog's address with binlane's driver. A relative SQLite file begins at `folder`."""
    if (path := uri.removeprefix("sqlite:///")) != uri:
        file = Path(folder.absolute(), path)
        file.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{file}"
    found = re.sub("^postgres(ql)?:", "postgresql+psycopg:", uri)
    if found != uri and "connect_timeout" not in uri:
        limits = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": 60000}
        added = "&".join(f"{name}={value}" for name, value in limits.items() if name not in uri)
        found += ("&" if "?" in uri else "?") + added
    return found


def _limit_locks(engine: Any) -> None:
    """PostgreSQL waits for locks without a limit. `engine`: SQLAlchemy's, None for other catalogs."""
    if engine is not None and engine.dialect.name == "postgresql":
        from sqlalchemy import event  # noqa: PLC0415 (workers without such a catalog need none of it)

        sql = f"SET LOCAL lock_timeout = {_MOST_SECONDS * 1000:.0f}"
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(sql))


def _limit_answers() -> None:
    """PyIceberg 0.12 waits for a REST catalog's answer without a limit
    (https://github.com/apache/iceberg-python/issues/2772)."""
    import requests  # noqa: PLC0415 (the next one needs it)
    from pyiceberg.catalog import rest  # noqa: PLC0415 (an extra)

    class Session(requests.Session):
        def request(self, *given: Any, **named: Any) -> requests.Response:
            return super().request(*given, **{"timeout": _MOST_SECONDS, **named})

    vars(rest)["Session"] = Session


def is_outage(error: BaseException | None) -> bool:
    """Whether it is worth trying again, because a catalog or a store did not answer."""
    if error is None:
        return False
    if isinstance(error, OSError) and _STORE_AWAY.search(str(error)):
        return True
    names = (each.__name__ for each in type(error).__mro__)
    return any(map(_AWAY.fullmatch, names)) or is_outage(error.__cause__)
