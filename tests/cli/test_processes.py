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
    """The environment of a fresh shell, without the terminal width of the test run."""
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


def test_a_closed_pipe_causes_no_traceback(tmp_path: Path) -> None:
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
    assert b"Remove everything in queue 'orders' (group 'default': 1 live message, 0 dead letters)" in plain(shown)
    os.write(parent, answer)
    assert process.wait(60) == (0 if left == 0 else 1)
    os.close(parent)
    assert len(json.loads(run(tmp_path, "peek", "orders", "--json").stdout)) == left


def ask(tmp_path: Path, answer: bytes, *words: str) -> bytes:
    """Run a command at a pseudo-terminal and answer its question; returns the output."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *words], env=environment(tmp_path), stdin=child, stdout=child, stderr=subprocess.PIPE
    )
    os.close(child)
    assert process.stderr is not None
    asked = read_until(process.stderr.fileno(), b"[y/N]")
    os.write(parent, answer)
    process.communicate(timeout=60)
    os.close(parent)
    return plain(asked)


def plain(shown: bytes) -> bytes:
    """Remove the line breaks of the terminal."""
    return b" ".join(shown.split())


def test_a_shorter_retention_asks_a_person_with_the_count(tmp_path: Path) -> None:
    for number in range(3):
        run(tmp_path, "send", "orders", str(number))
        delivery = json.loads(run(tmp_path, "receive", "orders", "--json").stdout)[0]
        run(tmp_path, "reject", "orders", delivery["id"], "--token", str(delivery["token"]), "--reason", "no")
    words = ("queues", "declare", "orders", "dead_letter_seconds=0")
    assert b"3 dead letters of queue 'orders' would be removed for good sooner" in ask(tmp_path, b"n\n", *words)
    policy = json.loads(run(tmp_path, "queues", "policy", "orders", "--json").stdout)["policy"]
    assert policy["dead_letter_seconds"] > 0
    ask(tmp_path, b"y\n", *words)
    policy = json.loads(run(tmp_path, "queues", "policy", "orders", "--json").stdout)["policy"]
    assert policy["dead_letter_seconds"] == 0


def test_moving_a_group_asks_a_person_with_the_count(tmp_path: Path) -> None:
    run(tmp_path, "send", "orders", "1")
    run(tmp_path, "send", "orders", "2")
    asked = ask(tmp_path, b"n\n", "seek", "orders", "default", "end")
    assert b"would pass by 2 unread messages. Go on?" in asked
    assert len(json.loads(run(tmp_path, "peek", "orders", "--json", "--limit", "5").stdout)) == 2
    run(tmp_path, "seek", "orders", "default", "end")
    assert json.loads(run(tmp_path, "peek", "orders", "--json").stdout) == [], "a script is not asked"


def test_cancelling_a_batch_asks_a_person_with_the_count(tmp_path: Path) -> None:
    run(tmp_path, "send", "orders", "1", "--batch", "nightly")
    run(tmp_path, "send", "orders", "2", "--batch", "nightly")
    asked = ask(tmp_path, b"n\n", "batch", "cancel", "orders", "nightly")
    assert b"Cancel 2 messages of batch 'nightly'" in asked
    assert json.loads(run(tmp_path, "batch", "show", "orders", "nightly", "--json").stdout)["state"] == "open"
    ask(tmp_path, b"y\n", "batch", "cancel", "orders", "nightly")
    info = json.loads(run(tmp_path, "batch", "show", "orders", "nightly", "--json").stdout)
    assert (info["state"], info["cancelled"]) == ("cancelled", 2)


def read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"only saw {shown!r}"
        shown += os.read(terminal, 4096)
    return shown
