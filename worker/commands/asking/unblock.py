"""`binlane unblock`: ask a running worker to set aside one record that blocks its table."""

from __future__ import annotations

import getpass
import socket
import sys
from pathlib import Path
from typing import Literal

import msgspec

from worker.commands.asking.connection import Unreachable, WorkerConnection, connected, is_configuration
from worker.configuration import Configuration
from worker.observing.unblock_messages import UnblockAnswer, UnblockRequest, order_token_file
from worker.observing.visible_text import printable

_ANSWER_SECONDS = 60.0
"""The worker waits up to half a minute for the result, and then commits."""


def unblock(
    target: str,
    table: str,
    offset: int,
    action: Literal["skip", "dead_letter"],
    *,
    topic: str | None = None,
    partition: int | None = None,
    token: str | None = None,
    ca: Path | None = None,
) -> int:
    """Send the request to the worker of `target` (CONFIG or URL), and print its answer.

    Returns 0 if the record is set aside or its handlers accepted it after all, else 1. Raises
    ConfigurationError.
    """
    asked = UnblockRequest(
        table=table, offset=offset, action=action, by=_who(), topic=topic, partition=partition
    )
    try:
        with connected(target, token=token, ca=ca, seconds=_ANSWER_SECONDS, own_token=_order_token) as worker:
            answer = _answer(worker, asked)
    except Unreachable as fault:
        _complain(f"{fault}. {_stopped(target, asked)}")
        return 1
    if answer.result in {"set_aside", "handled"}:
        print(printable(answer.message))
        return 0
    _complain(answer.message)
    return 1


def _order_token(configuration: Configuration, port: int) -> str | None:
    """Read the token that is used without http.token; None: there is no file. Raises Unreachable."""
    file = order_token_file(configuration.checkpoint.directory, port)
    try:
        return file.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"{file} cannot be read ({error.strerror})"
        raise Unreachable(f"{what}: run the command as the worker's user, or set http.token") from error


def _answer(worker: WorkerConnection, asked: UnblockRequest) -> UnblockAnswer:
    """Send the request. Raises Unreachable."""
    headers = {"Content-Type": "application/json"}
    response = worker.ask("POST", "api/unblock", content=msgspec.json.encode(asked), headers=headers)
    try:
        return msgspec.json.decode(response.content, type=UnblockAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(response.text.split())[:200]
        raise Unreachable(f"{worker.address} answered HTTP {response.status_code}: {text}") from None


def _stopped(target: str, asked: UnblockRequest) -> str:
    """Say what to do if no worker is running."""
    config = target if is_configuration(target) else "CONFIG"
    topic = "TOPIC" if asked.topic is None else asked.topic
    partition = "PARTITION" if asked.partition is None else asked.partition
    return (
        f"If the worker is stopped and binlane checkpoint show {config} shows that a start begins at this "
        f"record, skip it with: binlane checkpoint set {config} --topic {topic} --partition {partition} "
        f"--offset {asked.offset + 1}"
    )


def _who() -> str:
    """Return user@host, as far as they are known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _complain(line: str) -> None:
    print(f"binlane unblock: {printable(' '.join(line.split()))}", file=sys.stderr)
