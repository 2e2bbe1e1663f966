"""Helpers shared by the checks of deployment files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from worker.configuration import Configuration
from worker.running.handler_set import HandlerSet
from worker.running.process import grace_seconds, stop_seconds

__all__ = ["configuration_faults", "image_user", "longest_stop", "read", "tool", "tool_faults"]


def tool(name: str) -> str:
    """Return the program from the virtual environment, else from the machine."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def tool_faults(name: str, command: list[str]) -> list[str]:
    """Run the program. If it fails, return its output lines, each as `name: what`."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return [f"{name}: {line}" for line in (done.stdout + done.stderr).splitlines() if line.strip()] or [
        f"{name}: {Path(command[0]).name} failed with exit code {done.returncode}"
    ]


_CHECKED: dict[tuple[object, ...], list[str]] = {}


def configuration_faults(root: Path, path: Path, environment: dict[str, str]) -> list[str]:
    """Return what `binlane check` reports for the configuration at `path`, with these variables set.

    A check takes half a second, and overlays share configurations, so each one is checked only once."""
    same = (path.relative_to(root), path.read_text(), *sorted(environment.items()))
    if same not in _CHECKED:
        _CHECKED[same] = _check(root, path, environment)
    return _CHECKED[same]


def _check(root: Path, path: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "binlane", "check", str(path.relative_to(root))],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, **environment},
    )
    if done.returncode == 0:
        return []
    return [line for line in done.stderr.splitlines() if line.strip()]


def read(configuration: str, folder: Path = Path()) -> Configuration:
    """Read a configuration, with the defaults of variables and the `${file:...}` files below `folder`."""
    text = re.sub(r"(?<!\$)\$\{\w+:-(.*?)\}", r"\1", configuration)
    text = re.sub(r"\$\{file:(.*?)\}", lambda found: (folder / found[1]).read_text().rstrip("\n"), text)
    return Configuration.model_validate(yaml.safe_load(text))


def longest_stop(configuration: Configuration) -> float:
    """Return the seconds to wait for a stop before the worker may be killed."""
    return grace_seconds(
        stop_seconds(
            shutdown_timeout=configuration.shutdown_timeout,
            revoke_timeout=configuration.revoke_timeout,
            closing=HandlerSet(configuration).close_seconds,
        )
    )


def image_user(dockerfile: Path) -> str | None:
    """Return the uid of the image's last USER."""
    users = [line.split()[1] for line in dockerfile.read_text().splitlines() if line.startswith("USER ")]
    return users[-1].split(":")[0] if users else None
