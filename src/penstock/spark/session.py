"""A Spark session for the jobs: on this machine, on a cluster, or the one that `spark-submit` has made."""

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
from penstock.domain.names import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
JAVA_ADVICE = "install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
# Enough for the jobs to group tens of millions of audit entries on one machine; --conf spark.driver.memory says else.
LOCAL_MEMORY = "2g"


@contextmanager
def open_session(name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that is stopped at the end, unless it was there before."""
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
    """Whether Spark can run here at all: for saying so before anything is begun."""
    _session_type()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java()


def parse_conf(settings: list[str]) -> dict[str, str]:
    """`key=value` texts as Spark's own settings."""
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
        raise MissingExtra("the pipeline needs Spark: pip install 'penstock[spark]'") from None
    return SparkSession


def _start(
    session_type: type[SparkSession], name: str, master: str | None, conf: dict[str, str]
) -> tuple[SparkSession, str]:
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    # Executors would start whatever `python3` they find, which may lack our packages. Spark takes the setting only from
    # `spark-submit`, and else looks at the variable.
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
    # Errors are raised; PySpark would print each as JSON besides.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return session, log


def check_java() -> str:
    """The path of Java, which Spark runs on."""
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
    """What every job needs; `master` is None when somebody else has chosen it."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Code that was generated and compiled for a plan is kept for the next like it: the tables need 170 pieces,
        # and Spark keeps 100.
        "spark.sql.codegen.cache.maxEntries": "1000",
    }
    if master is not None and master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": LOCAL_MEMORY,
            "spark.ui.enabled": "false",
            # 200 is for clusters: on one machine starting so many tasks takes longer than their work.
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        }
    return settings


@contextmanager
def _quiet() -> Iterator[str]:
    """Java's greetings go to a file instead of the terminal, also those it has for us later; gives the file's path.

    The Java process keeps the error stream it was started with, so the stream is exchanged only while it starts.
    """
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
