"""Several Kafka nodes that are one cluster, each with a second address behind a network of ours."""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.cimpl import NewTopic

from storm.parts.network import Relay
from worker.local.broker import Broker
from worker.local.broker_settings import HOST, free_port

__all__ = ["Cluster", "Node", "drained"]

T = TypeVar("T")
_ANSWER_SECONDS = 20
_TRIES_SECONDS = 90


class Node(Broker):
    """A node of a cluster: its folder is made like the first one's, with a number of its own."""

    def __init__(self, number: int, folder: Path, overrides: dict[str, str], port: int, relay: Relay) -> None:
        super().__init__(folder / f"broker-{number}", port, overrides)
        self.number = number
        self.relay = relay
        self._first = folder / "broker-1"

    def _format(self, java: list[str], bootstrap: bytes | None, log: int) -> None:
        if self.number == 1:
            super()._format(java, bootstrap, log)
            return
        shutil.copytree(self._first / "data", self.directory / "data")
        path = self.directory / "data" / "meta.properties"
        text = re.sub(r"node\.id=\d+", f"node.id={self.number}", path.read_text())
        own = uuid.uuid4().hex[:20] + "AA"  # 16 bytes in base 64, without the padding
        path.write_text(re.sub(r"directory\.id=\S+", f"directory.id={own}", text))

    def format(self) -> None:
        """Makes the folder, without a start."""
        from handlers.spark.runtime.jars import kafka_jars
        from handlers.spark.runtime.versions import find_java
        from worker.local.broker_settings import JVM_OPTIONS, write_settings

        write_settings(self.directory, self.port, self._overrides)
        java = [str(find_java().executable), *JVM_OPTIONS, "-cp", ":".join(map(str, kafka_jars()))]
        with self.log_path.open("ab") as log:
            self._format(java, None, log.fileno())  # the kept file is that of a single node


