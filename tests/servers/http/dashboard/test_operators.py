"""What operators do on the pages: messages by state, batches with members, schedules, processes, deleting queues."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import Page, expect

import penstock
from tests.servers.http.dashboard.page_log import cells, submit


def test_running_messages_have_durations_that_grow(page: Page, queue: penstock.Queue) -> None:
    queue.send({"n": 1})
    queue.receive(consumer="ann", lease_seconds=900)
    page.goto(f"/queues/{queue.name}")
    page.get_by_role("link", name="Messages", exact=True).click()
    running = page.locator("td[data-label=Running] time")
    expect(page.locator("td[data-label=Consumer]")).to_have_text("ann")
    first = _seconds(running.inner_text())
    expect(running).not_to_have_text(running.inner_text())
    grown = "(first) => parseFloat(document.querySelector('[data-since]').textContent) > first + 1"
    page.wait_for_function(grown, arg=first)
    assert _seconds(running.inner_text()) < first + 60


def _seconds(text: str) -> float:
    return float(re.sub(r"[^0-9.]", "", text))


def test_messages_are_filtered_by_state(page: Page, queue: penstock.Queue) -> None:
    later = queue.send("later", delay_seconds=7200)
    queue.batch("nightly").send("in a batch")
    ready = queue.send("ready")
    failing = queue.send("failing", priority=0)
    for delivery in queue.receive(2):
        if delivery.id == failing:
            delivery.nak("gateway down", delay_seconds=3600)
        else:
            delivery.nak("again", delay_seconds=0)
    page.goto(f"/queues/{queue.name}/messages?state=held")
    expect(page.locator("tbody tr")).to_have_count(3)
    rows = page.locator("tbody tr").all_inner_texts()
    assert failing in rows[0]
    assert "gateway down" in rows[0]
    assert later in rows[1]
    assert "in 1 h 59 m" in rows[1] or "in 2 h" in rows[1]
    assert "when its batch starts" in rows[2]
    assert "nightly" in rows[2]
    page.get_by_role("navigation", name="State").get_by_role("link", name="ready").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody th")).to_have_text(ready)
    page.get_by_role("navigation", name="State").get_by_role("link", name="rejected").click()
    expect(page.locator("main")).to_contain_text("None here")


def test_search_by_a_live_state_redirects_to_the_message_list(page: Page, queue: penstock.Queue) -> None:
    sent = queue.send("later", delay_seconds=7200)
    page.goto(f"/search?queue={queue.name}")
    page.get_by_label("State").select_option("held")
    submit(page, page.get_by_role("button", name="Search"))
    expect(page).to_have_url(re.compile(rf"/queues/{queue.name}/messages\?state=held"))
    expect(page.locator("tbody th")).to_have_text(sent)


def test_long_lists_have_pages(page: Page, queue: penstock.Queue) -> None:
    sent = queue.send_many([{"n": number} for number in range(120)])
    page.goto(f"/queues/{queue.name}/messages?state=ready")
    seen = page.locator("tbody th").all_inner_texts()
    for _ in range(2):
        submit(page, page.get_by_role("link", name="Next page"))
        seen += page.locator("tbody th").all_inner_texts()
    assert seen == sent
    expect(page.get_by_role("link", name="Next page")).to_have_count(0)


def test_wrong_states_marks_and_queues_are_told(http: httpx.Client, queue: penstock.Queue) -> None:
    queue.send(1)
    assert "is not a state" in http.get(f"/queues/{queue.name}/messages?state=hold").text
    assert "after must be" in http.get(f"/queues/{queue.name}/messages?state=held&after=x").text
    assert http.get(f"/queues/{queue.name}/messages?group=nobody").status_code == 404
    for path in ("messages", "delete", "batches/none"):
        answer = http.get(f"/queues/nobody-has-this/{path}")
        assert answer.status_code == 404
        assert "there is no queue" in answer.text
    assert "nobody-has-this" not in [info.name for info in queue.store.queues()]


def test_members_of_a_batch(page: Page, queue: penstock.Queue) -> None:
    batch = queue.batch("nightly")
    sent = batch.send_many([1, 2, 3])
    batch.start()
    for delivery in queue.receive(2):
        if delivery.id == sent[0]:
            delivery.ack()
        else:
            delivery.reject("broken")
    page.goto("/batches?queue=" + queue.name)
    page.get_by_role("link", name="nightly").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    assert cells(page, sent[0])["State"] == "succeeded"
    assert cells(page, sent[1])["State"] == "rejected"
    assert cells(page, sent[2])["State"] == "ready"
    expect(page.locator("main")).to_contain_text("2 of 3 messages finished, 1 to go")


def test_a_queue_is_deleted_after_a_question_with_its_count(page: Page, queue: penstock.Queue) -> None:
    queue.send_many([1, 2, 3])
    page.goto(f"/queues/{queue.name}#care")
    submit(page, page.get_by_role("link", name=f"Delete {queue.name}…"))
    expect(page.locator("#question")).to_contain_text("3 messages and 0 dead letters are removed for good")
    page.locator("[name=confirm]").fill("something else")
    submit(page, page.get_by_role("button", name=f"Delete {queue.name}"))
    expect(page.locator("main")).to_contain_text("nothing was removed")
    assert queue.count() == 3
    page.goto(f"/queues/{queue.name}/delete")
    page.locator("[name=confirm]").fill(queue.name)
    submit(page, page.get_by_role("button", name=f"Delete {queue.name}"))
    expect(page.locator(".notice")).to_contain_text(f"Queue '{queue.name}' is deleted, with 3 messages")
    expect(page.locator("#queues")).not_to_contain_text(queue.name)
    assert queue.name not in [info.name for info in queue.store.queues()]
    page.goto(f"/queues/{queue.name}")
    expect(page.locator("main")).to_contain_text("there is no queue")


def test_a_deletion_without_its_question_does_nothing(http: httpx.Client, queue: penstock.Queue) -> None:
    queue.send(1)
    found = re.search(r'name="csrf" value="([^"]+)"', http.get(f"/queues/{queue.name}").text)
    assert found is not None
    answer = http.post(f"/queues/{queue.name}/delete", data={"csrf": found[1], "confirm": queue.name})
    assert answer.status_code == 409
    assert queue.count() == 1


def test_a_queue_in_use_is_not_deleted(page: Page, queue: penstock.Queue) -> None:
    queue.send(1)
    consumer = queue.register("worker-9", heartbeat_seconds=600)
    page.goto(f"/queues/{queue.name}/delete")
    page.locator("[name=confirm]").fill(queue.name)
    submit(page, page.get_by_role("button", name=f"Delete {queue.name}"))
    expect(page.locator("main")).to_contain_text("consumer 'worker-9' is registered")
    assert queue.count() == 1
    consumer.deregister()


def test_schedules_are_made_edited_run_and_removed(page: Page, queue: penstock.Queue, store: penstock.Store) -> None:
    queue.send("first")
    name = f"schedule of {queue.name}"
    page.goto("/schedules#add")
    add = page.locator("#add")
    if add.get_attribute("open") is None:
        add.locator("summary").click()
    add.get_by_label("Name", exact=True).fill(name)
    add.get_by_label("Cron rule").fill("0 3 * * *")
    add.get_by_label("Queue").fill(queue.name)
    add.get_by_label("Time zone").fill("Europe/Berlin")
    add.get_by_label("Time to live").fill("2h")
    add.get_by_label("Key", exact=True).fill("k")
    add.get_by_label("Payload").fill('{"kind": "daily"}')
    add.get_by_label("Headers").fill("trace: 42")
    submit(page, add.get_by_role("button", name="Add the schedule"))
    made = _schedule(store, name)
    assert (made.cron, made.timezone, made.queue) == ("0 3 * * *", "Europe/Berlin", queue.name)
    assert (made.ttl_seconds, made.key, made.headers) == (7200, "k", {"trace": "42"})
    assert made.payload == b'{"kind": "daily"}'
    row = page.locator("tbody tr", has_text=name)
    submit(page, row.get_by_role("link", name="Edit"))
    page.get_by_label("Cron rule").fill("30 4 * * *")
    submit(page, page.get_by_role("button", name="Save the schedule"))
    edited = _schedule(store, name)
    assert edited.cron == "30 4 * * *"
    kept = ("timezone", "queue", "ttl_seconds", "key", "headers", "payload", "content_type", "priority", "catch_up")
    assert [getattr(edited, one) for one in kept] == [getattr(made, one) for one in kept]
    submit(page, page.locator("tbody tr", has_text=name).get_by_role("button", name="Run now"))
    expect(page.locator(".notice")).to_contain_text("has sent this message")
    sent = queue.find(page.locator("h1").inner_text())
    assert sent.payload == b'{"kind": "daily"}'
    assert _schedule(store, name).next_at == edited.next_at
    page.goto("/schedules")
    row = page.locator("tbody tr", has_text=name)
    row.get_by_text("Remove…").click()
    submit(page, row.get_by_role("button", name="Yes, remove it"))
    assert name not in [one.name for one in store.schedules()]


def _schedule(store: penstock.Store, name: str) -> penstock.Schedule:
    return next(one for one in store.schedules() if one.name == name)


def test_a_new_schedule_replaces_no_other(page: Page, queue: penstock.Queue, store: penstock.Store) -> None:
    name = f"taken by {queue.name}"
    store.schedule(name, "0 3 * * *", queue.name, {"a": 1})
    page.goto("/schedules")
    add = page.locator("#add")
    add.locator("summary").click()
    add.get_by_label("Name", exact=True).fill(name)
    add.get_by_label("Cron rule").fill("soon")
    add.get_by_label("Queue").fill(queue.name)
    submit(page, add.get_by_role("button", name="Add the schedule"))
    expect(page.locator("main")).to_contain_text("already")
    assert _schedule(store, name).cron == "0 3 * * *"
    store.unschedule(name)


def test_a_process_has_one_line_with_all_its_queues(page: Page, queue: penstock.Queue, store: penstock.Store) -> None:
    other = store.queue(f"{queue.name}-more")
    name = f"process of {queue.name}"
    for one in (queue, other):
        one.send(1)
        one.register(name, heartbeat_seconds=600)
    page.goto("/consumers")
    row = page.locator("tbody tr", has_text=name)
    expect(row).to_have_count(1)
    expect(row.locator("[data-label=Queues]")).to_contain_text(queue.name)
    expect(row.locator("[data-label=Queues]")).to_contain_text(other.name)
    row.get_by_text("Release…").click()
    submit(page, row.get_by_role("button", name=f"Yes, remove it from {other.name}"))
    assert [one.queue for one in store.consumers() if one.name == name] == [queue.name]


def test_the_stack_trace_of_the_last_error(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send({"n": 1})
    (delivery,) = queue.receive()
    delivery.reject("ValueError: <script>alert(1)</script>")
    trace = (
        'Traceback (most recent call last):\n  File "shop.py", line 7, in handle\nValueError: <script>alert(1)</script>'
    )
    queue.engine.keep_traces(queue.name, "default", [(delivery.position, trace)])
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    expect(page.locator(".trace summary")).to_have_text("Stack trace of the last error")
    assert page.locator(".trace code").inner_text() == trace
