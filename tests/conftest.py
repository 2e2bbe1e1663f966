"""What every test may ask for: a real Kafka and real databases, one of each for the whole session."""

from __future__ import annotations

import faulthandler
import itertools
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import hypothesis
import pytest
import structlog
from servers.clickhouse_server import ClickHouseServer
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from servers.redis_node import RedisNode
from servers.search_node import SearchNode
from servers.server_process import ProgramMissing, ServerProcess
from servers.spark_cluster import ConnectNode, SparkCluster
from spark_sessions import SparkKeeper

from handlers.spark.runtime.jars import JarsError
from handlers.spark.runtime.versions import JavaError
from worker.local.broker import Broker, BrokerError
from worker.running.process import LastResort

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from servers.s3_server import S3Server

pytest_plugins = ("sharing_servers",)

MakeTopic = Callable[..., str]
AnyServer = TypeVar("AnyServer", bound=ServerProcess)
_stacks = pytest.StashKey[IO[str]]()


# A runner that was started in the background ignores SIGINT, and so would every process that the tests start;
# Ctrl-C is part of what is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A worker that is stopped in a test's own process is not to end that process, whatever hangs.
LastResort.arm = lambda self, seconds: None  # type: ignore[method-assign]

# Spark's output comes whenever it comes, and must not get into the standard output that a test reads.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))

# How wide the runner's own terminal is must not show in what a command prints.
os.environ.pop("COLUMNS", None)

# How long an example takes depends on what else the machine does, and proves nothing.
hypothesis.settings.register_profile("patient", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("patient")


def pytest_sessionstart(session: pytest.Session) -> None:
    """A runner that dies of a signal leaves its stacks in the folder for temporary files: where pytest writes
    them nobody reads, when it runs beside others."""
    file = Path(tempfile.gettempdir(), f"binlane-tests-{os.getpid()}.stacks")
    session.config.stash[_stacks] = log = file.open("w", encoding="utf-8")
    faulthandler.enable(file=log)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing is left of a runner that ends by itself."""
    log = config.stash.get(_stacks, None)
    if log is not None:
        Path(log.name).unlink(missing_ok=True)  # stays open: the interpreter's own end may still fail


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """How a runner has died that did not end by itself: xdist does not say."""
    if error is not None:
        code = node.gateway._io.popen.wait(10)
        print(f"runner {node.gateway.id}: exit code {code}; its stacks, if it could write them:")
        for file in Path(tempfile.gettempdir()).glob(f"binlane-tests-{node.gateway._io.popen.pid}.stacks"):
            print(file.read_text("utf-8"))


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """How one test has logging configured must not show in the next."""
    root = logging.getLogger()
    handlers, level, settings = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**settings)
    logging.captureWarnings(capture=False)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A running Kafka that all tests share: one that stops or disturbs it starts a Broker of its own."""
    node = Broker()
    try:
        node.start()
    except (BrokerError, JarsError, JavaError) as fault:
        node.close()
        _give_up(f"the broker cannot start: {fault}")
    yield node
    node.close()


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus' own program that evaluates rules."""
    return shutil.which("promtool") or _give_up("there is no promtool: tools/setup.sh servers installs it")


@pytest.fixture(scope="session")
def helm() -> str:
    """The program that renders the Helm chart."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("helm", path=places)
    return found or _give_up("there is no helm: its package is for Linux on x86-64, elsewhere install Helm 3")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium for the tests of a module. It has the thread's event loop as long as it runs:
    tests beside it in the module make none of their own."""
    program = shutil.which("chromium")
    if program is None:
        _give_up("there is no chromium: tools/setup.sh servers installs it")
    from playwright.sync_api import sync_playwright  # what it needs takes a second to load

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program)
        yield chromium
        chromium.close()


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL that all tests share: `postgres.new_database("name")` gives a URL of your own."""
    with ExitStack() as stack:
        yield _started(PostgresServer, stack)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    """A running MariaDB that all tests share: `mariadb.new_database("name")` gives a URL of your own."""
    with ExitStack() as stack:
        yield _started(MariaDBServer, stack)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisNode]:
    """A running Redis that all tests share: `redis_server.new_database("name")` gives a URL of your own."""
    with ExitStack() as stack:
        yield _started(RedisNode, stack)


@pytest.fixture(scope="session")
def search_node() -> Iterator[SearchNode]:
    """A running OpenSearch that all tests share: `search_node.new_name()` gives a database of your own."""
    with ExitStack() as stack:
        yield _started(SearchNode, stack)


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouseServer]:
    """A running ClickHouse that all tests share: `clickhouse.new_name()` gives a database of your own."""
    with ExitStack() as stack:
        yield _started(ClickHouseServer, stack)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A running S3 that all tests share: `s3.new_bucket()` gives a bucket of your own, `s3.environment` tells
    clients where it is."""
    from servers.s3_server import S3Server  # what it needs takes seconds to load

    server = S3Server()
    server.start()
    yield server
    server.close()


