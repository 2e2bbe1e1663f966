"""The one Spark of a test process (pyspark allows no second): kept running for the next module, unless one
needs another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from handlers.spark.options import SparkSection
from handlers.spark.runtime import session
from handlers.spark.runtime.session import SharedSpark

__all__ = ["INTERPRETED", "LIGHT", "LIGHT_JAVA", "QUICK", "QUICK_JAVA", "SHARED", "SparkKeeper"]

# Optimizing took a third of all CPU time, and changes nothing that Spark does.
# By default all garbage is collected again and again while Spark loads its first classes.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
# Where it runs for many minutes: compiled later, and not thrown away again. By default the room for compiled
# code is a fifth of this, and a tenth of the time went into looking for what to throw away.
_LONG_JAVA = (
    f"{QUICK_JAVA} -Xmn300m -XX:ReservedCodeCacheSize=240m -XX:Tier3InvocationThreshold=400 "
    "-XX:Tier3MinInvocationThreshold=200 -XX:Tier3CompileThreshold=4000 -XX:Tier3BackEdgeThreshold=120000"
)
QUICK: dict[str, Any] = {
    "driver_memory": "1g",
    "ui": False,
    "conf": {"spark.driver.extraJavaOptions": QUICK_JAVA},
}

# A few rows are computed before their code would be compiled.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

LIGHT_JAVA = " ".join([QUICK_JAVA, *(f"-D{name}={value}" for name, value in INTERPRETED.items())])
"""The same for a Spark whose configuration is not the test's, in JAVA_TOOL_OPTIONS."""

LIGHT: dict[str, Any] = {**QUICK, "conf": {**QUICK["conf"], **INTERPRETED}}
"""For many statements over few rows."""

SHARED: dict[str, Any] = {**LIGHT, "conf": {"spark.driver.extraJavaOptions": _LONG_JAVA, **INTERPRETED}}
"""The same for what `SparkKeeper` keeps running."""


class SparkKeeper:
    """Starts Spark for the tests of a process, and stops it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, Any] | None = None
        self._spark: SharedSpark | None = None

    def get(self, section: dict[str, Any] = SHARED, **more: Any) -> SharedSpark:
        """Spark as a `spark:` section says: the running one if it was started with the same."""
        wanted = {"warehouse": str(self._folder / "catalog"), **section, **more}
        if self._spark is not None and self._running == wanted:
            _clear(self._spark)
            return self._spark
        self.stop()
        self._spark = session.acquire(SparkSection.model_validate(wanted), self._folder, "test")
        self._running = wanted
        return self._spark

    def stop(self) -> None:
        """None runs any more: for those who start their own."""
        if self._spark is not None:
            self._spark = None
            session.release()
        assert session._shared is None, "a test has left a Spark running"


def _clear(spark: SharedSpark) -> None:
    """No table or database of a former module."""
    main = spark.session
    main.catalog.setCurrentDatabase("default")
    for (database,) in main.sql("SHOW DATABASES").collect():
        if database != "default":
            main.sql(f"DROP DATABASE `{database}` CASCADE")
    for kind in ("VIEW", "TABLE"):
        for row in main.sql(f"SHOW {kind}S IN default").collect():
            if not row.isTemporary:
                main.sql(f"DROP {kind} default.`{row[1]}`")
