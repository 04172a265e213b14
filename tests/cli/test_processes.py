"""The program as the shell runs it: real processes, pipes and terminals."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "penstock.cli"]


def environment(folder: Path) -> dict[str, str]:
    """As in a shell of its own: the width of the screen that the tests run on is none of its business."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    return {**inherited, "PENSTOCK_URL": f"sqlite:///{folder}/store.db"}


def run(folder: Path, *words: str, input: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=folder,
        env=environment(folder),
        input=input,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_one_process_sends_another_receives_a_third_settles(tmp_path: Path) -> None:
    sent = run(tmp_path, "send", "orders", "-", "--bytes", input=b"\x00\xff\n")
    assert sent.returncode == 0, sent.stderr
    received = run(tmp_path, "receive", "orders", "--json")
    (delivery,) = json.loads(received.stdout)
    assert delivery["id"] == sent.stdout.decode().strip()
    settled = run(tmp_path, "ack", "orders", delivery["id"], "--token", str(delivery["token"]))
    assert (settled.returncode, settled.stderr) == (0, b"")
    status = json.loads(run(tmp_path, "status", "--json").stdout)
    assert status[0]["done"] == 1


def test_piped_tables_have_whole_rows(tmp_path: Path) -> None:
    payload = json.dumps("x" * 90)
    sent = run(tmp_path, "send", "orders", payload)
    lines = run(tmp_path, "peek", "orders").stdout.decode().splitlines()
    assert any(sent.stdout.decode().strip() in line and payload in line for line in lines)


def test_a_terminal_that_knows_only_ascii_gets_an_answer(tmp_path: Path) -> None:
    run(tmp_path, "send", "日本", "1")
    shown = subprocess.run(
        [*PROGRAM, "status"],
        env={**environment(tmp_path), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert rb"\u65e5\u672c" in shown.stdout


def test_an_error_has_no_traceback_and_no_colour_in_a_pipe(tmp_path: Path) -> None:
    failed = run(tmp_path, "status")
    assert failed.returncode == 1
    assert failed.stderr.startswith(b"Error: there is no store at")
    assert failed.stderr.count(b"\n") == 1


def test_a_reader_that_goes_away_early_is_no_traceback(tmp_path: Path) -> None:
    run(tmp_path, "send", "orders", "--lines", input=b'{"some": "payload"}\n' * 5000)
    process = subprocess.Popen(
        [*PROGRAM, "peek", "orders", "--limit", "5000"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert b"Traceback" not in errors


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 1), (b"y\n", 0)])
def test_flush_asks_a_person(tmp_path: Path, answer: bytes, left: int) -> None:
    run(tmp_path, "send", "orders", "1")
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "flush", "orders"], env=environment(tmp_path), stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    shown = read_until(parent, b"for good? [y/N]")
    assert b"Remove everything in queue 'orders'" in shown
    os.write(parent, answer)
    assert process.wait(60) == (0 if left == 0 else 1)
    os.close(parent)
    assert len(json.loads(run(tmp_path, "peek", "orders", "--json").stdout)) == left


def read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"only saw {shown!r}"
        shown += os.read(terminal, 4096)
    return shown
