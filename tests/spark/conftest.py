"""One Spark session for the tests of this folder: starting one takes seconds. `schedule.py` keeps them together."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.spark import session as spark_session
from spark.commands import QUICK_JAVA, Pipeline, Ran, run_command

HERE = Path(__file__).parent
# A cluster and a Connect server are three more JVMs: `make test-cluster` asks for them.
collect_ignore = [] if os.environ.get("CLUSTER") else ["test_cluster.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))  # Spark on a busy machine
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = spark_session.start_session(
        "local[2]",
        name="holdfast tests",
        shuffle_partitions=4,
        settings={
            "spark.local.dir": str(tmp_path_factory.mktemp("spark-local")),
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            # small data, many plans: the second compiler costs more than it saves
            "spark.driver.extraJavaOptions": QUICK_JAVA,
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def pipeline(spark: SparkSession) -> Pipeline:
    """`holdfast pipeline` with these words, in the session that is there."""

    def run(*words: str) -> Ran:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spark_session, "start_session", lambda *_words, **_flags: spark)
            patch.setattr(spark, "stop", lambda: None)
            return run_command(*words)

    return run
