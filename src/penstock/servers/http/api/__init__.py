"""The HTTP API: a module for each noun, and the OpenAPI document made from them."""

from penstock.servers.http.api import (
    batches,
    consumers,
    dead_letters,
    deliveries,
    messages,
    openapi,
    pipeline,
    queues,
    schedules,
)
from penstock.servers.http.api.operations import OPERATIONS
from penstock.servers.http.router import Route

# Importing them has filled the table.
MODULES = (queues, messages, deliveries, dead_letters, batches, consumers, schedules, pipeline)
ROUTES: list[Route] = [*OPERATIONS, openapi.DOCUMENT_ROUTE]

__all__ = ["MODULES", "ROUTES"]
