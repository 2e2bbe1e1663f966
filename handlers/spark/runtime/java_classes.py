"""Java's classes by their names, each looked up once.

py4j asks Java anew at every use of a name, and Java looks for a class of that name in all jars, some 300:
also for `org` in `jvm.org.apache.spark...`, and for what pyspark has imported with a whole package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JVMView
from py4j.protocol import DEFAULT_JVM_ID, DEFAULT_JVM_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_class(session: SparkSession, name: str) -> Any:
    """The class of this full name, whose static members are its attributes. Raises Py4JError."""
    jvm: Any = session._jvm
    return getattr(jvm, name)


class _RememberingView(JVMView):  # type: ignore[misc]
    """Knows the classes that it was asked for."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):  # a package may have a class of its name later
            setattr(self, name, found)
        return found


def remember_classes(gateway: Any) -> None:
    """pyspark's own code, too, finds classes in this gateway's `jvm` from now on."""
    gateway.jvm = _RememberingView(gateway._gateway_client, jvm_name=DEFAULT_JVM_NAME, id=DEFAULT_JVM_ID)
