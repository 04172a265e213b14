"""What the HTTP server needs of uvicorn below ASGI: a version that changes it fails here, and names what changed."""

from __future__ import annotations

import ast
import inspect

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.architecture.sources import PACKAGE, python_files, shown, tree

SEAM = ("connection.py", "server.py")
CALLBACKS = ("on_message_begin", "on_headers_complete", "on_body", "on_message_complete")
TRANSPORT_CALLBACKS = ("connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing")


def test_the_protocol_takes_the_state_that_its_requests_carry() -> None:
    parameters = list(inspect.signature(HttpToolsProtocol).parameters)
    assert parameters[:4] == ["config", "server_state", "app_state", "_loop"]


def test_the_protocol_has_the_callbacks_of_parser_and_transport() -> None:
    for name in (*CALLBACKS, *TRANSPORT_CALLBACKS, "shutdown"):
        assert name in vars(HttpToolsProtocol), f"uvicorn {uvicorn.__version__} has no {name}"


def test_the_server_state_has_connections_tasks_and_headers() -> None:
    assert {"connections", "tasks", "default_headers"} <= set(vars(ServerState()))


def test_only_the_seam_imports_uvicorn() -> None:
    users = {
        path.name
        for path in python_files("src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(name.partition(".")[0] == "uvicorn" for name in _modules(node))
    }
    assert users == set(SEAM), f"uvicorn is imported in {sorted(users)} of {shown(PACKAGE)}"


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
