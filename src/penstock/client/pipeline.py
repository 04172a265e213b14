"""The latest runs of the pipeline, read from the store's ledger for the command line and the dashboard.

Reading it needs no Spark.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec

from penstock.domain.timestamps import to_time
from penstock.engines.contract import Engine

KIND = "pipeline"
KEPT_RUNS = 50


class PipelineRun(msgspec.Struct, frozen=True):
    """One run of a job. `result` is what it found or did; `error` says why it failed."""

    job: str
    began_at: datetime
    seconds: float
    ok: bool
    result: dict[str, Any] = {}
    error: str | None = None


class LakeStatus(msgspec.Struct, frozen=True):
    """A lake of the store: its path, and up to when it is archived."""

    path: str
    archived_at: datetime
    window: int
    files: int
    size: int


class ReportStatus(msgspec.Struct, frozen=True):
    """The newest report."""

    path: str
    made_at: datetime
    findings: list[str] = []


class PipelineStatus(msgspec.Struct, frozen=True):
    """Newest runs first."""

    runs: list[PipelineRun]
    lakes: list[LakeStatus]
    report: ReportStatus | None


def pipeline_status(engine: Engine) -> PipelineStatus:
    """Read the status; entries in the format of another version are skipped."""
    entries = sorted(engine.ledger(KIND).items())
    runs = [_decode(text, PipelineRun) for key, text in reversed(entries) if key.startswith("run/")]
    lakes = [_decode(text, LakeStatus) for key, text in entries if key.startswith("lake/")]
    reports = [_decode(text, ReportStatus) for key, text in entries if key == "report"]
    return PipelineStatus(_known(runs), _known(lakes), next(iter(_known(reports)), None))


def note_run(engine: Engine, run: PipelineRun) -> None:
    """Record a run, and drop the oldest."""
    old = sorted(engine.ledger(KIND, "run/"), reverse=True)[KEPT_RUNS - 1 :]
    key = f"run/{run.began_at:%Y-%m-%dT%H:%M:%S.%f}-{uuid4().hex[:8]}"
    engine.record(KIND, {key: _encode(run)}, old)


def note_lake(engine: Engine, lake: str, status: LakeStatus) -> None:
    engine.record(KIND, {f"lake/{lake}": _encode(status)})


def note_report(engine: Engine, status: ReportStatus) -> None:
    engine.record(KIND, {"report": _encode(status)})


def engine_time(engine: Engine) -> datetime:
    return to_time(engine.now())


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _decode(text: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None


def _known(notes: list[Any]) -> list[Any]:
    return [note for note in notes if note is not None]
