"""Values that YAML could read as something else, and values whose objects would not work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_manifests import check_rendered
from checking import longest_stop, read
from helm_chart import ROOT, named, rendered

ALL = ("--set=monitoring.enabled=true,keda.enabled=true,networkPolicy.enabled=true",)
FIRST_LOOK = (ROOT / "k8s" / "base" / "binlane.yaml").read_text()


def text_of(manifests: list[dict[str, Any]]) -> str:
    found: str = named(manifests)["ConfigMap/binlane"]["data"]["binlane.yaml"]
    return found


DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize("name", ["yes", "null", "on", "y"])
def test_a_name_that_yaml_reads_as_something_else_stays_text(helm: str, name: str) -> None:
    manifests = rendered(
        helm,
        *ALL,
        f"--set-string=fullnameOverride={name},networkPolicy.monitoringNamespace=123",
        release="1e3",
    )
    assert list(check_rendered(ROOT, "chart", manifests)) == []


@pytest.mark.parametrize("release", ["2024", "shop.eu", "x" * 53, "-"])
def test_a_release_whose_name_no_service_can_have_is_refused(helm: str, release: str) -> None:
    with pytest.raises(ValueError, match="set fullnameOverride" if release != "-" else "release name"):
        rendered(helm, release=release)
    if release != "-":
        assert rendered(helm, "--set=fullnameOverride=crm-binlane", release=release)


@pytest.mark.parametrize(
    "text",
    [
        f"  # indented\n{FIRST_LOOK}",
        FIRST_LOOK.replace("\n", "\r\n"),
        f"# \u202eGr\u00f6\u00dfe\t: |\n{FIRST_LOOK}",
        f"{FIRST_LOOK}\n\n\n",
        f"# {{{{ .Values.secrets }}}}\n{FIRST_LOOK}",
    ],
)
def test_the_worker_gets_the_configuration_as_it_is(helm: str, tmp_path: Path, text: str) -> None:
    file = tmp_path / "binlane.yaml"
    file.write_text(text, newline="")
    assert text_of(rendered(helm, f"--set-file=configuration={file}")).rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"configuration": "kafka: [\n"}, "configuration cannot be read"),
        ({"configuration": "- kafka\n"}, "configuration cannot be read"),
        ({"secrets": {"existing": "vault", "files": {"key": "text"}}}, "secrets.existing or secrets.files"),
        ({"pod": {"terminationGracePeriodSeconds": 30}}, "terminationGracePeriodSeconds"),
        ({"pod": {"containers": [{"name": "other"}]}}, "containers"),
        ({"pod": {"volumes": [{"name": "other"}]}}, "volumes"),
        ({"env": [{"name": "PORT", "value": 5}]}, "env.0.value"),
        ({"env": [{"name": "DEBUG", "value": True}]}, "env.0.value"),
    ],
)
def test_values_whose_objects_would_not_work_are_refused(
    helm: str, tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match=said):
        rendered(helm, "--values", str(file))


def test_the_shortest_grace_period_holds_the_longest_stop(helm: str) -> None:
    with pytest.raises(ValueError, match="to hold a stop") as refused:
        rendered(helm, "--set=pod.terminationGracePeriodSeconds=1")
    [least] = re.findall(r"at least (\d+)", str(refused.value))
    longest = longest_stop(read((ROOT / "deploy" / "binlane.yaml").read_text()))
    assert longest <= int(least) < longest + 1
    assert rendered(helm, f"--set=pod.terminationGracePeriodSeconds={least}")


@pytest.mark.parametrize(
    "times", [{"shutdown_timeout": "5m"}, {"shutdown_timeout": "90.5s", "revoke_timeout": "30500ms"}]
)
def test_longer_times_of_the_configuration_need_a_longer_grace_period(
    helm: str, tmp_path: Path, times: dict[str, str]
) -> None:
    text = yaml.safe_dump(yaml.safe_load((ROOT / "deploy" / "binlane.yaml").read_text()) | times)
    (file := tmp_path / "binlane.yaml").write_text(text)
    with pytest.raises(ValueError, match="to hold a stop") as refused:
        rendered(helm, f"--set-file=configuration={file}")
    [least] = map(int, re.findall(r"at least (\d+)", str(refused.value)))
    assert least - 1 < longest_stop(read(text)) <= least
    assert rendered(
        helm, f"--set-file=configuration={file}", f"--set=pod.terminationGracePeriodSeconds={least}"
    )


@pytest.mark.parametrize("text", ["${STOP:-10m}", "10s"])
def test_a_time_that_is_shorter_or_a_variables_needs_none(helm: str, text: str) -> None:
    configuration = FIRST_LOOK.replace("shutdown_timeout: 30s", f"shutdown_timeout: {text}")
    assert configuration != FIRST_LOOK
    assert rendered(helm, f"--set-literal=configuration={configuration}")


def test_an_image_may_be_named_by_its_digest(helm: str) -> None:
    values = f"--set=image.repository=registry.example.com/binlane,image.tag=1.2.3,image.digest={DIGEST}"
    pod = named(rendered(helm, values))["Deployment/binlane"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"registry.example.com/binlane@{DIGEST}"
    with pytest.raises(ValueError, match="digest"):
        rendered(helm, "--set=image.digest=sha256:abc")
