"""`python -m scripts.campaign run KIND FIRST LAST FOLDER`: many seeds of `penstock chaos`.

What each seed found is written to FOLDER; a seed that is there already is not run again. Histories of runs that were
not ok are kept. `python -m scripts.campaign table FOLDER` prints the table of all runs in a folder, as docs/promises.md
has it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.chaos.plan import SERVERS

Document = dict[str, Any]
# Beyond the seconds that it is to disturb: starting, the restore, draining and judging, on a busy machine.
SPARE_SECONDS = 1800
ROWS = {
    "acknowledged sends": "sends",
    "deliveries": "deliveries",
    "settlements": "settlements",
    "refused settlements": "refused settlements",
    "lost replies": "lost replies",
    "dead letters at the end": "dead letters",
    "kills": "fault kill",
    "polite stops": "fault stop",
    "freezes": "fault freeze",
    "times that connections were cut": "fault cut",
    "restarts of `penstock serve`": "fault serve",
    "crashes of the server": "fault server",
    "restores": "fault restore",
}


def main() -> int:
    given = _arguments()
    failed = False
    if given.command == "run":
        given.folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(given.at_once) as pool:
            seeds = range(given.first, given.last + 1)
            verdicts = pool.map(lambda seed: play(given.kind, seed, given.seconds, given.folder), seeds)
            failed = any([verdict != "ok" for verdict in verdicts])
    runs = read(given.folder)
    if not runs:
        raise SystemExit(f"{given.folder} has no results of runs: name a folder that `run` has written to")
    print(table(runs))
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.campaign", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run many seeds, and print the table")
    run.add_argument("kind", choices=SERVERS, help="the store, as for `penstock chaos --server`")
    run.add_argument("first", type=int, help="the first seed")
    run.add_argument("last", type=int, help="the last seed")
    run.add_argument("folder", type=Path, help="where the results go")
    run.add_argument("--at-once", type=int, default=2, help="runs at a time (default 2)")
    run.add_argument("--seconds", type=int, default=60, help="length of the faults of a run (default 60)")
    show = commands.add_parser("table", help="print the table of all runs in a folder")
    show.add_argument("folder", type=Path, help="where the results are")
    return parser.parse_args()


def play(kind: str, seed: int, seconds: int, folder: Path) -> str:
    """One run; its verdict. A run that ended without a word is `crashed`."""
    found = folder / f"{kind}-{seed}.json"
    if not found.exists():
        histories = folder / f"{kind}-{seed}"
        words = [sys.executable, "-m", "penstock", "chaos", "--json", "--server", kind, "--seconds", str(seconds)]
        words += ["--seed", str(seed), "--keep", str(histories)]
        with (folder / f"{kind}-{seed}.log").open("wb") as log:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, timeout=seconds + SPARE_SECONDS
            )
        found.write_bytes(done.stdout if done.stdout.strip() else json.dumps({"verdict": "crashed"}).encode())
        if json.loads(found.read_text())["verdict"] == "ok":
            shutil.rmtree(histories, ignore_errors=True)
    document = json.loads(found.read_text())
    laws = sorted({one["law"] for one in document.get("violations", ())})
    print(f"{kind} {seed}: {document['verdict']}", *laws, *document.get("problems", ()), sep="\n  ", flush=True)
    return str(document["verdict"])


def read(folder: Path) -> dict[str, dict[int, Document]]:
    """The runs by kind and seed."""
    found: dict[str, dict[int, Document]] = defaultdict(dict)
    for path in sorted(folder.glob("*-*.json")):
        kind, _, seed = path.stem.rpartition("-")
        found[kind][int(seed)] = json.loads(path.read_text())
    return found


def table(runs: dict[str, dict[int, Document]]) -> str:
    """Counts of the runs that were ok; the others are named."""
    good = {kind: {seed: one for seed, one in of.items() if one["verdict"] == "ok"} for kind, of in runs.items()}
    lines = [["", *(f"`{kind}`" for kind in good)], ["---"] * (len(good) + 1)]
    lines.append(["runs", *(str(len(of)) for of in runs.values())])
    lines.append(["without a violation", *(str(len(of)) for of in good.values())])
    lines.append(["seeds", *(ranges(sorted(of)) for of in good.values())])
    for label, name in ROWS.items():
        lines.append([label, *(f"{sum(one['counts'].get(name, 0) for one in of.values()):,}" for of in good.values())])
    others = [
        f"{kind} {seed}: {one['verdict']}"
        for kind, of in runs.items()
        for seed, one in of.items()
        if one["verdict"] != "ok"
    ]
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), *others])


def ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in parts)


if __name__ == "__main__":
    sys.exit(main())
