"""`penstock serve`: both doors of one store, its settings, and its end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from penstock import AsyncStore
from penstock.domain.errors import InvalidInput
from penstock.servers import service
from penstock.servers.access import Users, hash_token, make_token
from penstock.servers.service import Listeners, ServerSettings, check_exposure, http_users_of
from penstock.settings import HttpSettings, RespSettings, UserSettings, load_server
from tests.cli.cli_runner import Cli
from tests.servers.clients.wire import Wire
from tests.servers.hashes import older_hash
from tests.servers.http.processes import HttpServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    return Cli(tmp_path)


def until(holds: Callable[[], bool]) -> None:
    gives_up_at = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < gives_up_at
        time.sleep(0.02)


def test_both_doors_lead_to_one_store(tmp_path: Path) -> None:
    with HttpServer(tmp_path) as server:
        server.start()
        with Wire(server.port) as wire, httpx.Client(base_url=server.http_url, timeout=60) as http:
            sent = http.post("/api/v1/queues/orders/messages", json={"payload": 7}).json()["id"]
            assert wire.call("QGET", "orders", "default") == [sent.encode(), b"7"]
            assert http.get("/api/v1/queues/orders/stats").json()["groups"]["default"]["in_progress"] == 1
            assert wire.call("QACK", "orders", "default", sent) == 1
            assert http.get("/api/v1/queues/orders/stats").json()["groups"]["default"]["done"] == 1
            # The sweep of the server fires schedules for this http too.
            rule = {"cron": "* * * * * *", "queue": "ticks", "payload": "tick"}
            assert http.put("/api/v1/schedules/s", json=rule).status_code == 200
            until(lambda: http.get("/api/v1/queues/ticks").status_code == 200)
            got = http.post("/api/v1/queues/ticks/receive", json={"wait_seconds": 30}, timeout=60).json()
            assert got["deliveries"][0]["payload"] == "tick"
            assert "text/html" in http.get("/", headers={"accept": "text/html"}).headers["content-type"]
        assert server.stop() == 0
        assert f"http://127.0.0.1:{server.http_port}" in server.said()


def test_users_of_the_file_are_those_of_both_doors_and_are_read_anew(tmp_path: Path) -> None:
    token = make_token()
    config = tmp_path / "penstock.toml"
    table = '[users.ann]\nrole = "{role}"\npassword_hash = "' + older_hash("pw") + '"\n'
    table += f'token_hash = "{hash_token(token)}"\n'
    config.write_text(table.replace("{role}", "observer"))
    with HttpServer(tmp_path, "--config", str(config)) as server:
        server.start()
        headers = {"authorization": f"Bearer {token}"}
        with Wire(server.port) as wire, httpx.Client(base_url=server.http_url, headers=headers, timeout=60) as http:
            assert httpx.get(f"{server.http_url}/api/v1/me", timeout=60).status_code == 401
            assert http.get("/api/v1/me").json()["role"] == "observer"
            assert wire.call("AUTH", "ann", token) == b"OK"
            assert http.post("/api/v1/queues/q/messages", json={"payload": 1}).status_code == 403
            config.write_text(table.replace("{role}", "operator"))
            os.kill(server.pid, signal.SIGHUP)
            until(lambda: http.get("/api/v1/me").json()["role"] == "operator")
            assert http.post("/api/v1/queues/q/messages", json={"payload": 1}).status_code == 201
        said = server.said()
        assert token not in said
        assert "scrypt$" not in said


def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(words, check=True, capture_output=True)
    environment = {"PENSTOCK_HTTP_TLS_CERTIFICATE": str(certificate), "PENSTOCK_HTTP_TLS_KEY": str(key)}
    with HttpServer(tmp_path, environment=environment, scheme="https") as server:
        server.start()
        trusting = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(f"{server.http_url}/healthz", verify=trusting, timeout=60)
        assert answer.headers["strict-transport-security"].startswith("max-age=")
        with socket.create_connection(("127.0.0.1", server.http_port)) as link:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" not in link.recv(1000), "no plain text where TLS is asked for"


def test_a_store_is_not_served_to_a_network_by_mistake(tmp_path: Path) -> None:
    done = serve(tmp_path, "--http-host", "0.0.0.0")
    assert done.returncode != 0
    for word in ("0.0.0.0", "http.token", "127.0.0.1"):
        assert word in done.stderr


def serve(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected to refuse to start."""
    program = "import sys; from penstock.cli import main; sys.exit(main())"
    settings = {**os.environ, "PENSTOCK_URL": f"sqlite:///{folder}/store.db", "PENSTOCK_RESP_PORT": "0"}
    return subprocess.run(
        [sys.executable, "-c", program, "serve", *words], capture_output=True, text=True, timeout=60, env=settings
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_login(host: str) -> None:
    check_exposure(HttpSettings(host=host), Users(http_users_of(ServerSettings(RespSettings(), HttpSettings()))))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com", ""])
def test_everything_else_does(host: str) -> None:
    nobody, guarded = HttpSettings(host=host), HttpSettings(host=host, token="0123456789abcdef")
    with pytest.raises(InvalidInput, match="without a login"):
        check_exposure(nobody, Users(http_users_of(ServerSettings(RespSettings(), nobody))))
    check_exposure(guarded, Users(http_users_of(ServerSettings(RespSettings(), guarded))))


def test_a_store_that_is_guarded_at_one_door_is_not_open_at_the_other() -> None:
    told = UserSettings(role="observer", token_hash=hash_token("0123456789abcdef"))
    for resp in (RespSettings(password="secret"), RespSettings(users={"ann": told})):
        assert Users(http_users_of(ServerSettings(resp, HttpSettings()))).need_password
    own = ServerSettings(RespSettings(password="secret"), HttpSettings(users={"ann": told}))
    assert [user.name for user in http_users_of(own)] == ["ann"]
    with pytest.raises(InvalidInput, match="16 or more"):
        http_users_of(ServerSettings(RespSettings(), HttpSettings(token="short")))


def test_a_port_that_was_chosen_must_be_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = serve(tmp_path, "--http-port", str(taken.getsockname()[1]))
    assert done.returncode != 0
    assert "cannot listen on 127.0.0.1" in done.stderr


async def test_a_port_that_nobody_chose_is_waited_for(store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(service, "DEFAULT_HTTP_PORT", port)
        monkeypatch.setattr(service, "PORT_SECONDS", 0.01)
        http = await Listeners(ServerSettings(RespSettings(), HttpSettings(port=port))).open_http(store)
        assert http.port is None
    async with asyncio.timeout(60):
        while http.port is None:
            await asyncio.sleep(0.01)
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
    await http.end()


def test_settings_come_from_flag_environment_and_file(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[users.ann]\nrole = "admin"\n[http]\nport = 1\nhost = "::1"\nbody_bytes = 5\n')
    environment = {"PENSTOCK_HTTP_PORT": "2", "PENSTOCK_HTTP_HOST": "127.0.0.2"}
    loaded = load_server(HttpSettings, {"port": "3"}, str(config), environment)
    assert (loaded.port, loaded.host, loaded.body_bytes) == (3, "127.0.0.2", 5)
    assert loaded.users["ann"].role == "admin"
    config.write_text("[http]\nprot = 1\n")
    with pytest.raises(InvalidInput, match=r"unknown setting http\.prot; did you mean 'port'"):
        load_server(HttpSettings, {}, str(config), {})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"port": "x"}, "--resp-port must be a whole number between 0 and 65535, not 'x'"),
        ({"port": "70000"}, "--resp-port must be a whole number between 0 and 65535, not '70000'"),
        ({"clients_per_user": "-1"}, "--resp-clients-per-user must be a whole number of at least 0, not '-1'"),
        ({"sweep_seconds": "0"}, "--resp-sweep-seconds must be a number above 0, not 0.0"),
    ],
)
def test_a_wrong_setting_is_told_with_its_value_and_what_it_may_be(values: dict[str, str | None], told: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)):
        load_server(RespSettings, values, None, {})


