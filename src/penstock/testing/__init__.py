"""Test support for programs that use Penstock: a store in memory, a clock under the test's control, and a runner for
everything that is due. The store is the real engine, not a mock. As pytest fixtures: `penstock_store`,
`penstock_clock`, `penstock_run`.
"""

from penstock.testing.clock import Clock
from penstock.testing.runner import Handled, memory_store, run_due

__all__ = ["Clock", "Handled", "memory_store", "run_due"]
