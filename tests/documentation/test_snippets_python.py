"""Every Python that the documentation shows compiles, imports what is there, and calls it as that can be."""

from __future__ import annotations

import ast
import hashlib
import hmac
import importlib
import inspect
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import plain_http
import pytest
from documentation.blocks import Block, blocks, each
from integration.process import eventually

from worker.local.broker_settings import free_port

SHOWN = list(blocks("python"))
OF_THE_READER = {"cleaning": "def clean", "mirror": "class Mirror"}
"""Modules that the reader has written by then, and what an earlier snippet of the page has of them."""


def imported(block: Block) -> dict[str, Any]:
    """Each name that it imports, with what it is. Raises ImportError or AttributeError for none."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            found |= {alias.name: importlib.import_module(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in OF_THE_READER:
            assert OF_THE_READER[node.module] in block.page.read_text()
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            found |= {alias.name: getattr(module, alias.name) for alias in node.names}
    return found


def uncallable(block: Block) -> list[str]:
    """The calls of imported names that these do not take."""
    known = imported(block)
    calls = [
        node
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known
    ]
    faults = []
    for call in calls:
        try:
            inspect.signature(known[call.func.id]).bind(  # type: ignore[attr-defined]
                *call.args, **{str(keyword.arg): None for keyword in call.keywords}
            )
        except TypeError as error:
            faults.append(f"{ast.unparse(call)}: {error}")
    return faults


@pytest.mark.parametrize("block", each(SHOWN))
def test_it_compiles_and_calls_what_is_there(block: Block) -> None:
    compile(block.text, block.place, "exec")
    assert uncallable(block) == []


def test_what_is_not_there_and_what_takes_other_arguments_is_found() -> None:
    assert len(SHOWN) >= 9
    [block] = [each for each in SHOWN if "create_views(" in each.text]
    wrong = Block(
        block.page, 1, "python", block.text.replace('create_views(spark, "s3a://lake")', "create_views()")
    )
    assert [fault.partition(":")[0] for fault in uncallable(wrong)] == ["create_views()"]
    with pytest.raises(AttributeError):
        imported(Block(block.page, 1, "python", "from binlane.spark import curent"))


def webhook(word: str) -> str:
    [found] = [block.text for block in SHOWN if block.page.name == "webhook.md" and word in block.text]
    return found


def test_the_receiver_of_the_webhook_page_answers(tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "said").open("wb") as said:
        server = subprocess.Popen(
            [sys.executable, "-u", "-c", webhook("class Hook").replace("8000", str(port))], stdout=said
        )
    batch = {"table": "shop.orders", "changes": [{"op": "insert"}, {"op": "delete"}]}
    try:
        answer = eventually(lambda: _post(port, batch), what="it answers")
        assert answer.status_code == 204
        assert "shop.orders ['insert', 'delete']" in (tmp_path / "said").read_text()
    finally:
        server.kill()
        server.wait()


def _post(port: int, batch: dict[str, Any]) -> httpx.Response | None:
    try:
        return plain_http.post(f"http://127.0.0.1:{port}/", content=json.dumps(batch))
    except httpx.ConnectError:
        return None


def test_the_signature_of_the_webhook_page_is_told_from_others() -> None:
    names: dict[str, Any] = {}
    exec(webhook("is_ours"), names)
    body, secret, now = b"{}", b"secret", str(int(time.time()))
    sign = hmac.new(secret, now.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {"X-Binlane-Timestamp": now, "X-Binlane-Signature": f"sha256={sign}"}
    assert names["is_ours"](headers, body, secret)
    assert not names["is_ours"](headers, b"{ }", secret)


def test_the_test_of_the_transforms_page_passes(tmp_path: Path) -> None:
    function, test = [block.text for block in SHOWN if block.page.name == "transforms.md"]
    (tmp_path / "cleaning.py").write_text(function)
    (tmp_path / "test_cleaning.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_cleaning.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
