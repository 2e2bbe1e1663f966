"""Every command that the documentation shows is one: of binlane, make, Python, the tools around them."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from deployment.test_command_lines_shown import fault as fault_of_binlane
from documentation.blocks import ROOT, Block, blocks, each

sys.path.insert(0, str(ROOT / "tools"))
from checking import tool

SHOWN = list(blocks("", "sh"))
NOT_RUN = {
    "sbin/start-connect-server.sh": "belongs to a Spark of the reader's; spark_cluster.py starts one like it",
    "printf": "writes a secret of the reader's",
}
"""Commands that are none of the project's, and why they are not tried."""
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
OF_MAKE = set(re.findall(r"\$\((?:or )?\$?\(?([A-Z]+)\)?", MAKEFILE)) | {"PYTHON"}


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each line, without what is said of it."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.strip():
            yield shlex.split(re.split(r"(?:^|\s)#\s", line)[0].partition(" > ")[0].partition(" | ")[0])


def fault(words: list[str], page: str = "") -> str | None:
    """What is wrong with a command, None if nothing is. `page`: the text of the page that shows it."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    name, *rest = words
    if name in NOT_RUN:
        return None
    if name not in CHECKS:
        return f"{name}: nothing here knows whether that is a command"
    return CHECKS[name](rest, page)


def _binlane(words: list[str], page: str) -> str | None:
    return fault_of_binlane(" ".join(["binlane", *words]))


def _make(words: list[str], page: str) -> str | None:
    settings = [word.partition("=")[0] for word in words if "=" in word]
    gone = [word for word in words if "=" not in word and word not in TARGETS]
    return f"make: no {gone}" if gone or not set(settings) <= OF_MAKE else None


def _activate(words: list[str], page: str) -> str | None:
    return None if words == [".venv/bin/activate"] else f"source {words}"


def _python(words: list[str], page: str) -> str | None:
    if words[:2] == ["-m", "pytest"]:
        return None if (ROOT / words[2]).exists() else f"no {words[2]}"
    if words[0] == "-m":
        found = find_spec(words[1])
        if found is None or found.origin is None:
            return f"no module {words[1]}"
        sources = list(Path(found.origin).parent.glob("*.py"))
    else:
        sources = [ROOT / words[0]]
        if not sources[0].exists():
            return None if f"`{words[0]}`" in page else f"no {words[0]}"
    text = "".join(source.read_text() for source in sources)
    gone = [word for word in words if word.startswith("--") and f'"{word}"' not in text]
    return f"{words}: no option {gone}" if gone else None


def _docker(words: list[str], page: str) -> str | None:
    if words[0] != "compose":
        return None if words[0] in ("tag", "build", "push", "run") else f"docker {words[0]}"
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    gone = [word for word in words[2:] if not word.startswith("-") and word not in services]
    return f"docker compose: no service {gone}" if gone else None


def _kubectl(words: list[str], page: str) -> str | None:
    if "--" in words:
        return fault(words[words.index("--") + 1 :], page)
    names = [word for word in words if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
    names = names[1:] if words[0].startswith("--") else names  # of an option that stands before the command
    if "--kustomize" in words:
        path = words[words.index("--kustomize") + 1]
        named = f"in a folder {path}\n" in page  # the reader makes it
        if path != "." and not named and not (ROOT / path / "kustomization.yaml").exists():
            return f"no {path}"
    told = _help_of_kubectl(names[0])
    gone = [word for word in words if word.startswith("--") and word.partition("=")[0] not in told]
    return f"kubectl {names[0]}: no {gone}" if gone else None


@functools.cache
def _help_of_kubectl(name: str) -> str:
    parts = (
        subprocess.run([tool("kubectl"), *words], capture_output=True, text=True, check=True).stdout
        for words in ([name, "--help"], ["options"])
    )
    return "".join(parts)


def _pip(words: list[str], page: str) -> str | None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [extra] = re.findall(r"^\.\[(\w+)\]$", words[-1])
    return None if words[0] == "install" and extra in extras else f"pip: no extra {extra}"


def _helm(words: list[str], page: str) -> str | None:
    options = {word for word in words if word.startswith("--")}
    if words[0] not in ("install", "test") or not options <= _OF_HELM:
        return f"helm {words[0]}: {options}"
    if words[0] == "install" and not words[2].endswith("k8s/chart"):
        return f"helm: no chart {words[2]}"
    values = yaml.safe_load((ROOT / "k8s" / "chart" / "values.yaml").read_text())
    files = [words[at + 1] for at, word in enumerate(words) if word == "--set-file"]
    gone = [each for each in files if re.split("[=.]", each)[0] not in values]
    return f"helm: no value {gone}" if gone else None


_OF_HELM = {"--create-namespace", "--logs", "--namespace", "--set-file", "--values"}

CHECKS: dict[str, Callable[[list[str], str], str | None]] = {
    "binlane": _binlane,
    "make": _make,
    ".": _activate,
    "python": _python,
    ".venv/bin/python": _python,
    "docker": _docker,
    "kubectl": _kubectl,
    "helm": _helm,
    "pip": _pip,
}


@pytest.mark.parametrize("block", each(SHOWN))
def test_every_line_is_a_command(block: Block) -> None:
    page = block.page.read_text()
    assert [told for words in commands(block) if (told := fault(words, page))] == []


@pytest.mark.parametrize(
    "line",
    [
        "binlane tabels shop.yaml",
        "make tset",
        "make bench ARG=quick",
        "python examples/play.py --too x",
        "python -m benchmarks.markdwn",
        "python look.py",
        "docker compose up kafak",
        "kubectl apply --kustomise .",
        "kubectl apply --kustomize k8s/bse",
        "kubectl exec POD -- binlane statos",
        "helm instal shop k8s/chart",
        "helm install shop k8s/charts",
        "helm install shop k8s/chart --set-file config=binlane.yaml",
        "pip install '.[conect]'",
        "curl http://localhost:8080",
    ],
)
def test_a_line_that_is_none_is_found(line: str) -> None:
    assert fault(shlex.split(line)) is not None


def test_make_targets_in_the_text_are_there() -> None:
    for page in {block.page for block in blocks()}:
        for target in re.findall(r"`make ([a-z-]+)", page.read_text()):
            assert target in TARGETS, f"{page}: make {target}"


def test_what_is_not_run_is_shown_somewhere() -> None:
    first = {words[0] for block in SHOWN for words in commands(block) if words}
    assert set(NOT_RUN) <= first
