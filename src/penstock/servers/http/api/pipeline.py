"""The status of the pipeline."""

from __future__ import annotations

from penstock.client.pipeline import PipelineStatus, pipeline_status
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.auth import check_all_queues
from penstock.servers.permissions import Needs

TAG = "pipeline"


@operation("GET", "/pipeline", Needs.READ_PIPELINE, TAG)
async def show_pipeline(call: ApiCall) -> PipelineStatus:
    """The last runs of the pipeline, how fresh the lake is, and where the report is.

    For users who may look at all queues, because it concerns all of them.
    """
    check_all_queues(call.identity, "the pipeline")
    return await call.store.executor.read(lambda: pipeline_status(call.store.engine))
