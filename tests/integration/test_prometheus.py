"""A real Prometheus scrapes real workers in all sorts of trouble: each alert that is due fires, and each
query of the dashboard has data. The rules are those of deploy/, with a minute in each second."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.letters import judging, with_dead_letters
from integration.process import WorkerProcess, eventually
from integration.source import canal_insert
from integration.stage import Stage
from integration.test_paused_tables import ask
from PIL import Image
from servers.prometheus_server import PrometheusNode, sped_up

from worker.local.broker import Broker
from worker.observing.metric_definitions import DEFINITIONS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())
DASHBOARD = json.loads((ROOT / "k8s" / "components" / "monitoring" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]

BEFORE_ALL = {"BinlaneNoWorker"}
CAUSED = {
    "BinlaneKafkaDown",
    "BinlaneTableBlocked",
    "BinlaneTablePaused",
    "BinlaneTargetDown",
    "BinlaneSparkDown",
    "BinlaneHeadStuck",
    "BinlaneTooFarAhead",
    "BinlaneCallHangs",
    "BinlaneHandlerFails",
    "BinlaneNotCommitting",
    "BinlaneCommitsFail",
    "BinlaneRecordsSkipped",
    "BinlaneNothingMatches",
    "BinlaneDeadLetters",
    "BinlaneLag",
    "BinlaneDelay",
    "BinlaneDelayLasts",
    "BinlaneSourceSilent",
    "BinlaneAlwaysFull",
    "BinlaneReloadRefused",
    "BinlaneSparkTableWaits",
    "BinlaneSparkMergesFail",
}
AT_THE_END = {"BinlaneWorkerDown"}
CAUSED_ELSEWHERE = {
    "BinlaneFirstCommitMissing",
    "BinlaneMembershipUnconfirmed",
    "BinlaneParkingFull",
    "BinlanePartitionError",
    "BinlanePodsMissing",
    "BinlaneRestarts",
    "BinlaneStandstill",
    "BinlaneTableWaits",
}
"""What takes a frozen worker, a damaged log, Kubernetes or a fault of the client: docs/runbooks.md names the
tests that cause it."""

LONG_AGO = 1_600_000_000_000


class Trouble:
    """Workers of one topic, each in a group of its own, and the Prometheus that scrapes them.

    troubled: a change of each table of partition 0 fails in another way; those of partition 1 go on.
    full: its handler hangs and its lanes are full.
    strange: no rule matches, its checkpoint folder and its configuration are broken.
    lonely: it reaches no broker.
    """

    def __init__(self, broker: Broker, folder: Path, stack: ExitStack) -> None:
        topic = f"cdc.{folder.name}"
        broker.create_topic(topic, 2)
        broker.create_topic(f"{topic}.dead")
        self.stage = Stage(broker.bootstrap_servers, topic, 2, folder)
        stack.callback(self.stage.close)
        self.source = self.stage.source()
        self.prometheus = PrometheusNode(sped_up(RULES))
        stack.callback(self.prometheus.close)
        self.prometheus.start()
        self.seen: dict[str, dict[str, str]] = {}
        self.sent = 0
        self.send(*["flood"] * 200)
        self.send("halted", "away", "retried", "hangs", "spark")
        self.send(*["plain"] * 60)
        self.workers = {"troubled": self.troubled(), "full": self.full(), "strange": self.strange()}
        self.workers["lonely"] = self.lonely()
        self.note(BEFORE_ALL)
        for worker in self.workers.values():
            eventually(lambda worker=worker: worker.alive() and worker.url, within=60, what="it listens")
        self.scrape()
        # Counters are seen to rise only when they were seen before.
        each = "sum by (instance) (binlane_records_skipped_total)"
        eventually(lambda: len(self.prometheus.query(each)) == 4, within=60, what="all are scraped")
        self.break_strange()
        self.pause(self.workers["troubled"])

    def send(self, *tables: str, partition: int = 0) -> None:
        """A change of each table. Those that a table has one after the other are one transaction."""
        for table in tables:
            message = json.loads(canal_insert(table, [self.sent]))
            text = json.dumps({**message, "es": LONG_AGO, "ts": LONG_AGO, "gtid": table}).encode()
            self.source.send(text, key=table.encode(), partition=partition)
            self.sent += 1
        self.source.flush()

    def worker(self, name: str, tables: list[dict[str, Any]], **sections: Any) -> WorkerProcess:
        self.stage.group = f"{self.stage.topic}-{name}"
        return self.stage.worker(name, tables=tables, **sections).start(ready=False)

    def troubled(self) -> WorkerProcess:
        once = {"max_attempts": 1}
        again = {"max_attempts": None, "initial_delay": "50ms", "max_delay": "500ms"}
        fails = judging(self.stage, "fails", reject={f"shop.{t}": "all" for t in FAILING}, how="error")
        gate = str(self.stage.gate())
        tables: list[dict[str, Any]] = [
            {"match": "shop.halted", "handlers": [fails], "retry": once},
            {"match": "shop.skipped", "handlers": [fails], "retry": once, "on_failure": "skip"},
            {"match": "shop.letters", "handlers": [fails], "retry": once, "on_failure": "dead_letter"},
            {"match": "shop.retried", "handlers": [fails], "retry": again},
            {"match": "shop.away", "handlers": [judging(self.stage, "away", down_while=gate)]},
            {
                "match": "shop.hangs",
                "handlers": [self.stage.recording(name="hangs", hold={"shop.hangs": gate})],
            },
            {"match": "shop.spark", "handlers": [{"type": "hooked:Hooked"}]},
            {
                "match": "*",
                "handlers": [self.stage.recording() | {"limit": {"calls": 8}}],
                "batch": {"transactions": "whole", "max_records": 10},
            },
        ]
        letters = with_dead_letters(self.stage, 1)
        return self.worker("troubled", tables, dead_letter=letters, stuck_after="1s", max_ahead=50)

    def full(self) -> WorkerProcess:
        gate = str(self.stage.gate())
        held = self.stage.recording(hold={"shop.flood": gate})
        # However many come at first, an empty lane takes them.
        lanes = {"count": 1, "max_records": 1}
        table = {"match": "shop.flood", "handlers": [held], "batch": {"max_records": 1}}
        return self.worker("full", [table], lanes=lanes)

    def strange(self) -> WorkerProcess:
        return self.worker("strange", [{"match": "Shop.*", "handlers": [self.stage.recording()]}])

    def lonely(self) -> WorkerProcess:
        nobody = {"bootstrap_servers": "127.0.0.1:1", "group_id": "lonely", "topics": ["cdc"]}
        return self.worker("lonely", [{"match": "*", "handlers": [{"type": "log"}]}], kafka=nobody)

    def break_strange(self) -> None:
        worker = self.workers["strange"]
        folder = Path(worker.config["checkpoint"]["directory"])
        folder.rename(folder.with_name("moved"))
        folder.touch()
        (worker.folder / "binlane.yaml").write_text("tables: none")

    def pause(self, worker: WorkerProcess) -> None:
        """A pause that somebody has forgotten."""
        assert ask(worker, "pause", "--table", "shop.moved").returncode == 0
        [file] = Path(worker.config["checkpoint"]["directory"]).glob("paused-*.json")
        [pause] = json.loads(file.read_bytes())
        file.write_text(json.dumps([pause | {"since": "2020-09-13T12:26:40Z"}]))

    def scrape(self, *without: str) -> None:
        urls = {name: worker.url for name, worker in self.workers.items() if name not in without}
        self.prometheus.scrape({name: str(url).removeprefix("http://") for name, url in urls.items()})

    def query(self, expr: str) -> list[dict[str, Any]]:
        """While changes go to the tables that pass them over."""
        self.send("skipped", "letters", partition=1)
        return self.prometheus.query(expr)

    def note(self, wanted: set[str]) -> None:
        """Until each of these alerts has fired; meanwhile changes go to the tables that pass them over."""

        def fired() -> bool:
            self.send("skipped", "letters", partition=1)
            self.seen |= self.prometheus.firing()
            return wanted <= self.seen.keys()

        try:
            eventually(fired, within=150, every=0.5)
        except AssertionError:
            missing = sorted(wanted - self.seen.keys())
            raise AssertionError(f"{missing} have not fired; seen: {sorted(self.seen)}") from None


FAILING = ("halted", "skipped", "letters", "retried")


@pytest.fixture(scope="module")
def trouble(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trouble]:
    with ExitStack() as stack:
        yield Trouble(broker, tmp_path_factory.mktemp("trouble"), stack)


def test_prometheus_has_what_the_worker_shows(trouble: Trouble) -> None:
    prometheus, worker = trouble.prometheus, trouble.workers["troubled"]
    place = '{job="binlane",instance="troubled"}'
    assert prometheus.value(f"up{place}") == 1
    [info] = prometheus.query(f"binlane_info{place}")
    assert info["metric"]["version"] == worker.status()["version"]
    # Their series begin with the first error of each code, and a table with `expect`.
    later = {"binlane_kafka_errors_total", "binlane_expectations_failed_total"}
    everything = {entry.name for entry in DEFINITIONS} - later

    def stored() -> set[str]:
        found = prometheus.query('{__name__=~"binlane_.+",instance="troubled"}')
        return {re.sub(r"_(bucket|sum|count)$", "", each["metric"]["__name__"]) for each in found}

    # Some are told after a while, such as whether a broker is reached.
    eventually(lambda: stored() == everything, within=60, what="what is defined is scraped, and nothing else")
    eventually(lambda: prometheus.value(f"sum(binlane_tables_halted{place})") == 1, what="a table is halted")


def test_each_alert_fires_for_a_trouble_of_its_own(trouble: Trouble) -> None:
    trouble.note(CAUSED)
    names = {rule["alert"] for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
    assert names == BEFORE_ALL | CAUSED | AT_THE_END | CAUSED_ELSEWHERE
    for texts in trouble.seen.values():
        assert "{{" not in "".join(texts.values()), "a label that the alert does not have"


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_each_query_of_the_dashboard_has_data(trouble: Trouble, title: str, query: str) -> None:
    shown = query.replace("$namespace", ".*").replace("$job", ".*").replace("$__rate_interval", "5s")
    assert "$" not in shown
    eventually(lambda: trouble.query(shown), within=60, every=0.5, what=f"{title}: {shown}")


@pytest.mark.soak
def test_the_dashboard_is_drawn_where_there_is_no_grafana(trouble: Trouble, tmp_path: Path) -> None:
    picture = tmp_path / "dashboard.png"
    command = [sys.executable, "tools/draw_dashboard.py", trouble.prometheus.url, str(picture), "--minutes=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    image = Image.open(picture).convert("RGB")
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in PANELS)
    assert image.height > 25 * rows, "a place for each panel"
    colors = [color for _, color in image.getcolors() or [] if isinstance(color, tuple)]
    halted = [color for color in colors if max(map(abs, map(int.__sub__, color, (224, 47, 68)))) < 12]
    assert halted, "the number of tables that are halted is red"


def test_a_worker_that_is_killed_is_told_of_and_the_others_go_on(trouble: Trouble) -> None:
    trouble.workers["full"].kill9()
    trouble.note(AT_THE_END)
    assert "full" in trouble.seen["BinlaneWorkerDown"]["summary"]
    assert trouble.prometheus.value('count(binlane_info{instance!="full"})') == 3
