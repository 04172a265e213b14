"""Messages back into a queue: from the lake or from dead letters, those that a SQL filter chooses, each once.

Running a replay again, after a crash or for newer messages, sends none of them twice: the store keeps what each replay
has sent (`replayed`). A replayed message gets an id that follows from the name of the replay and from the message it
comes from. It says where it comes from: in its headers, and as the sender in the first entry of its audit trail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy
import pyarrow
from pyarrow import compute
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from penstock.client.connecting import connect
from penstock.domain.errors import InvalidInput, NotFound
from penstock.domain.names import check_name, nearest, shown
from penstock.engines.contract import Engine
from penstock.spark.lake.frames import read_table
from penstock.spark.lake.opening import open_lake
from penstock.spark.options import reachable_url
from penstock.spark.replayed import Replays
from penstock.spark.telling import as_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.spark.replayed import Positions

LINEAGE = "penstock-replay-"


class Replayed(msgspec.Struct, frozen=True):
    """How many messages the filter chose, and how many were sent now; this replay had sent the others before."""

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
    """Send messages again into a queue: dead letters of `queue`, or finished messages of a lake (of one queue or all).
    `where` is a condition in SQL on the columns of the table, such as `outcome = 'failed' and reason like '%timeout%'`.
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
    """Send what is new under the name of the replay, in one transaction with the entry that says so."""
    replays = Replays(engine, replay.name, replay.into)
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
        raise NotFound(f"there is no queue {shown(queue)} to replay from{nearest(queue, known)}")
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
        told = str(error).strip().splitlines()[0]
        raise InvalidInput(
            f"the filter {shown(where)} does not fit: {told}; the columns are {', '.join(rows.columns)}"
        ) from None


def as_replayed(rows: DataFrame, name: str) -> DataFrame:
    """Finished messages as new ones to send, each message once, though it may have ended more than once."""
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
    """A UUID of version 8 that follows from a text."""
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
