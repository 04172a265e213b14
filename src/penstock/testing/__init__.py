"""For tests of programs that use Penstock: a store in memory, a clock that is moved by hand, and a way to run
everything that is due. The store is the real engine, not an imitation. As pytest fixtures: `penstock_store`,
`penstock_clock`, `penstock_run`.
"""

from penstock.testing.clock import Clock
from penstock.testing.running import Handled, memory_store, run_due

__all__ = ["Clock", "Handled", "memory_store", "run_due"]
