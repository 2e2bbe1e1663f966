"""What a store promises, held by real servers that take a while to fetch and start: `make soak`.

Hadoop's S3A (with moto's S3), HDFS (a name node and a data node of Hadoop's minicluster, inside Spark's Java
process), and Azure (Azurite).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pytest
from files_contract import OneWinsContract
from servers.azurite_server import ACCOUNT, AzuriteServer
from servers.s3_server import S3Server
from servers.server_process import HOST
from spark_sessions import LIGHT, SparkKeeper

from handlers.spark import SparkHandler
from handlers.spark.log.store_choice import files_for
from handlers.spark.log.stores.hadoop import HadoopFiles
from handlers.spark.log.stores.interface import Files, FilesError, StoreOverwrites
from handlers.spark.log.stores.object_stores import ObjectFiles
from handlers.spark.runtime.jars import resolve, spark_jars_folder
from handlers.spark.runtime.session import SharedSpark
from handlers.testing import make_batch, opened

pytestmark = pytest.mark.soak

[_HADOOP] = [jar.stem.rpartition("-")[2] for jar in spark_jars_folder().glob("hadoop-client-api-*.jar")]
_SDK = "2.35.4" if _HADOOP == "3.5.0" else "2.29.52"
# Of Amazon's client only what S3A needs: the whole of it has 650 MB.
_S3A = (
    f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
    f"software.amazon.awssdk:s3-transfer-manager:{_SDK}",
    f"software.amazon.awssdk:sts:{_SDK}",
)
_HDFS = (f"org.apache.hadoop:hadoop-client-minicluster:{_HADOOP}",)
_NOT = ("bundle", "hadoop-common", "hadoop-client", "hadoop-client-api", "hadoop-client-runtime")


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper, s3: S3Server) -> SharedSpark:
    shipped = {jar.name.rpartition("-")[0] for jar in spark_jars_folder().glob("*.jar")}
    s3a, hdfs = (resolve(wanted, kind="test", without={*shipped, *_NOT}) for wanted in (_S3A, _HDFS))
    conf = {
        **LIGHT["conf"],
        "spark.jars": ",".join(map(str, s3a)),
        # Beside Hadoop's own classes: it calls what only their packages may.
        "spark.driver.extraClassPath": ":".join(map(str, hdfs)),
        "spark.hadoop.fs.s3a.endpoint": s3.environment["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": s3.environment["AWS_REGION"],
        "spark.hadoop.fs.s3a.access.key": s3.environment["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": s3.environment["AWS_SECRET_ACCESS_KEY"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    return spark_keeper.get(conf=conf, single_writer=True)


class TestS3A(OneWinsContract):
    sets_times = False
    has_folders = False

    @pytest.fixture
    def bucket(self, s3: S3Server) -> Iterator[str]:
        yield s3.new_bucket()
        s3.honest()

    @pytest.fixture
    def root(self, bucket: str) -> str:
        return f"s3a://{bucket}/lake"

    @pytest.fixture
    def files(self, spark: SharedSpark, root: str) -> Files:
        files = files_for(root, spark)
        assert isinstance(files, HadoopFiles)
        return files

    @pytest.fixture
    def seen(self, s3: S3Server, bucket: str) -> Callable[[str], bytes]:
        return lambda name: bytes(obstore.get(s3.client(bucket), f"lake/{name}").bytes())

    def test_a_store_that_overwrites_is_refused(self, s3: S3Server, files: Files, root: str) -> None:
        s3.ignores_conditions = True
        with pytest.raises(StoreOverwrites):
            files.put(f"{root}/one", b"x")
        assert not files.exists(f"{root}/one")

    def test_a_connector_that_looks_first_is_refused(
        self, spark: SharedSpark, files: Files, root: str
    ) -> None:
        """It would pass the proof, which puts one after the other."""
        files.put(f"{root}/one", b"x")
        other = spark.session.newSession()
        other.conf.set("fs.s3a.create.conditional.enabled", "false")
        other.conf.set("fs.s3a.impl.disable.cache", "true")  # the one in use was made with another setting
        looking = HadoopFiles(other, root)
        assert looking.read(f"{root}/one") == b"x"
        with pytest.raises(FilesError, match=r"looks first.*conditional\.enabled"):
            looking.put(f"{root}/two", b"x")
        assert not files.exists(f"{root}/two")

    def test_a_replica_is_kept_there(self, spark: SharedSpark, root: str, tmp_path: Path) -> None:
        section = {"warehouse": root, "single_writer": True}
        with opened(
            SparkHandler(mode="replica", merge={"at_close": "60s"}), tmp_path, spark=section
        ) as handler:
            handler.handle(make_batch("shop.t", [{"id": 1, "n": 1}, {"id": 2, "n": 1}], key="id", offset=1))
            handler.handle(make_batch("shop.t", [{"id": 2, "n": 2}], key="id", offset=5))
        found = spark.session.read.format("delta").load(f"{root}/shop/t").orderBy("id").collect()
        assert [tuple(row) for row in found] == [(1, 1), (2, 2)]

    def test_delta_s_log_store_of_google_lets_two_writers_win(self, spark: SharedSpark, root: str) -> None:
        """So it is refused for S3: S3A puts on condition only where it is asked to in its own way."""
        assert max(self.winners(spark, f"{root}/{turn}/_delta_log", "GCSLogStore") for turn in range(5)) > 1

    def winners(self, spark: SharedSpark, folder: str, store: str) -> int:
        session: Any = spark.session
        jvm, conf = session._jvm, session._jsparkSession.sessionState().newHadoopConf()
        path = jvm.org.apache.hadoop.fs.Path(f"{folder}/{0:020d}.json")
        won: list[int] = []
        start = threading.Barrier(4)

        def write(number: int) -> None:
            lines = jvm.java.util.ArrayList()
            lines.append(f"{number}" * 100)
            writer = getattr(jvm.io.delta.storage, store)(conf)  # as another process has one of its own
            start.wait()
            try:
                writer.write(path, lines.iterator(), False, conf)
            except Exception:
                return
            won.append(number)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(won)


@pytest.fixture(scope="module")
def cluster(spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session: Any = spark.session
    jvm = session._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration()
    conf.set("hdfs.minidfs.basedir", str(tmp_path_factory.mktemp("hdfs")))
    builder = getattr(jvm.org.apache.hadoop.hdfs, "MiniDFSCluster$Builder")(conf)
    cluster = builder.numDataNodes(1).build()
    cluster.waitActive()
    yield cluster
    cluster.shutdown()


class TestHDFS(OneWinsContract):
    @pytest.fixture
    def root(self, cluster: Any, tmp_path: Path) -> str:
        return f"hdfs://{HOST}:{cluster.getNameNodePort()}/{tmp_path.name}"

    @pytest.fixture
    def files(self, spark: SharedSpark, root: str) -> Files:
        files = files_for(root, spark)
        assert isinstance(files, HadoopFiles)
        return files

    @pytest.fixture
    def seen(self, spark: SharedSpark, root: str) -> Callable[[str], bytes]:
        """By the name's own bytes, as HDFS lists it."""
        session: Any = spark.session
        jvm = session._jvm
        conf = session._jsparkSession.sessionState().newHadoopConf()

        def read(name: str) -> bytes:
            client = jvm.org.apache.hadoop.hdfs.DFSClient(jvm.java.net.URI(root.rpartition("/")[0]), conf)
            try:
                stream = client.open(f"/{root.rpartition('/')[2]}/{name}")
                return bytes(stream.readAllBytes())
            finally:
                client.close()

        return read


@pytest.fixture(scope="module")
def azurite() -> Iterator[AzuriteServer]:
    server = AzuriteServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


class TestAzure(OneWinsContract):
    sets_times = False
    has_folders = False

    @pytest.fixture
    def root(self, azurite: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> str:
        for name, value in azurite.environment.items():
            monkeypatch.setenv(name, value)
        return f"abfss://{azurite.new_container()}@{ACCOUNT}.dfs.core.windows.net/lake"

    @pytest.fixture
    def files(self, root: str) -> Files:
        connect: Any = SimpleNamespace(is_classic=False, session=None)
        files = files_for(root, connect)
        assert isinstance(files, ObjectFiles)
        return files

    @pytest.fixture
    def seen(self, root: str) -> Callable[[str], bytes]:
        store = obstore.store.from_url(root.removesuffix("/lake"), client_options={"allow_http": True})
        return lambda name: bytes(obstore.get(store, f"lake/{name}").bytes())
