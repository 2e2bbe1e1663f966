"""Write jars.sha256 for new versions of Kafka, Delta, Spark or Debezium: python tools/jar_digests.py
With the argument `opensearch`, write tests/servers/opensearch.sha256, for jars that only tests need.

It resolves the jars into an empty cache and trusts the registry. Compare the difference with the digests that
the projects publish before you commit it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stack.jars import CONNECT, DEBEZIUM

from handlers.spark.runtime import jars
from handlers.spark.runtime.versions import LIBRARIES

TESTS = Path(__file__).parents[1] / "tests"


def main() -> None:
    if sys.argv[1:] == ["opensearch"]:
        sys.path.insert(0, str(TESTS))
        from servers.search_node import OPENSEARCH  # noqa: PLC0415 - rarely needed

        return _write(TESTS / "servers/opensearch.sha256", [OPENSEARCH])
    # Spark's libraries with the jars that Spark ships, because another patch release of Spark may ship fewer.
    libraries = [[coordinate] for own in LIBRARIES.values() for coordinate in own.values()]
    wanted = [jars.KAFKA_COORDINATES, *libraries, CONNECT, DEBEZIUM]
    return _write(Path(jars.__file__).with_name("jars.sha256"), wanted)


def _write(target: Path, wanted: Sequence[Sequence[str]]) -> None:
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for coordinates in wanted:
            for jar in jars.resolve(coordinates, kind="digests"):
                digests[jar.name] = hashlib.sha256(jar.read_bytes()).hexdigest()
    lines = [f"{digest}  {name}\n" for name, digest in sorted(digests.items())]
    target.write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"{target}: {len(lines)} jars\n")


if __name__ == "__main__":
    main()
