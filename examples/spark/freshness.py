"""How fresh are the tables? A notebook as a script: run it whole, or cell by cell in an editor.

    pip install '.[plots]'
    python examples/spark/freshness.py --seconds 60

While shop.py and the worker run, it asks the heartbeat's table again and again, as any reader would: through
its view (with what is received but not merged yet), and the Delta table alone. The row holds the time at
which the source wrote it. What it sees is drawn into freshness.png.
"""

# %% Which pipeline, and for how long
from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
import matplotlib.pyplot as plt
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from binlane.spark import current, start

HERE = Path(__file__).parent

arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
arguments.add_argument("--lake", type=Path, default=HERE / "lake", help="the pipeline's warehouse")
arguments.add_argument("--url", default="http://localhost:8080", help="the worker's")
arguments.add_argument("--seconds", type=float, default=60.0)
arguments.add_argument("--every", type=float, default=0.5, help="seconds between two looks")
arguments.add_argument("--output", type=Path, default=HERE / "output" / "freshness.png")
options, _ = arguments.parse_known_args()  # a notebook has arguments of its own

# %% A Spark of our own to read with: any session with Delta would do
started = start("freshness", driver_memory="1g", ui=False)
spark: SparkSession = started.session


# %% One look
class Look(NamedTuple):
    at: float
    """Seconds since the first look."""
    view: float
    """Seconds from the source's write to this answer, for what the view shows; nan: it shows nothing yet."""
    merged: float
    """The same, for what the Delta table holds."""
    lag: int
    """Records in Kafka that the worker has not finished."""
    waiting: int
    """Rows of all tables that are in their views, and not merged yet."""


HEARTBEAT = str(options.lake / "shop" / "heartbeat")


def age(table: Callable[[], DataFrame]) -> float:
    """Of the heartbeat, in seconds."""
    try:
        rows = table().selectExpr("unix_millis(at) AS at").collect()
    except (LookupError, PySparkException):
        return math.nan  # the worker has not come so far
    return time.time() - rows[0]["at"] / 1000 if rows else math.nan


def look(began: float) -> Look:
    told: dict[str, Any] = httpx.get(f"{options.url}/api/status", timeout=10).json()
    tables = [table for handler in told["handlers"] for table in handler.get("tables", ())]
    return Look(
        time.monotonic() - began,
        age(lambda: current(spark, HEARTBEAT)),
        age(lambda: spark.read.format("delta").load(HEARTBEAT)),
        sum(partition["lag"] or 0 for partition in told["partitions"]),
        sum(table["waiting_rows"] for table in tables),
    )


# %% Look until the time is over
looks: list[Look] = []
look(time.monotonic())  # a Spark's first query takes seconds
began = time.monotonic()
while not looks or time.monotonic() - began < options.seconds:
    looks.append(look(began))
    time.sleep(options.every)


def behind(ages: list[float]) -> str:
    seen = [age for age in ages if not math.isnan(age)]
    return f"median {median(seen):.1f} s, at most {max(seen):.1f} s" if seen else "nothing to be seen yet"


# %% In numbers
at = [one.at for one in looks]
views, merged = [one.view for one in looks], [one.merged for one in looks]
print(f"the view is behind the source: {behind(views)}")
print(f"the Delta table is behind the source: {behind(merged)}")

# %% In a picture
VIEW, MERGED, QUIET = "#0b7285", "#e8590c", "#868e96"
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(9, 6), sharex=True, height_ratios=(3, 2), layout="constrained"
)
top.plot(at, merged, color=MERGED, marker=".", label=f"Delta table: {behind(merged)}")
top.plot(at, views, color=VIEW, marker=".", label=f"its view, merged on read: {behind(views)}")
top.set(ylabel="seconds behind the source", title="Freshness of a table, as a reader sees it")
waiting, lag = [one.waiting for one in looks], [one.lag for one in looks]
bottom.fill_between(at, waiting, color=MERGED, alpha=0.2, step="post", linewidth=0)
bottom.step(at, waiting, color=MERGED, where="post", label="rows in views, to be merged")
bottom.step(at, lag, color=VIEW, where="post", label="records in Kafka, not finished")
bottom.set(ylabel="waiting", xlabel="seconds", xlim=(0, max(at) or 1))
for axes in (top, bottom):
    axes.grid(axis="y", color=QUIET, alpha=0.25)
    axes.legend(loc="upper left", frameon=False)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.35)  # room for the legend
options.output.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(options.output, dpi=150)
print(options.output)

# %% The newest orders, and the revenue of each minute
orders = current(spark, str(options.lake / "shop" / "orders"))
orders.groupBy("status").count().orderBy("status").show()
revenue = spark.read.format("delta").load(str(options.lake / "revenue"))
revenue.groupBy("minute").agg({"payments": "sum", "revenue": "sum"}).orderBy("minute").show()

# %% The end
started.stop()
