"""The API for programs: a module for each noun, and the document that describes them all."""

from penstock.servers.http.api import (
    batches,
    consumers,
    dead_letters,
    looking,
    openapi,
    pipeline,
    queues,
    receiving,
    schedules,
    sending,
)
from penstock.servers.http.api.operations import OPERATIONS
from penstock.servers.http.routing import Route

# Importing them has filled the table.
MODULES = (queues, sending, receiving, looking, dead_letters, batches, consumers, schedules, pipeline)
ROUTES: list[Route] = [*OPERATIONS, openapi.DOCUMENT_ROUTE]

__all__ = ["MODULES", "ROUTES"]
