"""The stored-procedure conventions: every call and default of theirs, on Penstock's log."""

from __future__ import annotations

import json
import uuid

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, take_and

EMPTY = uuid.UUID(int=0)
NOT_OWNER = "Client did not own impacted queue item or lease expired"


@pytest.fixture
def jobs(sql: Sql) -> Sql:
    sql("select penstock.create_queue_schema('jobs')")
    return sql


def test_the_life_of_a_message_in_the_conventions_own_words(jobs: Sql) -> None:
    jobs("""call jobs.enqueue('{"order": 17}')""")
    taken = jobs("select q.msg_id, q.expires, q.msg_json from jobs.dequeue('client01', 40) as q")
    [(message_id, expires, payload)] = taken
    assert payload == {"order": 17}
    assert jobs("select extract(epoch from %s - now()) between 35 and 41", expires) == [(True,)]
    jobs("call jobs.message_ack(%s, 'client01', 'ack')", message_id)
    trail = jobs(
        "select message_state_id, audit_by, reason_why from jobs.message_audit where message_id = %s order by audit_id",
        message_id,
    )
    assert trail == [(1, "system", "enqueued"), (2, "client01", "dequeued. lease seconds: 40"), (3, "client01", "ack")]
    assert jobs(
        "select message_id, message_state_id, created_by, message_json, reason_why from jobs.message_history"
    ) == [(message_id, 3, "system", {"order": 17}, "ack")]
    assert jobs("select count(*) from jobs.message_queue") == [(0,)]


def test_a_block_of_plpgsql_written_for_the_conventions_runs_as_it_is(jobs: Sql) -> None:
    jobs("""call jobs.enqueue('{"n": 1}')""")
    jobs("""
        do $$
        declare
            msg_id uuid default gen_random_uuid();
            expires timestamp;
            msg_json json = '{}';
            client_id varchar(128) = 'client01';
        begin
            select q.msg_id, q.expires, q.msg_json into msg_id, expires, msg_json
            from jobs.dequeue(client_id, 30) as q;
            call jobs.message_ack(msg_id, client_id, 'done in a block');
        end $$
    """)
    assert jobs("select reason_why from jobs.message_history") == [("done in a block",)]


def test_enqueue_takes_id_delay_creator_and_time_to_live(jobs: Sql) -> None:
    chosen = uuid.uuid4()
    jobs("""call jobs.enqueue('{"n": 2}', %s, 60, 'billing', 20)""", chosen)
    [row] = jobs("""
        select message_id, message_state_id, retries, lease_expires, leased_by, created_by, message_json,
               extract(epoch from available_on - created_on), extract(epoch from message_expires - created_on) / 60
        from jobs.message_queue
    """)
    assert row[:7] == (chosen, 1, 0, None, None, "billing", {"n": 2})
    assert (round(row[7]), round(row[8])) == (60, 20)
    assert jobs("select msg_id from jobs.dequeue('early')") == [(EMPTY,)]


@pytest.mark.parametrize("minutes", [0, 15, -3])
def test_a_time_to_live_of_a_quarter_of_an_hour_or_less_means_the_configured_one(jobs: Sql, minutes: int) -> None:
    jobs("call jobs.enqueue('{}', null, 0, null, %s)", minutes)
    [row] = jobs("select created_by, extract(epoch from message_expires - created_on) / 60 from jobs.message_queue")
    assert row[0] == "system"
    assert round(row[1]) == 4320


def test_a_negative_delay_means_at_once(jobs: Sql) -> None:
    jobs("update jobs.queue_configuration set setting_value = '300' where setting_name = 'item_delay'")
    jobs("call jobs.enqueue('[1]')")
    jobs("call jobs.enqueue('[2]', null, -5)")
    assert jobs("select msg_json from jobs.dequeue('c')") == [([2],)]
    assert jobs("select msg_id from jobs.dequeue('c')") == [(EMPTY,)]


