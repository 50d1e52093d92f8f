"""What Spark fails with is one sentence; all of it when that was asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from holdfast.cli.pipeline_setup import spark_in_one_sentence
from holdfast.errors import UsageError
from spark.brokers import LIMIT_S
from spark.commands import QUICK_JAVA

ALL = " (run again with -v to see all that Spark has to say)"


def exhaust(spark: SparkSession) -> None:
    """Ask Java for more memory than it can have."""
    assert spark.sparkContext._jvm is not None
    spark.sparkContext._jvm.java.nio.ByteBuffer.allocate(2**31 - 1)


def test_an_error_of_java_is_one_sentence_with_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(UsageError) as caught, spark_in_one_sentence(False):
        exhaust(spark)
    assert str(caught.value) == "Spark ran out of memory: give it more with --memory" + ALL


def test_an_error_of_java_is_whole_when_all_was_asked_for(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError, match=r"at java\.base/java\.nio"), spark_in_one_sentence(True):
        exhaust(spark)


def test_an_error_in_a_worker_is_the_line_that_python_ends_with(spark: SparkSession) -> None:
    with pytest.raises(UsageError) as caught, spark_in_one_sentence(False):
        spark.range(3).rdd.foreach(lambda number: {}[f"no {number}"])  # type: ignore[index]
    assert str(caught.value).startswith("KeyError: 'no ")


def test_an_error_that_spark_names_loses_its_code_for_machines(spark: SparkSession) -> None:
    with pytest.raises(UsageError) as caught, spark_in_one_sentence(False):
        spark.range(3).select("nothing").collect()
    assert str(caught.value).startswith("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column")
    assert "SQLSTATE" not in str(caught.value)
    with pytest.raises(PySparkException, match="SQLSTATE"), spark_in_one_sentence(True):
        spark.range(3).select("nothing").collect()


def test_a_process_that_did_not_start_in_time_is_one_sentence_with_what_to_do() -> None:
    """Spark's own words for it, as a query that ended with them has them; `pipeline run` tries some times before."""
    spoken = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."
    with pytest.raises(UsageError, match="run again when the machine is less busy"), spark_in_one_sentence(False):
        raise StreamingQueryException(spoken)


def test_a_mistake_of_ours_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(KeyError), spark_in_one_sentence(False):
        raise KeyError("absent")
    with pytest.raises(FileNotFoundError), spark_in_one_sentence(False):
        (tmp_path / "absent").read_bytes()


KILLED = """
import os, signal
from holdfast.cli.pipeline_setup import session
from holdfast.errors import HoldfastError

try:
    with session("local[1]", "512m", False) as spark:
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        spark.range(10).count()
except HoldfastError as error:
    print(error)
"""


def test_a_spark_that_dies_is_one_sentence() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", KILLED],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
    )
    [line] = ran.stdout.splitlines()
    assert line.startswith("the connection to Spark was lost: its process ended"), ran.stderr
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
