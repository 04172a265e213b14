"""queue_configuration of the stored-procedure conventions: a view of the policy, so every setting acts, both ways."""

from __future__ import annotations

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, take_and

DEFAULTS = {
    "item_delay": ("0", "seconds"),
    "item_ttl": ("4320", "minutes"),
    "lease_duration": ("30", "seconds"),
    "dead_letter_retention": ("91", "days"),
    "history_retention": ("181", "days"),
    "audit_retention": ("31", "days"),
    "max_retries": ("7", "count"),
    "backoff_base": ("10", "seconds"),
    "backoff_factor": ("2", "number"),
    "backoff_jitter_min": ("11", "number"),
    "backoff_jitter_max": ("99", "number"),
    "cron_schedule_retention_queue": ("*/7 * * * * *", "cron"),
    "cron_schedule_retention_dead_letter": ("0 3 * * *", "cron"),
    "cron_schedule_retention_history": ("8 1 * * 6", "cron"),
    "cron_schedule_retention_audit_log": ("0 3 * * *", "cron"),
    "cron_vacuum": ("45 4 * * *", "cron"),
}


@pytest.fixture
def jobs(sql: Sql) -> Sql:
    sql("select penstock.create_queue_schema('jobs')")
    return sql


def change(sql: Sql, name: str, value: object) -> None:
    sql("update jobs.queue_configuration set setting_value = %s where setting_name = %s", str(value), name)


def test_a_new_queue_has_the_conventions_settings(jobs: Sql) -> None:
    rows = jobs("select setting_name, setting_value, unit from jobs.queue_configuration")
    assert {name: (value, unit) for name, value, unit in rows} == DEFAULTS
    assert jobs("select distinct modified_by from jobs.queue_configuration") == [("system",)]


def test_the_states_have_the_conventions_numbers(jobs: Sql) -> None:
    states = dict(jobs("select message_state_id, state_title from jobs.message_state"))
    assert states == {
        1: "queued",
        2: "leased",
        3: "history",
        32: "history recovered",
        4: "rescheduled",
        5: "lease-expired",
        6: "message-expired",
        7: "dead-letter",
        72: "dead-letter-recovered",
        77: "dead-letter-cron",
        88: "dead-letter-retries-exceeded",
        91: "no queue items",
        99: "error",
    }
    assert jobs("select message_state_id from jobs.message_state where is_fsm order by 1") == [(1,), (2,), (5,)]


@pytest.mark.parametrize(
    ("setting", "value", "field", "expected"),
    [
        ("item_delay", 4, "delay_seconds", 4),
        ("item_ttl", 90, "ttl_seconds", 5400),
        ("item_ttl", 0, "ttl_seconds", None),
        ("lease_duration", 45, "lease_seconds", 45),
        ("dead_letter_retention", 2, "dead_letter_seconds", 2 * 86400),
        ("history_retention", 3, "history_seconds", 3 * 86400),
        ("max_retries", 5, "max_retries", 5),
        ("max_retries", -1, "max_retries", None),
        ("backoff_base", 6, "backoff_base_seconds", 6),
        ("backoff_factor", 3, "backoff_factor", 3),
        ("backoff_jitter_max", 44, "backoff_jitter_seconds", 44),
    ],
)
def test_a_setting_changes_the_policy_and_shows_it(
    jobs: Sql, store: penstock.Store, setting: str, value: int, field: str, expected: object
) -> None:
    change(jobs, setting, value)
    assert getattr(store.queue("jobs").policy(), field) == expected
    assert jobs("select setting_value from jobs.queue_configuration where setting_name = %s", setting) == [
        (str(value),)
    ]


def test_a_policy_changed_in_python_shows_in_the_settings(jobs: Sql, store: penstock.Store) -> None:
    store.queue("jobs", lease_seconds=2.5, ttl_seconds=7200, max_retries=9)
    assert jobs("""select setting_value from jobs.queue_configuration
                   where setting_name in ('lease_duration', 'item_ttl', 'max_retries') order by setting_name""") == [
        ("120",),
        ("2.5",),
        ("9",),
    ]


