"""Every example can be used as it is: without a variable set, with the servers of docker-compose.yml."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
import yaml
from examples.example_runs import EXAMPLES, ROOT, configurations
from typer.testing import CliRunner

from worker.cli import app
from worker.configuration import load

VARIABLE = re.compile(r"\$\{(\w+):-(\S+?)\}")
SERVERS = {"POSTGRES_URL": "postgres", "MARIADB_URL": "mariadb", "REDIS_URL": "redis"}
PREFIXES = {"postgres": "POSTGRES", "mariadb": "MARIADB"}


@pytest.mark.parametrize("name", configurations())
def test_every_example_is_usable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*SERVERS, "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(variable, raising=False)

    found = CliRunner().invoke(app, ["check", str(EXAMPLES / f"{name}.yaml")], standalone_mode=False)

    assert found.return_value == 0, found.output
    assert f"{name}.yaml: usable" in found.output


def test_no_two_examples_share_a_group() -> None:
    groups = [load(EXAMPLES / f"{name}.yaml").kafka.group_id for name in configurations()]
    assert len(set(groups)) == len(groups)


@pytest.mark.parametrize(("variable", "server"), SERVERS.items())
def test_the_default_of_a_url_leads_to_the_server_of_docker_compose(variable: str, server: str) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    texts = [path.read_text() for path in EXAMPLES.glob("*/*.yaml")]
    defaults = {default for text in texts for name, default in VARIABLE.findall(text) if name == variable}

    [default] = defaults
    url, service = urlsplit(default), services[server]
    assert service["ports"] == [f"127.0.0.1:{url.port}:{url.port}"]
    if server in PREFIXES:
        prefix, environment = PREFIXES[server], service["environment"]
        database = environment.get(f"{prefix}_DATABASE") or environment[f"{prefix}_DB"]
        told = environment[f"{prefix}_USER"], environment[f"{prefix}_PASSWORD"], f"/{database}"
        assert (url.username, url.password, url.path) == told


def test_kafka_is_looked_for_where_binlane_broker_and_docker_compose_have_it() -> None:
    texts = [path.read_text() for path in EXAMPLES.glob("*/*.yaml")]
    found = {default for text in texts for name, default in VARIABLE.findall(text) if "BOOTSTRAP" in name}
    assert found == {"localhost:9092"}
    assert "127.0.0.1:9092:9092" in (ROOT / "docker-compose.yml").read_text()
