"""`binlane unblock`, `pause` and `resume`: ask a running worker to set a record aside, or to pause tables."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path
from typing import Any, Literal

import msgspec

from worker.commands.asking.connection import Unreachable, WorkerConnection, connected, is_configuration
from worker.commands.output import Output
from worker.configuration import Configuration
from worker.observing.unblock_messages import LONGEST, Answer, PauseRequest, UnblockRequest, order_token_file
from worker.observing.visible_text import printable

_ANSWER_SECONDS = 60.0
"""The worker waits up to half a minute for the result, and then commits."""
_read_answer = msgspec.json.Decoder(Answer).decode


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
    ConfigurationError."""
    asked = UnblockRequest(
        table=table, offset=offset, action=action, by=_who(), topic=topic, partition=partition
    )
    return _send(target, asked, "unblock", _stopped(target, asked), token=token, ca=ca)


def pause(
    target: str, action: Literal["pause", "resume"], *, token: str | None, ca: Path | None, **what: Any
) -> int:
    """Pause or resume tables at the worker of `target` (CONFIG or URL), and print its answer. `what`: as in
    PauseRequest.

    Returns 0 if that is done, else 1. Raises ConfigurationError."""
    for name, value in what.items():
        if value is not None and not 0 < len(value) <= LONGEST:
            told = f"{name}: found {len(value)} characters; allowed: 1 to {LONGEST}"
            return Output(action).failed(told)
    asked = PauseRequest(action=action, by=_who(), **what)
    return _send(target, asked, action, "", token=token, ca=ca)


def _send(
    target: str, asked: UnblockRequest | PauseRequest, command: str, stopped: str, **access: Any
) -> int:
    """Send the request, and print the answer. `stopped`: what to do if no worker runs. Returns the exit
    code."""
    try:
        with connected(target, seconds=_ANSWER_SECONDS, own_token=_order_token, **access) as worker:
            answer = _answer(worker, asked)
    except Unreachable as fault:
        return Output(command).failed(f"{fault}. {stopped}" if stopped else fault)
    if answer.result in {"set_aside", "handled", "paused", "resumed"}:
        print(printable(answer.message))
        return 0
    return Output(command).failed(answer.message)


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


def _answer(worker: WorkerConnection, asked: UnblockRequest | PauseRequest) -> Answer:
    """Send the request. Raises Unreachable."""
    headers = {"Content-Type": "application/json"}
    path = "api/unblock" if isinstance(asked, UnblockRequest) else "api/pause"
    try:
        content = msgspec.json.encode(asked)
    except UnicodeEncodeError:
        return Answer(result="refused", message="the options must be UTF-8")
    response = worker.ask("POST", path, content=content, headers=headers)
    try:
        return _read_answer(response.content)
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
