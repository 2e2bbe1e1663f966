"""Writes jars.sha256 anew, for other versions of Kafka, Delta, Spark or Debezium: python tools/jar_digests.py

Resolves their jars into an empty cache and trusts what the registry gives: compare the difference with what
the projects publish before you commit it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from stack.jars import CONNECT, DEBEZIUM

from handlers.spark.runtime import jars


def main() -> None:
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        # Delta's with those that Spark ships: another patch release of Spark may ship fewer of them.
        for coordinates in (jars.KAFKA_COORDINATES, jars.delta_coordinates(), CONNECT, DEBEZIUM):
            for jar in jars.resolve(coordinates, kind="digests"):
                digests[jar.name] = hashlib.sha256(jar.read_bytes()).hexdigest()
    lines = [f"{digest}  {name}\n" for name, digest in sorted(digests.items())]
    target = Path(jars.__file__).with_name("jars.sha256")
    target.write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"{target}: {len(lines)} jars\n")


if __name__ == "__main__":
    main()