@pytest.fixture
def own_postgres() -> Iterator[Callable[[], PostgresServer]]:
    """`own_postgres()` starts a PostgreSQL that the test may stop, kill and restart."""
    with ExitStack() as stack:
        yield lambda: _started(PostgresServer, stack)


@pytest.fixture
def own_mariadb() -> Iterator[Callable[[], MariaDBServer]]:
    """`own_mariadb()` starts a MariaDB that the test may stop, kill and restart."""
    with ExitStack() as stack:
        yield lambda: _started(MariaDBServer, stack)


@pytest.fixture
def own_redis() -> Iterator[Callable[[], RedisNode]]:
    """`own_redis()` starts a Redis that the test may stop, kill and restart."""
    with ExitStack() as stack:
        yield lambda: _started(RedisNode, stack)


@pytest.fixture
def own_clickhouse() -> Iterator[Callable[[], ClickHouseServer]]:
    """`own_clickhouse()` starts a ClickHouse that the test may stop, kill and restart."""
    with ExitStack() as stack:
        yield lambda: _started(ClickHouseServer, stack)


@pytest.fixture
def own_search_node() -> Iterator[Callable[[], SearchNode]]:
    """`own_search_node()` starts an OpenSearch that the test may stop, kill and restart."""
    with ExitStack() as stack:
        yield lambda: _started(SearchNode, stack)


@pytest.fixture(scope="session")
def spark_keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkKeeper]:
    """`spark_keeper.get()`, once in each module: the Spark that the modules of this process share."""
    keeper = SparkKeeper(tmp_path_factory.mktemp("spark"))
    yield keeper
    keeper.stop()


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A standalone cluster of Spark that all tests share. One that kills a part of it starts it again, and
    none leaves an application behind, which would keep all executors."""
    cluster = SparkCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def _connect_node() -> Iterator[ConnectNode]:
    node = ConnectNode()
    yield node
    node.close()


@pytest.fixture
def connect_server(_connect_node: ConnectNode) -> ConnectNode:
    """A running Spark Connect server that all tests share, and may kill."""
    if not _connect_node.running:
        _connect_node.start()
    return _connect_node


@pytest.fixture
def start_server() -> Iterator[Callable[[AnyServer], AnyServer]]:
    """`start_server(server)` starts a server of the test alone, and returns it."""
    with ExitStack() as stack:
        yield lambda server: _start(server, stack)


def _started(kind: type[AnyServer], stack: ExitStack) -> AnyServer:
    return _start(kind(), stack)


def _start(server: AnyServer, stack: ExitStack) -> AnyServer:
    stack.callback(server.close)
    try:
        server.start()
    except (ProgramMissing, JarsError, JavaError) as fault:
        _give_up(str(fault))
    return server


_numbers = itertools.count(1)


@pytest.fixture
def make_topic(broker: Broker, request: pytest.FixtureRequest) -> MakeTopic:
    """`make_topic(partitions=1, **config)` makes a topic that no other test has, and returns its name."""

    def make(partitions: int = 1, **config: str) -> str:
        # Kafka's topic names: letters, digits, `.`, `_` and `-`, at most 249.
        test = re.sub(r"[^a-zA-Z0-9-]+", "-", request.node.name)[:150].strip("-")
        return broker.create_topic(f"{test}-{next(_numbers)}", partitions, **config)

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A topic of one partition."""
    return make_topic()
