"""Lines that a user writes for each side's tables, without blank lines, comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

__all__ = ["CONFIGURATION", "code_lines", "user_lines"]

CONFIGURATION = """\
kafka:
  bootstrap_servers: 127.0.0.1:9092
  group_id: lake
  topics: [cdc]
format: canal
checkpoint:
  directory: state
  initial: earliest
tables:
  - match: shop.*
    handlers:
      - type: spark
        mode: replica
spark:
  warehouse: lake
"""
"""binlane's, of the benchmark without its settings of the log and of memory."""

_PEERS = Path(__file__).parents[1] / "peers"
_SPECIFICATION_LINES = 6
"""Of spark-pipeline.yml, with the database."""
_SESSION_LINES = 4
"""Of Spark's settings for Delta, which both jobs need: jars, extension, catalog, warehouse."""


def user_lines() -> dict[str, int]:
    """Return side -> lines. The job's arguments and reports are not counted."""
    streaming = (_PEERS / "structured_streaming.py").read_text(encoding="utf-8")
    flows = (_PEERS / "auto_cdc_flows.py").read_text(encoding="utf-8")
    return {
        "binlane": len(CONFIGURATION.splitlines()),
        "Structured Streaming": code_lines(streaming, ("_Sink", "_Merge", "main")) + _SESSION_LINES,
        "AUTO CDC": code_lines(flows) + _SPECIFICATION_LINES + _SESSION_LINES,
    }


def code_lines(text: str, names: tuple[str, ...] = ()) -> int:
    """Count the lines with code of a module, or of its functions and classes with these names."""
    kept = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            kept -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    if not names:
        return len(kept)
    parts = [node for node in tree.body if getattr(node, "name", None) in names]
    return sum(line in kept for node in parts for line in range(node.lineno, (node.end_lineno or 0) + 1))


_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
