"""Makes Spark's errors readable. Classic ones come from Java through py4j, Connect's through grpc."""

from __future__ import annotations

import re
from contextlib import suppress

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
"""Errors that Spark raises. pyspark has its own classes for only some of Java's exceptions."""
_LONGEST = 500
_STACK_LINE = re.compile(
    r"^\s*(at [\w.$]+[(/]|\.\.\. \d+ more|Driver stacktrace:|JVM stacktrace:|Traceback )"
)
# Messages that only wrap the reason.
_WRAPPERS = re.compile(r"Job aborted|Writing job aborted|\[(TASK_WRITE_FAILED|FAILED_READ|INTERNAL_ERROR)")
_NO_TABLE = frozenset(
    {
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_PATH_DOES_NOT_EXIST",
        "DELTA_TABLE_NOT_FOUND",
        "PATH_NOT_FOUND",
        "SCHEMA_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND",
    }
)
_GRPC_DETAILS = re.compile(r'RPC that terminated with:.*?details = "(.*?)"$', re.DOTALL | re.MULTILINE)
_QUERY_LINE = re.compile(r"^(== |'[A-Z]|\+- |:- )")


def told(error: BaseException) -> str:
    """Return the error on one line of at most 500 characters, without Java's stack: `Type: text`.

    If Spark only says that a job was aborted, the cause's text is added."""
    lines = [_first_lines(error)]
    if _WRAPPERS.search(lines[0]):
        lines += [text for text in causes(error) if text not in lines[0]][-1:]
    text = " ".join(": ".join(lines).split()).rstrip("; ")
    kind = type(error).__name__
    text = text if text.startswith(kind) or isinstance(error, Py4JJavaError) else f"{kind}: {text}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def causes(error: BaseException) -> list[str]:
    """Return the texts of the Java exceptions behind `error`, outermost first. Empty without an answer."""
    origin = getattr(error, "_origin", None)  # pyspark's own errors keep the Java exception here
    java = getattr(origin, "java_exception", None) or getattr(error, "java_exception", None)
    if java is None:
        return []
    found: list[str] = []
    try:
        while (java := java.getCause()) is not None and len(found) < 10:
            found.append(" ".join(_cut(str(java.toString())).split()))
    except Exception:  # the JVM may be gone
        return found
    return found


def says_no_table(error: PySparkException) -> bool:
    """Whether the error says that the table does not exist. Others, even of the same class, do not say so: a
    catalog may not answer."""
    return (error.getCondition() or "").partition(".")[0] in _NO_TABLE


def is_connection_error(error: BaseException) -> bool:
    """Whether the Java process behind py4j did not answer. It may have ended."""
    return isinstance(error, OSError | EOFError) or (
        isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    )


def _first_lines(error: BaseException) -> str:
    # The JVM provides the text, and may be gone.
    with suppress(Exception):
        return _cut(_text_of(error))
    return "no text: Spark is gone"


def _text_of(error: BaseException) -> str:
    text = str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
    found = _GRPC_DETAILS.search(text)
    return found[1] if found else text


def _cut(text: str) -> str:
    """Return the text before the query's plan, and before Java's or Python's stack."""
    kept: list[str] = []
    for line in text.strip().splitlines():
        if kept and (_STACK_LINE.match(line) or _QUERY_LINE.match(line)):
            break
        if line.strip():
            kept.append(line.strip())
    return " ".join(kept)
