"""Django with PostgreSQL and its default settings: its cursors bind on the client, and its adapters are its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import IntegrityError, connection, models, transaction
from psycopg.conninfo import conninfo_to_dict

import penstock
from penstock import DuplicateAddress, InvalidInput, Outgoing, Queue
from tests.conformance.assertions import payloads, take_all
from tests.engines.postgres.server import fresh_database

DATABASE = fresh_database()


def _database() -> dict[str, Any]:
    info = conninfo_to_dict(DATABASE)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": info["dbname"],
        "USER": info.get("user") or "",
        "PASSWORD": info.get("password") or "",
        "HOST": info.get("host") or "",
        "PORT": info.get("port") or "",
    }


settings.configure(DATABASES={"default": _database()}, USE_TZ=True)
django.setup()


class Invoice(models.Model):  # type: ignore[misc]  # Django has no types
    number = models.IntegerField(unique=True)
    details = models.JSONField(default=dict)

    class Meta:
        app_label = "shop"


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    with connection.schema_editor() as schema:
        schema.create_model(Invoice)
    yield
    connection.close()


@pytest.fixture
def queue() -> Iterator[Queue]:
    Invoice.objects.all().delete()
    with penstock.connect(DATABASE) as store:
        queue = store.queue("invoices")
        queue.flush()
        yield queue


def numbers() -> list[int]:
    return list(Invoice.objects.order_by("number").values_list("number", flat=True))


def test_the_connection_binds_on_the_client() -> None:
    """The differences from a default psycopg connection."""
    from psycopg import ClientCursor

    connection.ensure_connection()
    assert issubclass(connection.connection.cursor_factory, ClientCursor)


def test_a_send_commits_with_the_atomic_block(queue: Queue) -> None:
    with transaction.atomic():
        Invoice.objects.create(number=1, details={"lines": [1, 2]})
        queue.send({"invoice": 1}, transaction=connection)
        assert take_all(queue) == []
    assert payloads(take_all(queue)) == [{"invoice": 1}]
    assert numbers() == [1]


def test_a_send_is_gone_with_the_atomic_block(queue: Queue) -> None:
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        queue.send({"invoice": 1}, transaction=connection)
        Invoice.objects.create(number=1)
        raise ZeroDivisionError
    assert (take_all(queue), numbers()) == ([], [])


def test_a_send_is_gone_with_an_inner_block(queue: Queue) -> None:
    with transaction.atomic():
        queue.send("kept", transaction=connection)
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            queue.send("undone", transaction=connection)
            Invoice.objects.create(number=1)
            raise ZeroDivisionError
        queue.send_many(["also kept"], transaction=connection)
        Invoice.objects.create(number=2, details={"still": "json"})
    assert payloads(take_all(queue)) == ["kept", "also kept"]
    assert Invoice.objects.get().details == {"still": "json"}


def test_the_connection_of_the_driver_may_be_given_too(queue: Queue) -> None:
    with transaction.atomic():
        connection.ensure_connection()
        queue.send(1, transaction=connection.connection)
    assert payloads(take_all(queue)) == [1]


def test_without_an_atomic_block_the_send_commits_by_itself(queue: Queue) -> None:
    queue.send(1, transaction=connection)
    assert payloads(take_all(queue)) == [1]


def test_every_option_takes_part(queue: Queue) -> None:
    with transaction.atomic():
        ids = queue.send_many(
            [Outgoing(payload=b"raw", headers={"trace": "a1"}, priority=2), Outgoing(payload=None, address="desk")],
            transaction=connection,
        )
        with pytest.raises(DuplicateAddress):
            queue.send(2, address="desk", transaction=connection)
        Invoice.objects.create(number=7)
    assert [delivery.id for delivery in take_all(queue)] == [ids[1], ids[0]]
    assert numbers() == [7]


def test_a_block_that_has_failed_is_named(queue: Queue) -> None:
    with transaction.atomic():
        Invoice.objects.create(number=1)
        with contextlib.suppress(IntegrityError):
            Invoice.objects.create(number=1)
        with pytest.raises(InvalidInput, match="atomic block"):
            queue.send(1, transaction=connection)
    assert (take_all(queue), numbers()) == ([], [])
