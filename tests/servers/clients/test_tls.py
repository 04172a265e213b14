"""TLS, with certificates made for the test: who does not trust them, or speaks in the clear, gets nowhere."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.ports import LOOPBACK
from tests.servers.clients.processes import PenstockServer

ONCE = Retry(NoBackoff(), 0)
# OpenSSL's own words for "no older than TLS 1.1".
OLD = ["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"]


class Authority:
    """Makes certificates that its clients trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.certificate = folder / "authority.crt"
        self._key = folder / "authority.key"
        _openssl("req", "-x509", *_new_key(self._key), "-out", self.certificate, "-subj", "/CN=test", "-days", "2")

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate for this machine, and its key."""
        request, certificate, key = (self.folder / f"{name}.{kind}" for kind in ("csr", "crt", "key"))
        extension = self.folder / f"{name}.ext"
        extension.write_text(f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n", encoding="ascii")
        _openssl("req", *_new_key(key), "-out", request, "-subj", f"/CN={name}")
        signed: list[str | Path] = [
            "-CA",
            self.certificate,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            extension,
        ]
        _openssl("x509", "-req", "-in", request, "-out", certificate, *signed)
        return certificate, key


def _new_key(path: Path) -> list[str | Path]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path]


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return Authority(tmp_path_factory.mktemp("tls") / "trusted")


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    yield from _serving(authority, tmp_path_factory.mktemp("server"))


def _serving(authority: Authority, folder: Path, *words: str) -> Iterator[PenstockServer]:
    certificate, key = authority.issue("server")
    server = PenstockServer(folder, "--resp-tls-certificate", str(certificate), "--resp-tls-key", str(key), *words)
    with server:
        yield server.start(answers=lambda: "redis" in server.said())


def connect(server: PenstockServer, authority: Authority, **options: Any) -> redis.Redis:
    return redis.Redis(
        host=LOOPBACK,
        port=server.port,
        ssl=True,
        ssl_ca_certs=str(authority.certificate),
        decode_responses=True,
        retry=ONCE,
        **options,
    )


def test_redis_py_speaks_tls(server: PenstockServer, authority: Authority) -> None:
    with connect(server, authority) as client:
        added = client.execute_command("QADD", "q", 60, "x" * 100_000)
        assert client.execute_command("QGET", "q", "g") == [added, "x" * 100_000]
        client.xgroup_create("s", "g", mkstream=True)
        entry = client.xadd("s", {"a": "1"})
        assert client.xreadgroup("g", "c", {"s": ">"}) in (
            [["s", [(entry, {"a": "1"})]]],
            {"s": [[(entry, {"a": "1"})]]},
        )


def test_a_wait_over_tls_is_woken(server: PenstockServer, authority: Authority) -> None:
    with connect(server, authority) as waiting, connect(server, authority) as sending:
        pipe = waiting.connection_pool.get_connection()
        pipe.send_command("QNOTIFY", "g", 20, "awaited")
        added = sending.execute_command("QADD", "awaited", 60, "x")
        assert added
        assert pipe.read_response() == "awaited"
        pipe.disconnect()


def test_redis_cli_speaks_tls(server: PenstockServer, authority: Authority) -> None:
    trusting = ["redis-cli", "-p", str(server.port), "--tls", "--cacert", str(authority.certificate)]
    done = subprocess.run([*trusting, "PING"], capture_output=True, text=True, timeout=60)
    if "Unrecognized option" in done.stderr:
        pytest.skip("this redis-cli was made without TLS")
    assert done.stdout == "PONG\n", done.stderr


def test_who_does_not_trust_the_certificate_is_not_served(
    server: PenstockServer, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger")
    with connect(server, stranger) as client, pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        client.ping()


def test_nothing_is_said_in_the_clear(server: PenstockServer) -> None:
    clear = redis.Redis(host=LOOPBACK, port=server.port, retry=ONCE, socket_timeout=60)
    with clear as client, pytest.raises(redis.RedisError):
        client.ping()
    assert server.is_alive()


def test_old_versions_of_tls_are_refused(server: PenstockServer, authority: Authority) -> None:
    words = ["openssl", "s_client", "-connect", f"{LOOPBACK}:{server.port}", "-CAfile", str(authority.certificate)]
    for version, is_right in ((["-tls1_2"], True), (OLD, False)):
        done = subprocess.run([*words, *version], input="PING\r\n", capture_output=True, text=True, timeout=60)
        assert ("Cipher is (NONE)" not in done.stdout) is is_right, done.stdout + done.stderr


def test_clients_may_have_to_show_a_certificate(authority: Authority, tmp_path: Path) -> None:
    for server in _serving(authority, tmp_path, "--resp-tls-client-authority", str(authority.certificate)):
        certificate, key = authority.issue("client")
        with connect(server, authority, ssl_certfile=str(certificate), ssl_keyfile=str(key)) as client:
            assert client.ping()
        with connect(server, authority) as client, pytest.raises(redis.ConnectionError):
            client.ping()
