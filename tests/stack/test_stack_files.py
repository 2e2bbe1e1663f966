"""`make stack` and docker-compose.yml start the same parts from the same files, which fit together."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
import yaml
from checking import configuration_faults
from servers.server_process import HOST, ServerProcess
from stack import parts, run

from worker.demo.screen import Screen

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
CONNECTOR: dict[str, str] = json.loads((ROOT / "deploy" / "connect" / "shop.json").read_text())["config"]
WORKER = yaml.safe_load((ROOT / "deploy" / "binlane.yaml").read_text())
CONNECT = dict(
    line.split("=", 1)
    for line in (ROOT / "deploy" / "connect" / "connect.properties").read_text().splitlines()
    if not line.startswith("#")
)


def mounted(service: str) -> dict[str, Path]:
    """{where it is inside: the file}"""
    volumes = [volume.split(":") for volume in COMPOSE[service].get("volumes", [])]
    return {inside[1]: ROOT / inside[0] for inside in volumes if inside[0].startswith(".")}


def variables(*texts: str) -> set[str]:
    return set(re.findall(r"\$\{env:(\w+)\}", "".join(texts)))


def test_connect_gets_in_compose_and_in_the_stack_what_its_files_leave_open() -> None:
    files = [ROOT / "deploy" / "connect" / name for name in ("connect.properties", "shop.json")]
    asked = variables(*(file.read_text() for file in files))
    assert asked == set(parts.Connect(1234, f"{HOST}:9092", 3306).environment())
    assert asked <= set(COMPOSE["connect"]["environment"])
    inside = mounted("connect")
    assert [inside[each] for each in COMPOSE["connect"]["command"]] == files
    log = COMPOSE["connect"]["environment"]["KAFKA_LOG4J_OPTS"].partition("=")[2]
    assert inside[log].is_file()
    # Relative: the folder of this name below the working folder, which the image fills.
    assert (COMPOSE["connect"]["working_dir"], CONNECT["plugin.path"]) == ("/kafka", "connect")


def test_compose_and_the_stack_have_the_same_debezium() -> None:
    assert COMPOSE["connect"]["image"].endswith(f":{run.DEBEZIUM_VERSION}")


def test_the_worker_reads_the_topics_that_the_connector_writes() -> None:
    [rows] = WORKER["kafka"]["topics"]
    prefix, database = CONNECTOR["topic.prefix"], CONNECTOR["database.include.list"]
    assert re.search(rows, f"{prefix}.{database}.orders")
    assert not re.search(rows, CONNECTOR["schema.history.internal.kafka.topic"])
    assert (WORKER["kafka"]["ddl_topics"], WORKER["format"]) == ([prefix], "debezium")
    assert [each["match"] for each in WORKER["tables"]] == [f"{database}.*"]


def test_the_source_knows_the_users_and_writes_the_binlog_in_both() -> None:
    script = (ROOT / "deploy" / "source" / "shop.sql").read_text()
    user, password = CONNECTOR["database.user"], CONNECTOR["database.password"]
    assert f"'{user}'@'%' IDENTIFIED BY '{password}'" in script
    assert ROOT / "deploy" / "source" / "shop.sql" in mounted("source").values()
    wanted = {"--server-id=1", "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL"}
    assert set(COMPOSE["source"]["command"]) == wanted
    assert wanted <= {f"--{name}={value}" for name, value in parts.Source.settings.items()}
    assert CONNECTOR["database.server.id"] != parts.Source.settings["server-id"]


def test_hosts_and_ports_of_compose_are_those_of_its_services() -> None:
    environment = COMPOSE["connect"]["environment"]
    assert environment["SOURCE_HOST"] in COMPOSE
    assert COMPOSE["source"]["ports"] == [f"127.0.0.1:3307:{environment['SOURCE_PORT']}"]
    assert COMPOSE["traffic"]["environment"] == {"SOURCE_URL": "mysql://shop:shop@source:3306/shop"}
    assert mounted("traffic") == {COMPOSE["traffic"]["entrypoint"][1]: ROOT / "deploy/source/traffic.py"}
    for name in ("connect", "worker"):
        assert COMPOSE[name]["environment"]["KAFKA_BOOTSTRAP_SERVERS"] == "kafka:19092"
    assert environment["CONNECT_LISTENER"].endswith(":8083")


@pytest.mark.parametrize(
    "environment",
    [
        COMPOSE["worker"]["environment"],
        {
            "KAFKA_BOOTSTRAP_SERVERS": f"{HOST}:9092",
            **{"BINLANE_DATA": "/tmp/stack", "BINLANE_HOST": HOST, "BINLANE_PORT": "8081"},
        },
    ],
    ids=["compose", "stack"],
)
def test_the_worker_of_both_can_use_its_configuration(environment: dict[str, str]) -> None:
    assert configuration_faults(ROOT, ROOT / "deploy" / "binlane.yaml", environment) == []


class Small(ServerProcess):
    """A part that a shell plays."""

    package: ClassVar[str] = "small"
    unprivileged: ClassVar[bool] = False

    def __init__(self, script: str) -> None:
        super().__init__()
        self._script = script

    @property
    def url(self) -> str:
        return ""

    def command(self) -> list[str]:
        return ["sh", "-c", self._script]

    def ping(self) -> bool:
        """Once it has spoken; one that is about to exit never answers."""
        return "exit" not in self._script and self.last_log_lines() != "it says nothing"


def test_a_part_that_dies_at_its_start_is_told_with_its_log_and_nothing_stays(tmp_path: Path) -> None:
    stack = run.Stack(tmp_path)

    def start_both() -> None:
        with ExitStack() as ending:
            with run._part(Screen(), "the first"):
                run._start(stack, "the first", Small("echo going; exec sleep 600"), ending)
            stack.check()
            with run._part(Screen(), "the second"):
                run._start(stack, "the second", Small("echo no space left on device; exit 3"), ending)

    with pytest.raises(run.StackError) as told:
        start_both()
    assert str(told.value).startswith("the second does not start: ")
    assert "no space left on device" in str(told.value)
    assert list(stack.pids) == ["the first"]
    assert not psutil.pid_exists(stack.pids["the first"])


def test_a_part_that_ends_later_is_told(tmp_path: Path) -> None:
    stack = run.Stack(tmp_path)
    with ExitStack() as ending:
        part = Small("echo going; exec sleep 600")
        run._start(stack, "Prometheus", part, ending)
        part.kill()
        with pytest.raises(run.StackError, match="Prometheus has ended by itself: going"):
            stack.check()