def test_an_empty_queue_gives_the_zero_id_and_says_so_in_the_audit(jobs: Sql) -> None:
    assert jobs("select * from jobs.dequeue('idle', 30)") == [(EMPTY, None, {})]
    assert jobs("select message_id, message_state_id, audit_by, reason_why from jobs.message_audit") == [
        (EMPTY, 91, "idle", "no items to dequeue")
    ]


@pytest.mark.parametrize("lease", ["", ", -1", ", 9", ", null"])
def test_a_lease_below_ten_seconds_means_the_configured_one(jobs: Sql, lease: str) -> None:
    jobs("update jobs.queue_configuration set setting_value = '77' where setting_name = 'lease_duration'")
    jobs("call jobs.enqueue('{}')")
    [(seconds,)] = jobs(f"select extract(epoch from expires - now()) from jobs.dequeue('c'{lease})")
    assert 70 < seconds < 78


def test_nak_puts_it_back_with_the_configured_backoff(jobs: Sql) -> None:
    jobs("call jobs.enqueue('{}')")
    [(message_id,)] = jobs("select msg_id from jobs.dequeue('c')")
    jobs("call jobs.message_nak(%s, 'c', 'code 12: no answer')", message_id)
    [(state, retries, seconds, lease)] = jobs(
        """select message_state_id, retries, extract(epoch from available_on - now()), lease_expires
           from jobs.message_queue"""
    )
    assert (state, retries, lease) == (1, 1, None)
    assert 10 * 2 + 11 - 5 <= seconds <= 10 * 2 + 99
    assert jobs(
        "select message_state_id, audit_by, reason_why from jobs.message_audit order by audit_id desc limit 1"
    ) == [(1, "c", "code 12: no answer")]


def test_the_backoff_settings_act(jobs: Sql) -> None:
    for name, value in {"base": 100, "factor": 3, "jitter_min": 7, "jitter_max": 7}.items():
        jobs(
            "update jobs.queue_configuration set setting_value = %s where setting_name = %s",
            str(value),
            f"backoff_{name}",
        )
    assert jobs("select jobs.calculate_offset(n) from generate_series(-1, 3) n") == [
        (107,),
        (107,),
        (307,),
        (907,),
        (2707,),
    ]
    jobs("call jobs.enqueue('{}')")
    take_and(jobs, "nak")
    [(seconds,)] = jobs("select extract(epoch from available_on - now()) from jobs.message_queue")
    assert 300 < seconds <= 307


def test_when_the_retries_are_used_up_the_message_is_a_dead_letter_with_its_reason(jobs: Sql) -> None:
    jobs("update jobs.queue_configuration set setting_value = '0' where setting_name = 'max_retries'")
    jobs("""call jobs.enqueue('{"n": 3}')""")
    [(message_id,)] = jobs("select msg_id from jobs.dequeue('c')")
    jobs("call jobs.message_nak(%s, 'c', 'still broken')", message_id)
    assert jobs("select message_id, message_state_id, message_json, reason_why from jobs.dead_letter") == [
        (message_id, 88, {"n": 3}, "still broken")
    ]
    assert jobs("select message_state_id from jobs.message_audit order by audit_id") == [(1,), (2,), (88,)]


def test_rej_is_a_dead_letter_at_once(jobs: Sql) -> None:
    jobs("""call jobs.enqueue('{"n": 4}', null, 0, 'maker')""")
    [(message_id,)] = jobs("select msg_id from jobs.dequeue('c')")
    jobs("call jobs.message_rej(%s, 'c', 'E4: malformed')", message_id)
    assert jobs(
        """select message_id, message_state_id, created_by, message_json, reason_why, dead_on >= created_on
           from jobs.dead_letter"""
    ) == [(message_id, 7, "maker", {"n": 4}, "E4: malformed", True)]


def test_the_reasons_have_the_conventions_defaults(jobs: Sql) -> None:
    for number, call in enumerate(["ack", "nak", "rej"]):
        jobs("call jobs.enqueue(%s)", json.dumps(number))
        take_and(jobs, call)
    assert jobs(
        "select reason_why from jobs.message_audit where message_state_id <> 2 and reason_why <> 'enqueued' "
        "order by audit_id"
    ) == [
        ("ACK",),
        ("NAK",),
        ("REJ",),
    ]


