"""What the journals, the archive and the server's log say of a run."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg


@dataclass
class Verdict:
    lines: dict[str, Any]
    is_bad: bool


def judge(out: Path, url: str, log: Path, alone: int, began: float, ended: float) -> Verdict:
    sent = {line["id"]: line["do"] for line in _read(out, "producer")}
    workers, dead = _read(out, "workers"), _read(out, "dead")
    with psycopg.connect(url) as connection:
        archive = connection.execute("SELECT id, result::text, handled_by FROM messages.message_archive").fetchall()
        waiting = {row[0] for row in connection.execute("SELECT id FROM messages.message")}
        jobs = connection.execute(
            "SELECT regexp_replace(jobname, '.*:', ''), status, count(*) FROM cron.job_run_details "
            "LEFT JOIN cron.job USING (jobid) GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
    ticks = {row[0] for row in archive} - sent.keys()
    locked = Counter(line["id"] for line in workers if line["event"] == "locked")
    archived = Counter(row[0] for row in archive)
    results = {row[0]: row[1] for row in archive}
    died = Counter(line["id"] for line in dead if line["event"] == "dead")
    warned = Counter(
        int(each) for each in re.findall(r"\] WARNING:.*message_archive\.id=(\d+)", log.read_text("utf-8"))
    )
    unsuccessful = {number for number, result in results.items() if result != "success"}
    heard = [line["at"] for line in _read(out, "ear") if line["event"] == "heard" and line["id"] == alone]
    minutes = sorted({int(at // 60) for at in heard})
    expected = list(range(int(began // 60) + 1, int(ended // 60) + 1))
    faults = {
        "lost": sorted(sent.keys() - archived.keys()),
        "left_waiting": sorted(waiting - {alone}),
        "locked_twice": [number for number, count in locked.items() if count > 1],
        "archived_twice": [number for number, count in archived.items() if count > 1],
        "dead_not_heard_once": sorted(n for n in unsuccessful | died.keys() if died[n] != 1 or n not in unsuccessful),
        "dead_not_warned_once": sorted(n for n in unsuccessful | warned.keys() if warned[n] != 1),
        "wrong_result": [n for n, do in sent.items() if n in results and results[n] not in RESULTS[do]],
        "refused": [line for line in workers if line["event"] == "refused"],
        "minutes_without_notify": [_clock(minute) for minute in expected if minute not in minutes],
    }
    return Verdict(
        {
            "seconds": round(ended - began),
            "sent": len(sent),
            "sent_by_pg_cron": len(ticks),
            "processed": dict(Counter(results.values())),
            "lock_expired_before_its_worker_said_so": _expired_early(archive, workers),
            "workers_that_died_with_a_lock": sum(sent.get(number) == "die" for number in locked),
            "not_locked": sum(line["event"] == "not locked" for line in workers),
            "notified_again_at": [_clock(minute) for minute in minutes if minute in expected],
            "minutes": f"{len(set(expected) & set(minutes))} of {len(expected)}",
            "jobs": [f"{name} {status}: {count}" for name, status, count in jobs],
            **faults,
        },
        any(faults.values()),
    )


RESULTS = {
    "work": {"success", "lock_expired"},
    "break": {"failed", "lock_expired"},
    "garbage": {"rejected", "lock_expired"},
    "dawdle": {"lock_expired"},
    "die": {"lock_expired"},
}


def _expired_early(archive: list[tuple[Any, ...]], lines: list[dict[str, Any]]) -> int:
    """Messages that the sweep, or a later lock, ended with their lock."""
    names = {f"worker-{line['process']}" for line in lines}
    return sum(result == "lock_expired" and handled_by not in names for _, result, handled_by in archive)


def _clock(minute: int) -> str:
    return f"{minute // 60 % 24:02}:{minute % 60:02}"


def _read(out: Path, name: str) -> list[dict[str, Any]]:
    path = out / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
