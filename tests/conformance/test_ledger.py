"""The ledger: entries of the pipeline in the store, changed atomically."""

from __future__ import annotations

from penstock import Store
from tests.conformance.clients import Opener


def test_entries_are_found_by_kind_and_by_how_their_keys_begin(store: Store) -> None:
    assert store.engine.record("sink", {"q1/1": "1", "q1/2": '{"n":2}', "q2/1": "3", "q%/1": "4"})
    assert store.engine.record("lake", {"q1/1": "other"})
    assert store.engine.ledger("sink", "q1/") == {"q1/1": "1", "q1/2": '{"n":2}'}
    assert store.engine.ledger("sink", "q%") == {"q%/1": "4"}
    assert store.engine.ledger("lake") == {"q1/1": "other"}
    assert store.engine.ledger("nothing") == {}


def test_an_entry_is_replaced_or_removed(store: Store) -> None:
    engine = store.engine
    engine.record("lake", {"a": "1", "b": "2"})
    assert engine.record("lake", {"a": "3"}, ["b", "never there"])
    assert engine.ledger("lake") == {"a": "3"}


def test_nothing_changes_unless_everything_is_as_expected(store: Store) -> None:
    engine = store.engine
    engine.record("lake", {"a": "1"})
    assert not engine.record("lake", {"a": "2", "b": "2"}, ["a"], {"a": "0"})
    assert not engine.record("lake", {"b": "2"}, (), {"a": "1", "c": "1"})
    assert not engine.record("lake", {"b": "2"}, (), {"a": None})
    assert engine.ledger("lake") == {"a": "1"}
    assert engine.record("lake", {"a": "2", "b": "2"}, (), {"a": "1", "b": None})
    assert engine.ledger("lake") == {"a": "2", "b": "2"}


def test_the_ledger_is_there_for_other_processes_and_stays_when_a_queue_is_flushed(
    store: Store, open_store: Opener
) -> None:
    queue = store.queue("orders")
    queue.send(1)
    store.engine.record("lake", {"orders": "{}"})
    queue.flush()
    assert open_store().engine.ledger("lake") == {"orders": "{}"}