@pytest.mark.parametrize("call", ["message_ack", "message_nak", "message_rej"])
def test_only_the_client_that_holds_the_lease_settles(jobs: Sql, call: str) -> None:
    jobs("call jobs.enqueue('{}')")
    [(message_id,)] = jobs("select msg_id from jobs.dequeue('owner')")
    before = jobs("select * from jobs.message_audit")
    with pytest.raises(psycopg.Error, match=f"{NOT_OWNER}: {message_id}") as lost:
        jobs(f"call jobs.{call}(%s, 'thief', 'mine')", message_id)
    assert lost.value.diag.sqlstate == "PN201"
    assert "owner" not in str(lost.value)
    assert jobs("select * from jobs.message_audit") == before
    jobs(f"call jobs.{call}(%s, 'owner', 'mine')", message_id)
    with pytest.raises(psycopg.Error, match=NOT_OWNER):
        jobs(f"call jobs.{call}(%s, 'owner', 'again')", message_id)
    with pytest.raises(psycopg.Error, match=NOT_OWNER):
        jobs(f"call jobs.{call}(%s, 'owner', 'never was')", uuid.uuid4())


def later(sql: Sql, seconds: int) -> None:
    """Time passes, for this session."""
    sql("select set_config('penstock.now', (penstock.now_us() + %s * 1000000)::text, false)", seconds)


def test_a_lease_that_ends_counts_as_a_retry_and_its_client_is_too_late(jobs: Sql) -> None:
    jobs("call jobs.enqueue('28')")
    [(message_id,)] = jobs("select msg_id from jobs.dequeue('slow', 10)")
    later(jobs, 11)
    with pytest.raises(psycopg.Error, match=NOT_OWNER):
        jobs("call jobs.message_ack(%s, 'slow')", message_id)
    assert jobs("select msg_id from jobs.dequeue('quick')") == [(message_id,)]
    assert jobs("select retries, leased_by from jobs.message_queue") == [(1, "quick")]
    with pytest.raises(psycopg.Error, match=NOT_OWNER):
        jobs("call jobs.message_ack(%s, 'slow')", message_id)
    jobs("call jobs.message_ack(%s, 'quick')", message_id)
    assert jobs("select message_state_id, audit_by from jobs.message_audit order by audit_id") == [
        (1, "system"),
        (2, "slow"),
        (5, "slow"),
        (2, "quick"),
        (3, "quick"),
    ]


def test_a_lease_that_ends_without_retries_left_is_a_dead_letter(jobs: Sql) -> None:
    jobs("update jobs.queue_configuration set setting_value = '0' where setting_name = 'max_retries'")
    jobs("call jobs.enqueue('29')")
    jobs("select jobs.dequeue('slow', 10)")
    later(jobs, 11)
    jobs("call jobs.cron_unlock(0)")
    assert jobs("select message_state_id, message_json from jobs.dead_letter") == [(88, 29)]
    assert jobs("select count(*) from jobs.message_queue") == [(0,)]


def test_a_message_past_its_time_is_never_handed_out(jobs: Sql) -> None:
    jobs("call jobs.enqueue('30', null, 0, 'maker', 16)")
    later(jobs, 16 * 60 + 1)
    assert jobs("select msg_id from jobs.dequeue('c')") == [(EMPTY,)]
    jobs("call jobs.cron_unlock(0)")
    assert jobs("select message_state_id, created_by, message_json from jobs.dead_letter") == [(6, "maker", 30)]


