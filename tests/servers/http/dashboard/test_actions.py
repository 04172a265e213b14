"""What can be done on the pages, done as a person does it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

import penstock
from penstock.domain.lifecycle import State
from tests.servers.http.dashboard.page_log import submit


def test_pause_and_resume(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"one")
    page.goto(f"/queues/{queue.name}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice")).to_contain_text("Paused")
    assert queue.policy().paused
    submit(page, page.get_by_role("button", name="Resume"))
    assert not queue.policy().paused


def test_send_a_message(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"first")
    page.goto(f"/queues/{queue.name}")
    page.get_by_role("link", name="Send a message").click()
    page.locator("[name=payload]").fill('{"amount": 12345678901234567891}')
    page.locator("[name=priority]").fill("3")
    page.locator("[name=address]").fill("invoice-17")
    page.locator("[name=headers]").fill("trace: 42\nby: me")
    page.get_by_role("button", name="Send", exact=True).click()
    page.wait_for_url(re.compile("/messages/"))
    sent = queue.find(page.locator("h1").inner_text())
    assert sent.payload == b'{"amount": 12345678901234567891}'
    assert (sent.priority, sent.address, sent.headers) == (3, "invoice-17", {"trace": "42", "by": "me"})
    assert sent.content_type == "application/json"


def test_a_wrong_message_is_refused_with_the_reason(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"first")
    page.goto(f"/queues/{queue.name}#send")
    page.locator("[name=payload]").fill('{"amount": }')
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("main")).to_contain_text("is not JSON")
    assert queue.stats(group="default").total == 1


def test_only_changed_policy_fields_are_set(page: Page, queue: penstock.Queue) -> None:
    queue.store.queue(queue.name, max_retries=3)
    page.goto(f"/queues/{queue.name}")
    # Somebody else changes another field meanwhile: it must stay.
    queue.store.queue(queue.name, shards=4)
    page.locator("[name=lease_seconds]").fill("45.5")
    page.locator("[name=max_retries]").fill("")
    submit(page, page.get_by_role("button", name="Save the policy"))
    policy = queue.policy()
    assert (policy.lease_seconds, policy.max_retries) == (45.5, None)
    assert policy.shards == 4
    page.locator("[name=lease_seconds]").fill("-1")
    submit(page, page.get_by_role("button", name="Save the policy"))
    expect(page.locator("main")).to_contain_text("lease_seconds must be more than 0 seconds")
    assert queue.policy().lease_seconds == 45.5


@pytest.fixture
def letters(queue: penstock.Queue) -> penstock.Queue:
    """Five letters of one fault, and two of another."""
    queue.send_many([{"n": number} for number in range(7)])
    for number, delivery in enumerate(queue.receive(limit=7)):
        delivery.reject(f"HTTP 503 after {number} ms" if number < 5 else f"no customer 'c{number}'")
    return queue


def test_a_shorter_retention_is_asked_for_with_its_count(page: Page, letters: penstock.Queue) -> None:
    page.goto(f"/queues/{letters.name}")
    page.locator("[name=dead_letter_seconds]").fill("0")
    submit(page, page.get_by_role("button", name="Save the policy"))
    question = page.locator("#question")
    expect(question).to_contain_text("7 dead letters are older than that")
    assert letters.policy().dead_letter_seconds > 0, "nothing has changed yet"
    submit(page, question.get_by_role("link", name="Leave it as it is"))
    letters.store.sweep()
    assert letters.stats(group="default").dead == 7
    page.locator("[name=dead_letter_seconds]").fill("0")
    submit(page, page.get_by_role("button", name="Save the policy"))
    submit(page, question.get_by_role("button", name="Change the policy"))
    expect(page.locator(".notice")).to_contain_text("dead_letter_seconds is now 0")
    letters.store.sweep()
    assert letters.stats(group="default").dead == 0


def test_a_longer_retention_is_not_asked_for(page: Page, letters: penstock.Queue) -> None:
    page.goto(f"/queues/{letters.name}")
    page.locator("[name=dead_letter_seconds]").fill("999999999")
    submit(page, page.get_by_role("button", name="Save the policy"))
    expect(page.locator(".notice")).to_contain_text("dead_letter_seconds is now 999999999")


def test_a_group_is_moved_after_a_question(page: Page, queue: penstock.Queue) -> None:
    queue.send_many([b"one", b"two", b"three"])
    queue.receive()[0].ack()
    page.goto(f"/queues/{queue.name}#care")
    move = page.get_by_role("button", name="Move…")
    move.click()
    assert page.locator("#question").count() == 0, "no target is chosen for anybody"
    page.locator("[name=target]").select_option("end")
    submit(page, move)
    question = page.locator("#question")
    expect(question).to_contain_text("2 messages that nobody has received in this group are passed by")
    assert queue.stats(group="default").available == 2
    submit(page, question.get_by_role("button", name="Move default"))
    expect(page.locator(".notice")).to_contain_text("now stands at position")
    assert queue.stats(group="default").available == 0
    page.goto(f"/queues/{queue.name}#care")
    page.locator("[name=target]").select_option("start")
    submit(page, move)
    expect(question).to_contain_text("3 messages that the group is done with are ready again")
    submit(page, question.get_by_role("link", name="Leave it where it is"))
    assert queue.stats(group="default").available == 0


def test_a_question_is_good_for_what_it_asked(page: Page, queue: penstock.Queue) -> None:
    """Who changes the answer on its way to another target is asked again."""
    queue.send_many([b"one", b"two"])
    page.goto(f"/queues/{queue.name}#care")
    page.locator("[name=target]").select_option("end")
    submit(page, page.get_by_role("button", name="Move…"))
    page.evaluate("document.querySelector('#question [name=target]').value = 'start'")
    submit(page, page.get_by_role("button", name="Move default"))
    expect(page.locator("main")).to_contain_text("the question was about something else")
    assert queue.stats(group="default").available == 2


def test_dead_letters_are_grouped_by_what_went_wrong(page: Page, letters: penstock.Queue) -> None:
    page.goto(f"/queues/{letters.name}/dead")
    rows = page.locator("table.faults tbody tr")
    assert rows.count() == 2
    assert rows.nth(0).locator("a").first.inner_text() == "HTTP <n> after <n> ms"
    assert rows.nth(0).locator("td.n").first.inner_text() == "5"
    assert rows.nth(1).locator("a").first.inner_text() == "no customer '…'"


def test_a_fault_is_redriven_after_a_question(page: Page, letters: penstock.Queue) -> None:
    page.goto(f"/queues/{letters.name}/dead")
    page.locator("table.faults tbody tr").nth(0).get_by_text("Redrive…").click()
    question = page.locator("dialog#ask")
    expect(question).to_contain_text("Redrive 5 dead letters?")
    question.get_by_text("Leave them").click()
    assert letters.stats(group="default").dead == 7
    page.locator("table.faults tbody tr").nth(0).get_by_text("Redrive…").click()
    question.get_by_role("button", name="Redrive 5").click()
    expect(page.locator(".notice")).to_contain_text("5 messages ready again")
    stats = letters.stats(group="default")
    assert (stats.dead, stats.redo + stats.available) == (2, 5)


def test_a_fault_is_purged_after_a_question(page: Page, letters: penstock.Queue) -> None:
    page.goto(f"/queues/{letters.name}/dead")
    page.locator("table.faults tbody tr").nth(1).get_by_text("Purge…").click()
    question = page.locator("dialog#ask")
    expect(question).to_contain_text("This cannot be undone")
    question.get_by_role("button", name="Purge 2").click()
    expect(page.locator(".notice")).to_contain_text("2 dead letters removed")
    assert letters.stats(group="default").dead == 5


def test_a_purge_without_the_question_does_nothing(page: Page, letters: penstock.Queue) -> None:
    """The mark of one question is no answer to another."""
    page.goto(f"/queues/{letters.name}/dead")
    page.locator("table.faults tbody tr").nth(1).get_by_text("Redrive…").click()
    page.locator("dialog#ask form").wait_for()
    page.evaluate(
        "() => { const form = document.querySelector('dialog#ask form');"
        " form.action = form.action.replace('redrive', 'purge'); form.submit(); }"
    )
    page.get_by_text("nothing was done").wait_for()
    assert letters.stats(group="default").dead == 7


def test_a_message_is_settled_in_place_of_its_consumer(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(b"stuck")
    queue.receive(consumer="gone", lease_seconds=900)
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    page.get_by_text("Settle in place of gone…").click()
    page.locator("[name=action]").select_option("reject")
    page.locator("[name=reason]").fill("it is hopeless")
    page.get_by_role("button", name="Settle").click()
    expect(page.locator(".notice")).to_contain_text("rejected")
    assert queue.explain(message_id).state is State.REJECTED
    expect(page.locator(".timeline")).to_contain_text("it is hopeless")
    submit(page, page.get_by_role("button", name="Redrive"))
    assert queue.explain(message_id).state is State.READY


def test_a_lost_lease_changes_nothing(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(b"taken")
    (delivery,) = queue.receive(consumer="slow", lease_seconds=900)
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    page.get_by_text("Settle in place of slow…").click()
    page.locator("[name=action]").select_option("reject")
    delivery.ack()
    page.get_by_role("button", name="Settle").click()
    expect(page.locator("main")).to_contain_text("409")
    assert queue.explain(message_id).state is State.SUCCEEDED


def test_a_batch_is_started_and_cancelled(page: Page, queue: penstock.Queue) -> None:
    batch = queue.batch("april / may")
    batch.send_many([b"one", b"two"])
    page.goto(f"/batches?queue={queue.name}")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".notice")).to_contain_text("is running")
    assert batch.state == "running"
    page.goto(f"/batches?queue={queue.name}")
    page.get_by_text("Cancel…").click()
    submit(page, page.get_by_role("button", name="Yes, cancel 2 messages"))
    assert batch.state == "cancelled"


def test_a_schedule_is_paused_and_resumed(page: Page, store: penstock.Store, queue: penstock.Queue) -> None:
    name = f"every day/{queue.name}"
    store.schedule(name, "0 3 * * *", queue.name, {"kind": "daily"}, timezone="Europe/Berlin")
    page.goto("/schedules")
    row = page.locator("tbody tr", has_text=name)
    assert row.locator(".tick").count() == 3
    submit(page, row.get_by_role("button", name="Pause"))
    assert next(one for one in store.schedules() if one.name == name).paused
    submit(page, page.locator("tbody tr", has_text=name).get_by_role("button", name="Resume"))
    assert not next(one for one in store.schedules() if one.name == name).paused
    store.unschedule(name)


def test_a_consumer_is_released(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"held up")
    queue.register("sleeper", heartbeat_seconds=900)
    queue.receive(consumer="sleeper", lease_seconds=900)
    page.goto("/consumers")
    row = page.locator("tbody tr", has_text=queue.name)
    row.get_by_text("Release…").click()
    row.get_by_role("button", name="Yes, remove it").click()
    expect(page.locator(".notice")).to_contain_text("1 message ready for others")
    assert queue.stats(group="default").in_progress == 0


def test_a_question_stays_open_while_the_page_lives_on(page: Page, queue: penstock.Queue) -> None:
    thinker = queue.register("thinker", heartbeat_seconds=900)
    page.goto("/consumers")
    row = page.locator("tbody tr", has_text=queue.name).filter(has_text="thinker")
    row.get_by_text("Release…").click()
    newcomer = queue.register("newcomer", heartbeat_seconds=900)
    # With the second answer the first one has surely been swapped in, had it been let in.
    for _ in range(2):
        page.wait_for_event("response", lambda response: response.url.endswith("/consumers"))
    expect(row.get_by_role("button", name="Yes, remove it")).to_be_visible()
    row.get_by_text("Release…").click()
    expect(page.locator("tbody tr", has_text=queue.name).filter(has_text="newcomer")).to_be_visible()
    newcomer.deregister()
    thinker.deregister()


def test_a_group_is_moved_and_a_queue_flushed(page: Page, queue: penstock.Queue) -> None:
    queue.send_many([b"one", b"two", b"three"])
    queue.ack_many(queue.receive(limit=3))
    page.goto(f"/queues/{queue.name}#care")
    page.locator("[name=target]").select_option("start")
    submit(page, page.get_by_role("button", name="Move"))
    submit(page, page.get_by_role("button", name="Move default"))
    assert queue.stats(group="default").available == 3
    page.goto(f"/queues/{queue.name}#care")
    page.locator("[name=confirm]").fill("another")
    page.get_by_role("button", name=f"Flush {queue.name}").click()
    expect(page.locator("main")).to_contain_text("nothing was removed")
    assert queue.stats(group="default").available == 3
    page.goto(f"/queues/{queue.name}#care")
    page.locator("[name=confirm]").fill(queue.name)
    page.get_by_role("button", name=f"Flush {queue.name}").click()
    expect(page.locator(".notice")).to_contain_text("3 messages removed")
