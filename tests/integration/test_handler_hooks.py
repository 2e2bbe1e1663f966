"""Handlers with threads of their own: they can stop the worker, be counted, and tell what they do."""

from __future__ import annotations

from integration.process import eventually
from integration.stage import Stage

MODULE = '''
import threading
from handlers import Batch, Handler, HandlerContext, StopWorker

class Merging(Handler):
    """Its thread does the work behind its batches, until its means are gone."""

    def __init__(self, password="none") -> None:
        self.password, self.rows, self.closed = password, 0, False

    def open(self, context: HandlerContext) -> None:
        self.context, self.gone = context, threading.Event()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        self.gone.wait()
        self.context.stop_worker(StopWorker("the engine is gone"))

    def handle(self, batch: Batch) -> None:
        self.rows += len(batch.changes)
        self.context.metrics.observe("binlane_spark_merge_seconds", 0.5)
        self.context.metrics.count("binlane_spark_merges_total", result="success")
        if any(change.after["seq"] == 9 for change in batch.changes):
            self.gone.set()

    in_worker = True  # it asks for its worker's partitions

    def close(self) -> None:
        (self.context.folder / "closed_with").write_text(str(len(self.context.partitions())))

    def status(self):
        return {"rows": self.rows, "at": f"engine://me:{self.password}@here"}
'''


def test_what_a_handler_tells_and_counts_is_shown_and_its_thread_stops_the_worker(stage: Stage) -> None:
    worker = stage.worker(handlers=[{"type": "merging:Merging", "password": "hunter2-hunter2"}])
    (worker.folder / "merging.py").write_text(MODULE)
    source = stage.source()
    for _ in range(5):
        source.insert("t0")
    source.flush()
    worker.start()
    eventually(lambda: worker.status()["handlers"][0]["rows"] == 5)
    [told] = worker.status()["handlers"]
    assert told["type"] == told["handler"] == "merging:Merging"
    assert told["at"] == "engine://me:***@here"
    assert worker.metric("binlane_spark_merges_total", result="success") >= 1
    assert worker.metric("binlane_spark_merge_seconds_sum") >= 0.5

    for _ in range(5):
        source.insert("t0")
    source.flush()
    assert worker.wait() == 1
    closed_with = int((worker.folder / "closed_with").read_text())
    assert closed_with > 0, "what a handler does in `close` is over when others get its partitions"
    assert stage.committed()[0] == 10, "what was handled is committed all the same"
    assert "StopWorker: the engine is gone" in worker.logged("stopped")[0]["error"]
    assert not worker.logged("unstructured"), "no traceback: the text says it all"