def test_reschedule_of_a_leased_message_starts_it_again_later(jobs: Sql) -> None:
    jobs("call jobs.enqueue('{}')")
    [(before,)] = jobs("select message_expires from jobs.message_queue")
    [(message_id,)] = jobs("select msg_id from jobs.dequeue('c')")
    jobs("call jobs.message_reschedule(%s, 120, 'operator', 'R7: dependency down')", message_id)
    [row] = jobs(
        """select message_state_id, retries, lease_expires, leased_by, extract(epoch from available_on - now()),
                           extract(epoch from message_expires - %s) from jobs.message_queue""",
        before,
    )
    assert row[:4] == (1, 0, None, None)
    assert 115 < row[4] <= 120
    assert round(row[5]) == 120
    assert jobs(
        "select message_state_id, audit_by, reason_why from jobs.message_audit order by audit_id desc limit 1"
    ) == [(4, "operator", "R7: dependency down. Seconds delayed: 120")]


@pytest.mark.parametrize(("arguments", "low", "high"), [("", 3590, 3600), (", 0", 3590, 3600), (", -30", -60, 0)])
def test_the_delays_of_a_reschedule(jobs: Sql, arguments: str, low: int, high: int) -> None:
    jobs("call jobs.enqueue('{}')")
    [(message_id,)] = jobs("select msg_id from jobs.dequeue('c')")
    jobs(f"call jobs.message_reschedule(%s{arguments})", message_id)
    [(seconds,)] = jobs("select extract(epoch from available_on - clock_timestamp()) from jobs.message_queue")
    assert low <= seconds <= high
    assert jobs("select audit_by from jobs.message_audit where message_state_id = 4") == [("system",)]
    assert jobs("select msg_id from jobs.dequeue('c')") == [(message_id if high == 0 else EMPTY,)]


def test_a_message_that_nobody_holds_can_be_rescheduled(jobs: Sql) -> None:
    for number in range(3):
        jobs("call jobs.enqueue(%s)", json.dumps(number))
    [(message_id,)] = jobs("select message_id from jobs.message_queue where message_json::text = '1'")
    jobs("call jobs.message_reschedule(%s, 900)", message_id)
    assert jobs("select msg_json from jobs.dequeue('c')") == [(0,)]
    assert jobs("select msg_json from jobs.dequeue('c')") == [(2,)]
    assert jobs("select msg_id from jobs.dequeue('c')") == [(EMPTY,)]
    with pytest.raises(psycopg.Error, match="has no live message"):
        jobs("call jobs.message_reschedule(%s, 900)", uuid.uuid4())


def test_add_audit_writes_a_row_of_the_callers_own(jobs: Sql) -> None:
    jobs("call jobs.enqueue('{}')")
    [(message_id,)] = jobs("select message_id from jobs.message_queue")
    jobs("call jobs.add_audit(%s, 99, 'auditor', 'looked at by hand')", message_id)
    found = """select message_state_id, audit_by, reason_why from jobs.message_audit
               where cast(message_id as varchar) like %s order by message_id, audit_on"""
    assert jobs(found, f"{str(message_id)[:8]}%") == [
        (1, "system", "enqueued"),
        (99, "auditor", "looked at by hand"),
    ]
    with pytest.raises(psycopg.Error, match="state 5000") as refused:
        jobs("call jobs.add_audit(%s, 5000, 'auditor', 'x')", message_id)
    assert "message_state" in (refused.value.diag.message_hint or "")


def test_recovering_a_dead_letter_sends_a_copy_and_links_the_two(jobs: Sql) -> None:
    jobs("""call jobs.enqueue('{"n": 5}')""")
    [(old,)] = jobs("select msg_id from jobs.dequeue('c')")
    jobs("call jobs.message_rej(%s, 'c', 'bad')", old)
    jobs("call jobs.recover_dead_letter(%s, 0, 'operator')", old)
    [(new, payload, created_by)] = jobs("select message_id, message_json, created_by from jobs.message_queue")
    assert new != old
    assert payload == {"n": 5}
    assert created_by == "operator"
    assert jobs("select message_id from jobs.dead_letter") == [(old,)]
    assert jobs("select message_id, audit_by, reason_why from jobs.message_audit where message_state_id = 32") == [
        (new, "operator", f"dead letter recovered. Previous uuid: {old}"),
        (old, "operator", f"dead letter recovered. New uuid: {new}"),
    ]
    with pytest.raises(psycopg.Error, match="No Dead Letter found with Id"):
        jobs("call jobs.recover_dead_letter(%s)", new)


