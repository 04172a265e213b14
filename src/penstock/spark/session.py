"""The Spark session of a job: local, on a cluster, or the one that `spark-submit` created."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import InvalidInput, MissingExtra, SparkUnavailable
from penstock.domain.validation import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
JAVA_ADVICE = "install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
# Enough to group tens of millions of audit entries on one machine; --conf spark.driver.memory overrides it.
LOCAL_MEMORY = "2g"


@contextmanager
def open_session(name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """The active session, or a new one that is stopped at the end."""
    session_type = _session_type()
    active = session_type.getActiveSession()
    if active is not None:
        yield active
        return
    session, log = _start(session_type, name, master, dict(conf or {}))
    try:
        yield session
    finally:
        session.stop()
        Path(log).unlink(missing_ok=True)


def check_spark() -> None:
    """Raise MissingExtra when Spark or Java is not installed."""
    _session_type()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java()


def parse_conf(settings: list[str]) -> dict[str, str]:
    """Parse `key=value` settings."""
    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.startswith("spark."):
            raise InvalidInput(f"{shown(setting)} is not a Spark setting such as spark.driver.memory=4g")
        parsed[key] = value
    return parsed


def _session_type() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("the pipeline needs Spark: pip install 'penstock-queue[spark]'") from None
    return SparkSession


def _start(
    session_type: type[SparkSession], name: str, master: str | None, conf: dict[str, str]
) -> tuple[SparkSession, str]:
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    # Executors would start the first `python3` on the PATH, which may lack our packages. Outside `spark-submit` Spark
    # reads the variable, not the setting.
    python = conf.setdefault("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", sys.executable))
    os.environ["PYSPARK_PYTHON"] = python
    builder: Any = session_type.builder.appName(f"penstock {name}")
    if not submitted:
        check_java()
        builder = builder.master(master or os.environ.get("MASTER") or LOCAL)
    for key, value in {**_settings(None if submitted else master or LOCAL), **conf}.items():
        builder = builder.config(key, value)
    with _quiet() as log:
        try:
            session: SparkSession = builder.getOrCreate()
        except Exception as error:
            raise SparkUnavailable(_why_not(error, master, log)) from None
    session.sparkContext.setLogLevel("ERROR")
    # Errors are raised; PySpark would also log each as JSON.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return session, log


def check_java() -> str:
    """The path of the Java executable."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = os.path.join(home, "bin", "java")
        if os.path.exists(path):
            return path
        raise MissingExtra(
            f"JAVA_HOME is {shown(home)}, which has no bin/java: Spark needs Java 17 or newer; {JAVA_ADVICE}"
        )
    found = shutil.which("java")
    if found is None:
        raise MissingExtra(f"Spark needs Java 17 or newer, and there is no java on the PATH: {JAVA_ADVICE}")
    return found


def _settings(master: str | None) -> dict[str, str]:
    """Settings of every job; `master` is None under `spark-submit`."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # The tables need 170 generated classes; Spark caches 100 by default.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # PySpark would tell Java the line of every call that builds a query, which takes as long as planning it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master is not None and master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": LOCAL_MEMORY,
            "spark.ui.enabled": "false",
            # The default of 200 is for clusters; on one machine starting the tasks would take longer than running them.
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        }
    return settings


@contextmanager
def _quiet() -> Iterator[str]:
    """Send Java's log to a file and return its path. Java keeps the error stream it inherits, so the stream is
    replaced only while Java starts."""
    sys.stderr.flush()
    handle, path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    kept = os.dup(2)
    os.dup2(handle, 2)
    try:
        yield path
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)


def _why_not(error: Exception, master: str | None, log: str) -> str:
    java = subprocess.run([check_java(), "-version"], capture_output=True, text=True, check=False).stderr
    version = java.splitlines()[0] if java else "unknown"
    detail = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"Spark did not start on {shown(master or LOCAL)} ({version}): {detail}; what it said is in {log}"
