"""Spark's errors in a person's words: classic ones come from Java through py4j, Connect's through grpc."""

from __future__ import annotations

import re
from contextlib import suppress

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
"""What Spark raises: pyspark has words of its own for some of Java's exceptions alone."""
_LONGEST = 500
_STACK_LINE = re.compile(
    r"^\s*(at [\w.$]+[(/]|\.\.\. \d+ more|Driver stacktrace:|JVM stacktrace:|Traceback )"
)
# What only wraps the reason.
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
    """What went wrong, on one line of at most 500 characters, without Java's stack: `Type: text`.

    Where Spark only says that a job was aborted, what its cause says is added."""
    lines = [_first_lines(error)]
    if _WRAPPERS.search(lines[0]):
        lines += [text for text in causes(error) if text not in lines[0]][-1:]
    text = " ".join(": ".join(lines).split()).rstrip("; ")
    kind = type(error).__name__
    text = text if text.startswith(kind) or isinstance(error, Py4JJavaError) else f"{kind}: {text}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def causes(error: BaseException) -> list[str]:
    """What the Java exceptions behind `error` say, outermost first; empty where they cannot be asked."""
    origin = getattr(error, "_origin", None)  # pyspark's own errors keep the Java exception so
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
    """Whether there is no such table; any other error, also of the same class, does not tell: a catalog that
    does not answer is one."""
    return (error.getCondition() or "").partition(".")[0] in _NO_TABLE


def is_connection_error(error: BaseException) -> bool:
    """Whether the Java process behind py4j did not answer, which may be its end."""
    return isinstance(error, OSError | EOFError) or (
        isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    )


def _first_lines(error: BaseException) -> str:
    # Texts are asked of the JVM, which may be gone.
    with suppress(Exception):
        return _cut(_text_of(error))
    return "no text: Spark is gone"


def _text_of(error: BaseException) -> str:
    text = str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
    found = _GRPC_DETAILS.search(text)
    return found[1] if found else text


def _cut(text: str) -> str:
    """The text up to the query's plan, and Java's or Python's stack."""
    kept: list[str] = []
    for line in text.strip().splitlines():
        if kept and (_STACK_LINE.match(line) or _QUERY_LINE.match(line)):
            break
        if line.strip():
            kept.append(line.strip())
    return " ".join(kept)
