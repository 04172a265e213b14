"""The pipeline: what it has done lately."""

from __future__ import annotations

from penstock.client.pipeline import PipelineStatus, pipeline_status
from penstock.servers.access import Right
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.auth import check_all_queues

TAG = "pipeline"


@operation("GET", "/pipeline", Right.LOOK, TAG)
async def show_pipeline(call: Call) -> PipelineStatus:
    """The last runs of the pipeline, up to when the lake goes, and where the report lies.

    For users who may look at all queues, because it tells of all of them.
    """
    check_all_queues(call.identity, "the pipeline")
    return await call.store._read(lambda: pipeline_status(call.store.engine))
