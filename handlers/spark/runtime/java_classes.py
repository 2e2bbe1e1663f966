"""Java's classes by name, each looked up once.

py4j asks Java at each use of a name, and Java searches all jars (some 300) for a class of that name. It also
does so for `org` in `jvm.org.apache.spark...`, and for classes that pyspark imported with a package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JVMView
from py4j.protocol import DEFAULT_JVM_ID, DEFAULT_JVM_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_class(session: SparkSession, name: str) -> Any:
    """Return the class of this full name. Its static members are attributes. Raises Py4JError."""
    jvm: Any = session._jvm
    return getattr(jvm, name)


class _RememberingView(JVMView):  # type: ignore[misc]
    """Remembers the classes that it returned."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):  # a package may get a class of its name later
            setattr(self, name, found)
        return found


def remember_classes(gateway: Any) -> None:
    """Cache classes of this gateway's `jvm` from now on, also for pyspark's own code."""
    gateway.jvm = _RememberingView(gateway._gateway_client, jvm_name=DEFAULT_JVM_NAME, id=DEFAULT_JVM_ID)
