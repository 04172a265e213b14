"""What the doctor of every engine over positions checks: flaws of the store, and stalled work."""

from __future__ import annotations

from penstock.domain.results import Check
from penstock.engines import flaws, health
from penstock.engines.positional import counts, queues, repair
from penstock.engines.positional.database import Transaction


def checks(transaction: Transaction) -> list[Check]:
    found = [(queues.info(transaction, one), counts.stats(transaction, one.name)) for one in queues.every(transaction)]
    stalled = health.flow(lambda statement: transaction.rows(statement, {"now": transaction.now}), found)
    return [*flaws.checks(repair.find(transaction)), *stalled]
