"""Options of `format("penstock")`: invalid ones are reported before any work starts, with a suggestion."""

from __future__ import annotations

import pytest

from penstock import InvalidInput
from penstock.domain.errors import InvalidUrl
from penstock.spark.options import read_options, write_options

GIVEN = {"url": "sqlite:////var/app.db", "queue": "orders"}


def test_option_names_are_case_insensitive() -> None:
    options = read_options({**GIVEN, "MAXROWSPERTRIGGER": "12", "minpartitions": "3", "FailOnDataLoss": "FALSE"})
    assert (options.max_rows, options.min_partitions, options.fail_on_data_loss) == (12, 3, False)


def test_without_options_everything_from_the_start_is_read() -> None:
    options = read_options(GIVEN)
    assert (options.table, options.start.word, options.end.word, options.group) == ("messages", "start", "end", None)
    assert options.fail_on_data_loss
    assert "headers" not in options.columns
    assert options.columns[-1] == "payload"


def test_a_stream_with_a_group_goes_on_where_the_group_stands() -> None:
    assert read_options({**GIVEN, "group": "lake"}).start.word == "group"


def test_headers_are_included_on_request() -> None:
    assert "headers" in read_options({**GIVEN, "includeHeaders": "true"}).columns
    options = read_options({**GIVEN, "columns": "id, payload", "includeHeaders": "true"})
    assert options.columns == ("id", "payload", "headers")


def test_a_position_is_a_word_a_time_or_marks() -> None:
    assert read_options({**GIVEN, "startingPosition": "END"}).start.word == "end"
    at = read_options({**GIVEN, "startingPosition": "2026-11-15T10:30:00+01:00"}).start.at
    assert at == 1_794_735_000_000_000
    marks = read_options({**GIVEN, "startingPosition": '{"orders": 17, "returns": "a:b"}'}).start.marks
    assert marks == {"orders": 17, "returns": "a:b"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxRowPerTrigger": "5"}, "did you mean 'maxRowsPerTrigger'"),
        ({"topic": "orders"}, "there is no option 'topic'"),
        ({"path": "/tmp/x"}, "there is no option 'path'"),
        ({"queue": ""}, "which queue"),
        ({"table": "archiv"}, "did you mean 'archive'"),
        ({"columns": "id,paylod"}, "did you mean 'payload'"),
        ({"columns": "id,id"}, "at most once"),
        ({"table": "audit", "columns": "payload"}, "audit has no column 'payload'"),
        ({"maxRowsPerTrigger": "0"}, "at least 1, not '0'"),
        ({"maxBytesPerTrigger": "1k"}, "not '1k'"),
        ({"minPartitions": "-2"}, "not '-2'"),
        ({"failOnDataLoss": "maybe"}, "true or false, not 'maybe'"),
        ({"startingPosition": "group"}, "give option group too"),
        ({"startingPosition": "earliest"}, "none of group, start, end"),
        ({"startingPosition": "2026-11-15T10:30:00"}, "2026-11-15T10:30:00Z for UTC"),
        ({"startingPosition": "{orders: 1}"}, "not JSON"),
        ({"startingPosition": '{"orders": null}'}, "must map queues to marks"),
        ({"endingPosition": "start"}, "none of end"),
        ({"table": "archive", "startingPosition": "2026-11-15T10:30:00Z"}, "for messages only"),
        ({"group": "a\nb"}, "control character"),
    ],
)
def test_invalid_option_is_refused_with_a_suggestion(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_options({**GIVEN, **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": "g"}, "there is no option 'group' for writing"),
        ({"batch": "3"}, "give ledger too"),
        ({"contenttypes": "x"}, "did you mean 'contentType'"),
    ],
)
def test_a_wrong_option_of_the_sink_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        write_options({**GIVEN, **options})


def test_the_store_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "sqlite:////var/first.db")
    monkeypatch.setenv("ORDERS_STORE", "sqlite:////var/second.db")
    assert read_options({"queue": "orders"}).url == "sqlite:////var/first.db"
    assert write_options({"queue": "orders", "url": "env:ORDERS_STORE"}).url == "sqlite:////var/second.db"
    monkeypatch.delenv("PENSTOCK_URL")
    with pytest.raises(InvalidUrl, match="PENSTOCK_URL"):
        read_options({"queue": "orders"})
