"""What the source's types are in Spark, and what may be named in the option `columns`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from handlers.spark import SparkOptions
from handlers.spark.rows.column_types import column_type, override, spark_name

# docs/spark.md has the same.
MYSQL = {
    "tinyint": "tinyint", "tinyint(1)": "tinyint", "bool": "tinyint", "smallint": "smallint",
    "mediumint": "int", "int": "int", "bigint": "bigint",
    "tinyint unsigned": "smallint", "smallint unsigned": "int", "mediumint unsigned": "int",
    "int(10) unsigned": "bigint", "bigint unsigned": "decimal(20,0)",
    "bigint(20) unsigned zerofill": "decimal(20,0)",
    "serial": "decimal(20,0)", "year": "smallint", "year(4)": "smallint",
    "decimal(10,2)": "decimal(10,2)", "decimal(38,38) unsigned": "decimal(38,38)",
    "numeric(5)": "decimal(5,0)",
    "decimal(39,2)": "string", "decimal(65,30)": "string", "decimal": "decimal(10,0)",
    "float": "float", "float(7,4)": "float", "float(24)": "float", "float(25)": "double",
    "double": "double", "double(10,2)": "double", "double precision": "double", "real": "double",
    "bit": "bigint", "bit(63)": "bigint", "bit(64)": "decimal(20,0)",
    "date": "date", "datetime": "timestamp_ntz", "datetime(6)": "timestamp_ntz",
    "timestamp": "timestamp", "timestamp(3)": "timestamp", "time": "string", "time(6)": "string",
    "char(10)": "string", "varchar(255)": "string", "longtext": "string", "json": "string",
    "enum('a','b')": "string", "set('a','b')": "array<string>", "set": "array<string>",
    "binary(4)": "binary", "varbinary(9)": "binary", "longblob": "binary", "geometry": "binary",
    "point": "binary", "vector(3)": "binary", "a_type_to_come(7)": "string",
}  # fmt: skip
POSTGRESQL = {
    "uuid": "string", "float8": "double", "float4": "float", "int2": "smallint", "int4": "int",
    "int8": "bigint", "numeric": "decimal(10,0)", "boolean": "tinyint",
}  # fmt: skip
SPARK = {
    "boolean": "boolean", "BYTE": "tinyint", "tinyint": "tinyint", "short": "smallint", "Integer": "int",
    "long": "bigint", "real": "float", "double": "double", "decimal( 12, 2 )": "decimal(12,2)",
    "numeric(38,0)": "decimal(38,0)", "dec(1,1)": "decimal(1,1)", "string": "string", "binary": "binary",
    "date": "date", "timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz",
    "array<string>": "array<string>", "ARRAY < STRING >": "array<string>",
}  # fmt: skip


@pytest.mark.parametrize(("source", "spark"), [*MYSQL.items(), *POSTGRESQL.items()])
def test_each_type_of_the_source_has_one_in_spark(source: str, spark: str) -> None:
    assert spark_name(column_type(source).arrow) == spark


def test_only_types_without_all_their_sizes_are_left_to_the_values() -> None:
    opened = {text for text in (*MYSQL, *POSTGRESQL) if column_type(text).is_open}
    assert opened == {"decimal", "numeric", "decimal(65,30)", "boolean"}


@pytest.mark.parametrize(("text", "spark"), SPARK.items())
def test_a_type_may_be_named_as_spark_spells_it(text: str, spark: str) -> None:
    assert spark_name(override(text)) == spark
    assert SparkOptions(mode="changelog", columns={"a": text}).columns == {"a": text}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decimal", "allowed: boolean, .*decimal\\(precision,scale\\), array<string>"),
        ("decimal(39,2)", "1 to 38 digits"),
        ("decimal(5,6)", "no more after the point"),
        ("decimal(0,0)", "1 to 38 digits"),
        ("varchar(20)", "is not a Spark type for columns"),
        ("array<int>", "allowed"),
        ("struct<a:int>", "allowed"),
        ("", "allowed"),
    ],
)
def test_any_other_type_is_refused_with_those_that_are_allowed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        override(text)
    with pytest.raises(ValidationError, match=f"price: .*{message}"):
        SparkOptions(mode="changelog", columns={"price": text})


def test_a_column_is_named_once() -> None:
    with pytest.raises(ValidationError, match="Spark's names ignore case"):
        SparkOptions(mode="changelog", columns={"a": "int", "A": "int"})


def test_a_configuration_is_checked_without_spark_and_arrow() -> None:
    program = (
        "import sys; from handlers.spark import SparkOptions;"
        "SparkOptions(mode='changelog', columns={'a': 'int'});"
        "sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
