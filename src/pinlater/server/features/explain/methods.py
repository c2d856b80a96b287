"""Why a job waits."""

from __future__ import annotations

from typing import Any

from pinlater.domain.body_masks import BodyMasks
from pinlater.server.features.explain.explain import Explain
from pinlater.server.operations.service import Service
from pinlater.server.thrift.masking import Turns, mask_info
from pinlater.server.thrift.methods.looking import job_info, number
from pinlater.server.thrift.methods.record import ServedMethod, queue_of_call
from pinlater.wire.generated import structs


async def _explain_job(service: Service, call: structs.explainJob_args) -> structs.JobExplanation:
    explained = await service.of(Explain).explain(call.queue, call.descriptor)
    queue, ahead = explained.queue, explained.ahead
    return structs.JobExplanation(
        descriptor=explained.descriptor,
        job=None if explained.job is None else job_info(explained.job),
        now_ms=explained.now_ms,
        shard=structs.ShardFacts(*explained.shard),
        queue=structs.QueueFacts(
            paused=queue.paused,
            paused_at_ms=queue.paused_at_ms,
            paused_by=queue.paused_by or None,
            max_jobs_per_second=queue.max_jobs_per_second,
            next_slot_ms=queue.next_slot_ms,
            claimed_per_second=queue.claimed_per_second,
            in_progress=queue.running,
            waiting_dequeues=number(queue.waiting_dequeues),
            last_dequeue_at_ms=queue.last_dequeue_at_ms,
            server_started_at_ms=queue.server_started_at_ms,
            servers=number(queue.servers),
        ),
        jobs_ahead=None if ahead is None else structs.JobsAhead(*ahead),
    )


async def _mask(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    if answer.job is not None:
        await mask_info(Turns(), masks.of(answer.descriptor.partition(":")[0]), answer.job)


METHODS = [ServedMethod("explainJob", handle=_explain_job, queues=queue_of_call, mask=_mask)]