def test_a_change_keeps_who_made_it_and_why(jobs: Sql) -> None:
    jobs("""update jobs.queue_configuration set setting_value = '12', modified_by = 'dba', notes = 'slow partner'
            where setting_name = 'lease_duration'""")
    assert jobs("""select setting_value, modified_by, notes, modified_on > now() - interval '1 minute'
                   from jobs.queue_configuration where setting_name = 'lease_duration'""") == [
        ("12", "dba", "slow partner", True)
    ]


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("lease_duration", "soon", "lease_duration"),
        ("lease_duration", "0", "lease_duration"),
        ("max_retries", "-2", "max_retries"),
        ("max_retries", "1.5", r"(?s)max_retries.*It is a whole number, not below -1\."),
        ("backoff_factor", "0", r"(?s)backoff_factor.*It is a number, not below 1\."),
        ("item_ttl", "-1", r"(?s)item_ttl.*It is a number of minutes, not below 0\."),
        ("item_delay", "NaN", "item_delay"),
        ("history_retention", "infinity", "history_retention"),
        ("backoff_jitter_min", "100", "backoff_jitter_min"),
        ("audit_retention", "-1", "audit_retention"),
        ("cron_vacuum", "daily; drop table x", "cron_vacuum"),
    ],
)
def test_a_value_that_cannot_act_is_refused_by_name(jobs: Sql, setting: str, value: str, said: str) -> None:
    before = jobs("select setting_name, setting_value from jobs.queue_configuration order by 1")
    with pytest.raises(psycopg.Error, match=said) as refused:
        change(jobs, setting, value)
    assert refused.value.diag.sqlstate == "PN102"
    assert value[:20] in str(refused.value)
    assert jobs("select setting_name, setting_value from jobs.queue_configuration order by 1") == before


def test_settings_are_neither_added_nor_removed_nor_renamed(jobs: Sql) -> None:
    with pytest.raises(psycopg.Error, match="leese_duration") as added:
        jobs("insert into jobs.queue_configuration (setting_name, setting_value) values ('leese_duration', '5')")
    assert "lease_duration" in (added.value.diag.message_hint or "")
    with pytest.raises(psycopg.Error, match="cannot be removed"):
        jobs("delete from jobs.queue_configuration where setting_name = 'item_ttl'")
    with pytest.raises(psycopg.Error, match="unit"):
        jobs("update jobs.queue_configuration set unit = 'hours' where setting_name = 'item_ttl'")
    with pytest.raises(psycopg.Error, match="setting_name"):
        jobs("update jobs.queue_configuration set setting_name = 'ttl' where setting_name = 'item_ttl'")


def test_the_time_to_live_acts(jobs: Sql, store: penstock.Store) -> None:
    store.queue("jobs", ttl_seconds=0.001)
    jobs("call jobs.enqueue('[1]')")
    jobs("select pg_sleep(0.002)")
    assert jobs("select msg_json from jobs.dequeue('c')") == [({},)]
    jobs("call jobs.cron_unlock(0)")
    assert jobs("select message_state_id, message_json from jobs.dead_letter") == [(6, [1])]


def test_the_retentions_act(jobs: Sql) -> None:
    jobs("call jobs.enqueue('[2]')")
    take_and(jobs, "rej")
    jobs("select jobs.dequeue('c')")
    change(jobs, "audit_retention", 0)
    assert jobs("select count(*) from jobs.message_audit") == [(0,)]
    change(jobs, "audit_retention", 31)
    assert jobs("select message_state_id from jobs.message_audit order by audit_id") == [(1,), (2,), (7,), (91,)]
    change(jobs, "audit_retention", 0)
    jobs("call jobs.cron_audit_clean(0)")
    change(jobs, "audit_retention", 31)
    assert jobs("select count(*) from jobs.message_audit where message_state_id = 91") == [(0,)]
    jobs("call jobs.cron_dead_letter_retention(1)")
    assert jobs("select count(*) from jobs.dead_letter") == [(1,)]
    change(jobs, "dead_letter_retention", 0)
    jobs("call jobs.cron_dead_letter_retention(0)")
    assert jobs("select count(*) from jobs.dead_letter") == [(0,)]
