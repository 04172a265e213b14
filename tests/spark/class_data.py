"""Creates a class data sharing archive for Spark, which cuts the start of Java by a third:
`python -m tests.spark.class_data FILE`. Java validates the archive and ignores one that does not match.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import penstock
from penstock.spark.session import open_session
from tests.java import OPTIONS, SILENT
from tests.spark.cluster_jobs import copy
from tests.spark.conftest import QUICK


def make(path: Path) -> None:
    os.environ["JDK_JAVA_OPTIONS"] = " ".join((*OPTIONS, *SILENT))
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    conf = {**QUICK, "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={new}"}
    with tempfile.TemporaryDirectory() as folder, open_session("class data", "local[1]", conf) as session:
        work(session, folder)
        java = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    end(java)
    new.replace(path)


def work(session: SparkSession, folder: str) -> None:
    """Load the classes for the archive."""
    url = f"sqlite:///{folder}/store.db"
    with penstock.connect(url) as store:
        store.queue("orders").send_many([1, 2, 3])
    rows = session.read.format("penstock").option("url", url).option("queue", "orders").load()
    rows.groupBy("queue").count().write.partitionBy("queue").parquet(f"{folder}/lake")
    assert session.read.parquet(f"{folder}/lake").count() == 1
    copy(session, url, f"{folder}/checkpoint", "100")


def end(java: subprocess.Popen[bytes]) -> None:
    """Java writes the archive at exit, and exits when its stdin is closed."""
    assert java.stdin is not None
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
