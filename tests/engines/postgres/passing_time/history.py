"""How long finished messages stay in the queue of these tests."""

HISTORY = 1000