def test_replaying_a_message_from_history_sends_a_copy_and_links_the_two(jobs: Sql) -> None:
    jobs("""call jobs.enqueue('{"n": 6}')""")
    [(old,)] = jobs("select msg_id from jobs.dequeue('c')")
    jobs("call jobs.message_ack(%s, 'c')", old)
    jobs("call jobs.replay_message_from_history(%s, 45, 'operator', 30, 'R1.')", old)
    [(new, payload, delay, ttl)] = (
        jobs("""select message_id, message_json, extract(epoch from available_on - created_on),
        extract(epoch from message_expires - created_on) / 60 from jobs.message_queue""")
    )
    assert (payload, round(delay), round(ttl)) == ({"n": 6}, 45, 30)
    assert jobs("select message_id from jobs.message_history") == [(old,)]
    assert jobs("select reason_why from jobs.message_audit where message_state_id = 32 order by audit_id") == [
        (f"R1. Previous uuid: {old}",),
        (f"R1. New uuid: {new}",),
    ]
    with pytest.raises(psycopg.Error, match="No Message History found with Id"):
        jobs("call jobs.replay_message_from_history(%s)", new)


def test_reset_queue_leaves_nothing_but_the_settings(jobs: Sql) -> None:
    jobs("update jobs.queue_configuration set setting_value = '3' where setting_name = 'max_retries'")
    for number in range(4):
        jobs("call jobs.enqueue(%s)", json.dumps(number))
    take_and(jobs, "ack")
    take_and(jobs, "rej")
    jobs("select jobs.dequeue('c')")
    jobs("call jobs.reset_queue()")
    for table in ("message_queue", "message_history", "dead_letter", "message_audit"):
        assert jobs(f"select count(*) from jobs.{table}") == [(0,)], table
    assert jobs("select setting_value from jobs.queue_configuration where setting_name = 'max_retries'") == [("3",)]


def test_what_is_sent_here_is_received_in_python_and_the_other_way_round(jobs: Sql, store: penstock.Store) -> None:
    queue = store.queue("jobs")
    jobs("""call jobs.enqueue('{"from": "sql"}', null, 0, 'maker')""")
    [delivery] = queue.receive(consumer="python")
    assert delivery.json() == {"from": "sql"}
    delivery.nak("later", delay_seconds=0)
    [(again, _, _)] = jobs("select * from jobs.dequeue('sql')")
    assert str(again) == delivery.id
    jobs("call jobs.message_ack(%s, 'sql', 'at last')", again)
    assert [(entry.event, entry.by) for entry in queue.audit(delivery.id)] == [
        ("send", "maker"),
        ("receive", "python"),
        ("nak", "python"),
        ("receive", "sql"),
        ("ack", "sql"),
    ]
    sent = queue.send({"from": "python"}, created_by="script")
    assert jobs("select msg_json from jobs.dequeue('sql')") == [({"from": "python"},)]
    jobs("call jobs.message_rej(%s, 'sql', 'unwanted')", sent)
    [dead] = queue.dead_letters()
    assert (dead.id, dead.outcome, dead.reason, dead.attempts) == (sent, "rejected", "unwanted", 1)
    assert jobs(
        "select message_state_id, audit_by, reason_why from jobs.message_audit where message_id = %s order by audit_id",
        sent,
    ) == [(1, "script", "enqueued"), (2, "sql", "dequeued. lease seconds: 30"), (7, "sql", "unwanted")]


def test_a_payload_that_is_not_json_arrives_in_a_json_envelope(jobs: Sql, store: penstock.Store) -> None:
    store.queue("jobs").send(b"\x00\xffraw")
    assert jobs("select msg_json from jobs.dequeue('c')") == [
        ({"content_type": "application/octet-stream", "base64": "AP9yYXc="},)
    ]
