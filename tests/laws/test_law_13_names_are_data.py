"""Law 13: names and payloads are data, whatever is in them: never part of SQL text, HTML or a log format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock

HOSTILE = [
    "'; drop table penstock_log; --",
    '" or ""="',
    "$$ select 1 $$",
    "-- a comment",
    "/* half a comment",
    "a; b; c",
    "%s %d %n {0} {name} {{}}",
    "<script>alert('x')</script>",
    "&lt;&#39;",
    "\\x27\\0\\n",
    "../../etc/passwd",
    "$(rm -rf x) `id` ${HOME}",
    "名前 – ñ – 🐟",
    "\u202eright to left",
    "?1 :name @name $name",
    "NULL",
    "[bold red]markup[/]",
    " leading and trailing ",
    "x" * 255,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_law_13_hostile_text_is_kept_as_it_is_everywhere(tmp_path: Path, text: str) -> None:
    with penstock.connect(f"sqlite:///{tmp_path}/laws.db") as store:
        use_everywhere(store, text)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=60))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_law_13_any_text_is_kept_as_it_is_everywhere(text: str) -> None:
    with penstock.connect("sqlite:///:memory:") as store:
        use_everywhere(store, text)


def use_everywhere(store: penstock.Store, text: str) -> None:
    """Use the text as every name, payload, header and reason, and read it back through every call."""
    bystander = store.queue("bystander")
    bystander.send(b"untouched")
    queue = store.queue(text, primary_group=text)
    batch = queue.batch(text)
    batch.send(text.encode(), headers={text: text}, created_by=text, address=text, key=text)
    batch.start()
    queue.register(text)
    store.schedule(text, "0 0 1 1 *", text, {text: text})

    delivery = queue.receive(consumer=text)[0]
    assert delivery.payload.decode() == text
    assert delivery.headers == {text: text}
    assert {delivery.queue, delivery.group, delivery.consumer, delivery.address, delivery.key, delivery.batch} == {text}
    delivery.reject(text)

    assert queue.dead_letters()[0].reason == text
    assert queue.audit(delivery.id)[-1].by == text
    assert queue.batch(text).state == "finished"
    assert [one.name for one in store.consumers()] == [text]
    assert [one.name for one in store.schedules()] == [text]
    assert queue.groups() == [text]
    with pytest.raises(penstock.MessageFailed):
        queue.wait(text, timeout_seconds=0)
    assert sorted(info.name for info in store.queues()) == sorted({text, "bystander"})
    assert bystander.stats("default").available == 1
