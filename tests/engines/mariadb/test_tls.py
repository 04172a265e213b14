"""A server that takes encrypted connections only, with a certificate made for the test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.engines.mariadb.server import IS_MYSQL, USER, MariadbServer
from tests.ports import LOOPBACK, free_port
from tests.servers.clients.test_tls import Authority


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    with tempfile.TemporaryDirectory(prefix="penstock-maria-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "trusted")


@pytest.fixture(scope="module")
def address(folder: Path, authority: Authority) -> Iterator[str]:
    certificate, key = authority.issue("server")
    key.chmod(0o644)
    settings = {"ssl_cert": str(certificate), "ssl_key": str(key), "require_secure_transport": "ON"}
    port = free_port()
    server = MariadbServer(folder / "server", settings=settings, port=port)
    admin = server.connect()
    admin.query("create database app")
    if IS_MYSQL:
        admin.query(f"create user {USER}@{LOOPBACK}")
        admin.query(f"grant all on app.* to {USER}@{LOOPBACK}")
    admin.close()
    yield f"mariadb://{USER}@{LOOPBACK}:{port}/app"
    server.remove()


def test_a_server_that_is_trusted_is_used_over_tls(address: str, authority: Authority) -> None:
    with penstock.connect(f"{address}?ssl_ca={authority.certificate}&ssl_verify=1") as store:
        store.migrate()
        queue = store.queue("orders")
        queue.send(b"1")
        assert [one.payload for one in queue.receive()] == [b"1"]


def test_a_server_that_is_not_trusted_is_refused(address: str, folder: Path) -> None:
    other = Authority(folder / "other")
    with (
        penstock.connect(f"{address}?ssl_ca={other.certificate}&ssl_verify=1") as store,
        pytest.raises(penstock.StoreUnavailable, match=r"cannot be reached: .*certificate"),
    ):
        store.queue("orders").send(b"1")


@pytest.mark.parametrize("name", ["ssl_ca", "ssl_cert", "ssl_key"])
def test_a_missing_certificate_file_is_named(name: str) -> None:
    with pytest.raises(penstock.InvalidUrl, match=rf"{name} names no file that can be read: '/nowhere/ca.pem'"):
        penstock.connect(f"mariadb://localhost/app?{name}=/nowhere/ca.pem")
