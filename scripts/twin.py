"""Write the asynchronous client from the synchronous one.

    python scripts/twin.py            writes src/penstock/client/aio/
    python scripts/twin.py --check    exits with 1 and a diff when a twin is stale

What differs by more than `async` and `await` (how calls reach the engine, the producer) is not here: it is written by
hand in both forms. A rule that no source needs any more is an error, so that the list stays true.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CLIENT = Path("src/penstock/client")
SOURCES = ("batch", "consumer", "delivery", "queue", "store")
TWINNED = "Batch|Consumer|Delivery|Executor|Producer|Queue|Store"

# Every method that waits: those of `Executor`, and those that call one.
WAITS = (
    "_ack_each|_bound|_open|_settle|_settle_one|_wait_for_end|ack_all|close|enter_slot|group_name|info|policy"
    "|read|receive|send|settle|wait|wait_until_ready|write"
)

# In this order, each as (pattern, replacement).
RULES = (
    # modules and names
    (rf"from penstock\.client\.(\w+) import (?=(?:{TWINNED})\n)", r"from penstock.client.aio.\1 import "),
    (rf"\b({TWINNED})\b", r"Async\1"),
    (r"`penstock\.connect\(", r"`penstock.connect_async("),
    (r"May be shared by threads.*?\"", r'Belongs to the event loop it was made in."'),
    (r"Made by `(?=penstock|store\.queue|queue\.register)", r"Made by `await "),
    # waiting
    (rf"(?<!await )\bself(?:\.queue|\._queue)?(?:\.executor)?\.(?:{WAITS})\(", r"await \g<0>"),
    (r"(?<!await )AsyncQueue\(self, \w+\)\.register\(", r"await \g<0>"),
    (r"def __enter__", r"async def __aenter__"),
    (r"__exit__", r"__aexit__"),
    (r"(@overload\n    )def", r"\1async def"),
    # the note in a source that points here
    (r"\n\nThe asynchronous twin .*?\n\"\"\"", r'"""'),
)  # fmt: skip

# From one `def` of a class to what comes after it.
METHOD = re.compile(r"^    def .*?(?=^    (?:def|async def|@|#)|^\S|\Z)", re.DOTALL | re.MULTILINE)


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 2
    stale = differences()
    for path, (text, difference) in stale.items():
        if check:
            print(difference)
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


def differences() -> dict[Path, tuple[str, str]]:
    """Stale twins: the expected text, and the difference."""
    stale = {}
    for path, text in twins().items():
        found = path.read_text() if path.exists() else ""
        if found != text:
            name = str(path.relative_to(ROOT))
            lines = difflib.unified_diff(
                found.splitlines(), text.splitlines(), name, f"{name}, written anew", lineterm=""
            )
            stale[path] = text, "\n".join(lines)
    return stale


def twins() -> dict[Path, str]:
    used: set[str] = set()
    written = {}
    for name in SOURCES:
        source = CLIENT / f"{name}.py"
        header = f"# Generated from {source.as_posix()} by scripts/twin.py: change that file and run the script.\n"
        text = header + asynchronous((ROOT / source).read_text(), used)
        written[ROOT / CLIENT / "aio" / f"{name}.py"] = formatted(text)
    unused = [pattern for pattern, _ in RULES if pattern not in used]
    if unused:
        raise SystemExit(f"these rules of scripts/twin.py match nothing any more: {unused}")
    return written


def asynchronous(text: str, used: set[str]) -> str:
    for pattern, replacement in RULES:
        text, count = re.subn(pattern, replacement, text, flags=re.DOTALL)
        if count:
            used.add(pattern)
    # A method that awaits is asynchronous.
    return METHOD.sub(
        lambda method: method[0].replace("def", "async def", 1) if "await " in method[0] else method[0], text
    )


def formatted(text: str) -> str:
    """Formatted, because longer names change line breaks."""
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(ROOT / CLIENT / "aio" / "twin.py"), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
