"""One Spark session for all tests: starting Java takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Store
from penstock.spark.session import open_session
from tests.conformance.engines import ENGINES, EngineRow

FOLDER = Path(__file__).parent
# Spark's default checkpoint manager starts about ten processes per file, to check links. The cluster tests use it.
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
# Small plans and few tasks, for two cores.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    # Interpreted: compiling an expression takes longer than evaluating it for a few rows. The cluster tests compile.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "spark.shuffle.compress": "false",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    "spark.sql.ui.retainedExecutions": "1",
}


# Tests that mostly wait for other processes.
APART = "test_cluster.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Use at most two workers of a parallel run, to limit the number of sessions."""
    here = {path for path in {item.path for item in items} if FOLDER in path.parents}
    for item in items:
        if item.path in here:
            item.add_marker(pytest.mark.xdist_group("cluster" if item.path.name == APART else "spark"))


@pytest.fixture(params=ENGINES, ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row


@pytest.fixture
def url(engine_row: EngineRow, tmp_path: Path) -> str:
    """An empty store, on each engine."""
    return engine_row.fresh_url(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with penstock.connect(url) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with open_session("tests", "local[2]", {**QUICK, "spark.sql.warehouse.dir": str(warehouse)}) as session:
        yield session