class Cluster:
    """`count` nodes. Every partition is on all of them, and a write needs all but one.

    `bootstrap_servers` is for those who watch and send, `worker_servers` for the workers: that way leads
    through each node's `relay`.
    """

    def __init__(self, folder: Path, count: int) -> None:
        ports = [(free_port(), free_port(), free_port()) for _ in range(count)]
        voters = ",".join(f"{number}@{HOST}:{each[2]}" for number, each in enumerate(ports, 1))
        replicas, least = str(count), str(max(1, count - 1))
        self.nodes: list[Node] = []
        for number, (port, inner, controller) in enumerate(ports, 1):
            relay = Relay(inner)
            own = {
                "node.id": str(number),
                "listeners": ",".join(
                    f"{name}://{HOST}:{each}"
                    for name, each in (("PLAINTEXT", port), ("WORKERS", inner), ("CONTROLLER", controller))
                ),
                "advertised.listeners": f"PLAINTEXT://{HOST}:{port},WORKERS://{HOST}:{relay.port}",
                "listener.security.protocol.map": ",".join(
                    f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "WORKERS", "CONTROLLER")
                ),
                "inter.broker.listener.name": "PLAINTEXT",
                "controller.quorum.voters": voters,
                "default.replication.factor": replicas,
                "min.insync.replicas": least,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": least,
                "auto.leader.rebalance.enable": "false",
                "controlled.shutdown.enable": "true",
                "group.min.session.timeout.ms": "3000",
            }
            self.nodes.append(Node(number, folder, own, port, relay))
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in self.nodes)
        self.worker_servers = ",".join(f"{HOST}:{node.relay.port}" for node in self.nodes)
        self._count = count

    def start(self) -> None:
        for node in self.nodes:
            node.format()
            node.relay.start()
        with ThreadPoolExecutor(len(self.nodes)) as pool:  # none answers before most are there
            list(pool.map(Node.start, self.nodes))

    def close(self) -> None:
        for node in self.nodes:
            if node.running:
                node.kill()
            node.relay.close()
            node.close()

    # ---- what is asked of it, again while a node is away

    def create_topic(self, name: str, partitions: int) -> None:
        new = NewTopic(name, num_partitions=partitions, replication_factor=self._count)
        self._insist(lambda admin: admin.create_topics([new])[name].result(_ANSWER_SECONDS), "exists")
        self._insist(lambda _: self._led(name, partitions))

    def delete_topic(self, name: str) -> None:
        self._insist(lambda admin: admin.delete_topics([name])[name].result(_ANSWER_SECONDS), "unknown topic")
        self._insist(lambda _: self._gone(name))

    def add_partition(self, name: str) -> int:
        """Its number."""
        count = len(self._insist(lambda admin: admin.list_topics(name, timeout=5)).topics[name].partitions)
        new = NewPartitions(name, count + 1)
        self._insist(
            lambda admin: admin.create_partitions([new])[name].result(_ANSWER_SECONDS), "already has"
        )
        self._insist(lambda _: self._led(name, count + 1))
        return count

    def delete_group(self, group: str) -> None:
        """The group's offsets are gone; it has to be without members, which is waited for."""
        self._insist(
            lambda admin: admin.delete_consumer_groups([group])[group].result(_ANSWER_SECONDS),
            "does not exist",
            "not found",
        )

    def coordinator(self, group: str) -> Node:
        found = self._insist(lambda a: a.describe_consumer_groups([group])[group].result(_ANSWER_SECONDS))
        return self.nodes[found.coordinator.id - 1]

    def members(self, group: str) -> int:
        found = self._insist(lambda a: a.describe_consumer_groups([group])[group].result(_ANSWER_SECONDS))
        return len(found.members)

    def leader(self, topic: str, partition: int) -> Node:
        found = self._insist(lambda admin: admin.list_topics(topic, timeout=5))
        return self.nodes[max(1, found.topics[topic].partitions[partition].leader) - 1]

    def elect_preferred(self) -> None:
        """Every partition's first replica leads it again."""

        def elect(admin: AdminClient) -> None:
            done = admin.elect_leaders(ElectionType.PREFERRED).result(_ANSWER_SECONDS)
            for fault in done.values():
                if fault is not None and "not needed" not in fault.str().lower():
                    raise KafkaException(fault)

        self._insist(elect)

    def wait_in_sync(self) -> None:
        """Every partition has all its replicas: the next node may go."""

        def look(admin: AdminClient) -> None:
            topics = admin.list_topics(timeout=5).topics.values()
            behind = [t.topic for t in topics for p in t.partitions.values() if len(p.isrs) < self._count]
            if behind:
                raise LookupError(f"behind: {behind}")

        self._insist(look)

    def positions(self, group: str, topic: str) -> dict[int, tuple[int, int]]:
        """{partition: (committed, end)}; -1001 where nothing is committed."""

        def ask(_: AdminClient) -> dict[int, tuple[int, int]]:
            watcher = Consumer(
                {"bootstrap.servers": self.bootstrap_servers, "group.id": group, "log_level": 0}
            )
            try:
                known = watcher.list_topics(topic, timeout=5).topics[topic].partitions
                places = [TopicPartition(topic, number) for number in known]
                committed = {one.partition: one.offset for one in watcher.committed(places, timeout=5)}
                return {
                    one.partition: (
                        committed[one.partition],
                        watcher.get_watermark_offsets(one, timeout=5)[1],
                    )
                    for one in places
                }
            finally:
                watcher.close()

        return self._insist(ask)

    def _led(self, name: str, partitions: int) -> None:
        for node in self.nodes:
            if node.running:
                admin = AdminClient({"bootstrap.servers": node.bootstrap_servers, "log_level": 0})
                found = admin.list_topics(name, timeout=5).topics[name].partitions
                if len(found) != partitions or any(each.leader < 1 for each in found.values()):
                    raise LookupError(f"{name} has {len(found)} partitions at {node.number}")

    def _gone(self, name: str) -> None:
        for node in self.nodes:
            if node.running:
                admin = AdminClient({"bootstrap.servers": node.bootstrap_servers, "log_level": 0})
                told = admin.describe_topics(TopicCollection([name]))[name]
                try:
                    told.result(5)
                except KafkaException as fault:
                    if "UNKNOWN_TOPIC" in fault.args[0].name():
                        continue
                    raise
                raise LookupError(f"{name} is still there")

    def _insist(self, ask: Callable[[AdminClient], T], *fine: str) -> T:
        """Ask until there is an answer. `fine`: faults with these words say that it was done before.

        Raises the last fault after 90 s.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        deadline = time.monotonic() + _TRIES_SECONDS
        while True:
            try:
                return ask(admin)
            except (KafkaException, LookupError, TimeoutError) as fault:
                if any(words in str(fault).lower() for words in fine):
                    return None  # type: ignore[return-value]
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)


def drained(positions: Sequence[dict[int, tuple[int, int]]]) -> bool:
    """Everything is committed to its end."""
    return all(end in (0, committed) for each in positions for committed, end in each.values())
