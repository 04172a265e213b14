"""The data pipeline of the demo, on the store that it has filled."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.domain.errors import MissingExtra, PenstockError

# For a few thousand rows, compiling plans would take longer than running them.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


class PipelineResult:
    """The findings of the pipeline, or why it did not run."""

    def __init__(self, store: Path) -> None:
        self.lake = store.with_name(f"{store.stem}-lake")
        self.report = store.with_name(f"{store.stem}-report.html")
        self.sentences: list[str] = []
        self.skipped: str | None = None
        self.failed: str | None = None

    @property
    def ok(self) -> bool:
        return self.failed is None

    def document(self) -> dict[str, Any]:
        if self.skipped or self.failed:
            return {"skipped": self.skipped, "failed": self.failed}
        return {"report": str(self.report), "lake": str(self.lake), "findings": self.sentences}

    def clear(self) -> None:
        """Remove the files of an earlier demo."""
        shutil.rmtree(self.lake, ignore_errors=True)
        self.report.unlink(missing_ok=True)


def run_pipeline(url: str, outcome: PipelineResult, progress: Callable[[str], None]) -> None:
    """Run archive, tables and report; without Spark, record what is missing."""
    try:
        from penstock.spark.session import check_spark

        check_spark()
    except MissingExtra as error:
        outcome.skipped = str(error)
        return
    from penstock.spark.jobs import JobTarget, Upkeep, run_all

    place = JobTarget(url, str(outcome.lake), "local[2]", QUICK)
    try:
        _, reported = run_all(place, str(outcome.report), Upkeep(), progress)
    except PenstockError as error:
        outcome.failed = str(error)
        return
    outcome.sentences = [one.sentence for one in reported.findings]