def test_a_wrong_setting_is_told_with_the_place_it_came_from(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="PENSTOCK_HTTP_ENABLED must be true or false, not 'perhaps'"):
        load_server(HttpSettings, {}, None, {"PENSTOCK_HTTP_ENABLED": "perhaps"})
    config = tmp_path / "penstock.toml"
    config.write_text("[http]\npassword = 170417\n")
    with pytest.raises(InvalidInput, match=re.escape(f"{config}: http.password must be text")) as caught:
        load_server(HttpSettings, {}, str(config), {})
    assert "170417" not in str(caught.value)
    config.write_text("[http.users.ann]\nrules = 1\n")
    with pytest.raises(InvalidInput, match=r"http\.users: .*rules"):
        load_server(HttpSettings, {}, str(config), {})


def test_the_example_file_is_what_it_says(cli: Cli, tmp_path: Path) -> None:
    text = cli.bare("serve", "--example-config").stdout
    (tmp_path / "example.toml").write_text(text)
    assert load_server(HttpSettings, {}, str(tmp_path / "example.toml"), {}) == HttpSettings()
    assert load_server(RespSettings, {}, str(tmp_path / "example.toml"), {}) == RespSettings()


def test_a_token_is_made(cli: Cli) -> None:
    lines = dict(line.split(" = ") for line in cli.bare("serve", "--make-token").stdout.splitlines() if " = " in line)
    assert hash_token(lines["token"].strip('"')) == lines["token_hash"].strip('"')
