"""How the tests start Java, in whatever process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Most live for seconds, in which compiling well costs more than it gains, and so does a collector with threads of its
# own; nobody looks at their counters. With one tier Java reserves 48 MB for compiled code, which the queries of a whole
# test run fill.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
SILENT = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
# Made by `make test`.
CLASS_DATA = Path(sys.prefix) / "spark.jsa"


def set_up() -> None:
    data = (f"-XX:SharedArchiveFile={CLASS_DATA}", *SILENT) if CLASS_DATA.exists() else ()
    os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join((*OPTIONS, *data)))
