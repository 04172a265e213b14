"""Replay: sends messages of the lake, or dead letters, that match a SQL filter into a queue, each once.

A replay can be repeated, after a crash or for newer messages, without sending a message twice (`replay_ledger`). The id
of a replayed message is derived from the replay's name and the original message. Its headers, and the sender in its
first audit entry, name the origin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy
import pyarrow
from pyarrow import compute
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from penstock.client.connection import connect
from penstock.domain.errors import InvalidInput
from penstock.domain.refusals import no_queue
from penstock.domain.validation import check_name, shown
from penstock.engines.contract import Engine
from penstock.spark.errors import as_error
from penstock.spark.lake.frames import read_table
from penstock.spark.lake.lake import open_lake
from penstock.spark.options import reachable_url
from penstock.spark.replay_ledger import ReplayLedger

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.spark.replay_ledger import Positions

LINEAGE = "penstock-replay-"


class Replayed(msgspec.Struct, frozen=True):
    """How many messages matched, and how many were sent; the others had been sent by earlier runs."""

    name: str
    into: str
    chosen: int
    sent: int


def replay(
    spark: SparkSession,
    url: str,
    into: str,
    *,
    queue: str | None = None,
    lake: str | None = None,
    where: str | None = None,
    name: str | None = None,
) -> Replayed:
    """Send dead letters of `queue`, or finished messages of a lake (of one queue or all), into a queue.
    `where` is a SQL condition on the columns of the table, such as `outcome = 'failed' and reason like '%timeout%'`.
    """
    check_name("into", into)
    url = reachable_url(url)
    source = f"lake {lake}" if lake is not None else f"dead letters of {queue}"
    replay_name = check_name("name", name or f"{source} into {into}")
    with connect(url) as store:
        rows = (
            _finished(spark, store.engine, lake, queue) if lake is not None else _dead(spark, store.engine, url, queue)
        )
        chosen = _chosen(rows, where)
        try:
            return _send(spark, store.engine, url, chosen, Replayed(replay_name, into, 0, 0))
        except PySparkException as error:
            raise as_error("nothing was replayed", error) from error


def _send(spark: SparkSession, engine: Engine, url: str, chosen: DataFrame, replay: Replayed) -> Replayed:
    """Send messages that this replay has not sent, in one transaction with the ledger entry."""
    replays = ReplayLedger(engine, replay.name, replay.into)
    replays.finish()
    keys = chosen.select("queue", "position").distinct().toArrow()
    positions = {}
    for queue in keys.column("queue").unique().to_pylist():
        positions[queue] = keys.filter(compute.equal(keys.column("queue"), queue)).column("position").to_numpy()
    new = replays.new(positions)
    sent = sum(len(ones) for ones in new.values())
    if sent:
        run = replays.begin(new)
        rows = chosen.join(_frame(spark, new), ["queue", "position"], "left_semi")
        options = {"url": url, "queue": replay.into, "ledger": replays.key, "batch": run}
        as_replayed(rows, replay.name).write.format("penstock").mode("append").options(**options).save()
        replays.finish()
    return msgspec.structs.replace(replay, chosen=keys.num_rows, sent=sent)


def _frame(spark: SparkSession, positions: Positions) -> DataFrame:
    queues = [queue for queue, ones in positions.items() for _ in ones]
    table = pyarrow.table({"queue": queues, "position": numpy.concatenate(list(positions.values()))})
    return spark.createDataFrame(table)


def _dead(spark: SparkSession, engine: Engine, url: str, queue: str | None) -> DataFrame:
    known = [info.name for info in engine.queues()]
    if queue is None:
        raise InvalidInput("whose dead letters? Name a queue, or a lake")
    if queue not in known:
        raise no_queue(queue, known, " to replay from")
    read = spark.read.format("penstock").option("url", url).option("queue", queue)
    return read.option("table", "dead_letters").option("includeHeaders", "true").load()


def _finished(spark: SparkSession, engine: Engine, lake: str, queue: str | None) -> DataFrame:
    rows = read_table(spark, open_lake(spark, engine, lake), "archive")
    return rows if queue is None else rows.where(F.col("queue") == queue)


def _chosen(rows: DataFrame, where: str | None) -> DataFrame:
    if where is None:
        return rows
    try:
        return rows.where(where)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInput(
            f"the filter {shown(where)} does not fit: {reason}; the columns are {', '.join(rows.columns)}"
        ) from None


def as_replayed(rows: DataFrame, name: str) -> DataFrame:
    """Convert finished messages to new ones. A message that ended more than once is sent once."""
    source = F.concat_ws("/", F.lit(name), F.col("queue"), F.col("id"))
    lineage = F.create_map(
        *(
            part
            for key, value in (("of", F.col("id")), ("queue", F.col("queue")), ("name", F.lit(name)))
            for part in (F.lit(f"{LINEAGE}{key}"), value)
        )
    )
    kept = F.map_filter(
        F.coalesce(F.from_json("headers", "map<string,string>"), F.create_map().cast("map<string,string>")),
        lambda key, _: ~key.startswith(LINEAGE),
    )
    return rows.dropDuplicates(["queue", "id"]).select(
        "payload",
        "content_type",
        "priority",
        "key",
        F.map_concat(kept, lineage).alias("headers"),
        _uuid(source).alias("id"),
        F.concat(F.lit("replay of "), F.col("id")).alias("created_by"),
    )


def _uuid(text: Column) -> Column:
    """A version 8 UUID derived from a text."""
    digest = F.sha2(text, 256)
    return F.concat(
        digest.substr(1, 8),
        F.lit("-"),
        digest.substr(9, 4),
        F.lit("-8"),
        digest.substr(13, 3),
        F.lit("-8"),
        digest.substr(16, 3),
        F.lit("-"),
        digest.substr(19, 12),
    )
