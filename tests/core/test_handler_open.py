"""A handler that cannot open is told in one line; with a traceback only where it is one of the user's own."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from building import configuration
from structlog.testing import capture_logs

from handlers import Batch, Handler, HandlerContext
from worker.running.handler_set import HandlerOpenError
from worker.running.worker import Worker


class Misspelt(Handler):
    def handle(self, batch: Batch) -> None: ...

    def open(self, context: HandlerContext) -> None:
        raise KeyError("token")


def told(tmp_path: Path, **entry: Any) -> MutableMapping[str, Any]:
    worker = Worker(configuration({"handlers": [entry]}, checkpoint={"directory": str(tmp_path)}))
    with capture_logs() as logged:
        try:
            worker._open_handlers()
        except HandlerOpenError as error:
            worker.fail(error)
    (line,) = (line for line in logged if line["event"] == "worker_fault")
    return line


def test_a_target_that_is_down_at_the_start_is_told_in_one_line(tmp_path: Path) -> None:
    line = told(tmp_path, type="sql", url="postgresql://u:hunter22@127.0.0.1:1/x")
    assert "handler sql could not open: " in line["error"]
    assert line["exc_info"] is None


def test_what_a_handler_of_ones_own_raises_is_told_with_its_place(tmp_path: Path) -> None:
    line = told(tmp_path, type=f"{__name__}:Misspelt", name="mine")
    assert "handler mine could not open: " in line["error"]
    assert isinstance(line["exc_info"].__cause__, KeyError)
