"""What a person sees who types the README's session into redis-cli."""

from __future__ import annotations

import re
import subprocess

from tests.servers.clients.client_programs import need
from tests.servers.clients.processes import PenstockServer

ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
STATUS = """\
1) 1) "foo"
   2) 1) "cool-kids"
      2)  1) "total"
          2) (integer) 2
          3) "inprogress"
          4) (integer) 1
          5) "redo"
          6) (integer) 0
          7) "done"
          8) (integer) 1
          9) "available"
         10) (integer) 0
         11) "consumers"
         12) (integer) 0
"""


def shown(server: PenstockServer, *words: str) -> str:
    need("redis-cli", "Debian: apt-get install redis-tools")
    done = subprocess.run(
        ["redis-cli", "--no-raw", "-p", str(server.port), *words], capture_output=True, text=True, timeout=60
    )
    return done.stdout


def test_the_session_of_the_readme(server: PenstockServer) -> None:
    assert shown(server, "QGET", "foo", "cool-kids") == "(nil)\n"
    assert re.fullmatch(f'"{ID}"\n', shown(server, "QADD", "foo", "60", "event contents to be consumed"))
    assert shown(server, "QADD", "foo", "60", "another", "NOBLOCK") == "OK\n"
    taken = shown(server, "QGET", "foo", "cool-kids")
    found = re.fullmatch(f'1\\) "({ID})"\n2\\) "event contents to be consumed"\n', taken)
    assert found is not None, taken
    assert shown(server, "QACK", "foo", "cool-kids", found[1]) == "(integer) 1\n"
    assert shown(server, "QACK", "foo", "cool-kids", found[1]) == "(integer) 0\n"
    assert shown(server, "QNOTIFY", "cool-kids", "5", "foo") == '"foo"\n'
    assert shown(server, "QGET", "foo", "cool-kids").endswith('2) "another"\n')
    assert shown(server, "QSTATUS", "foo") == STATUS
    line = "foo cool-kids total:2 inprogress:1 redo:0 done:1 available:0 consumers:0"
    assert re.sub(" +", " ", shown(server, "QINFO", "foo")) == f'1) "{line}"\n'
    assert shown(server, "QFLUSH", "foo") == "OK\n"
    assert shown(server, "QGET", "foo", "cool-kids") == "(nil)\n"
    assert shown(server, "QADD", "foo").startswith("(error) ERR wrong number of arguments")


def test_redis_cli_offers_help_for_the_commands(server: PenstockServer) -> None:
    """It asks the server for its documentation when it is used by hand."""
    need("redis-cli", "Debian: apt-get install redis-tools")
    done = subprocess.run(
        ["redis-cli", "-p", str(server.port)],
        input="HELP QADD\nHELP XADD\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    shown_help = re.sub("\x1b\\[[0-9;]*m", "", done.stdout.lower())
    assert "qadd queue" in shown_help
    assert "xadd key" in shown_help
    assert "summary:" in shown_help
