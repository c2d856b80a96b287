"""Why a job waits."""

from __future__ import annotations

from typing import Any

from pinlater.domain.body_masks import BodyMasks
from pinlater.server.operations.service import Service
from pinlater.server.thrift.masking import Turns, mask_info
from pinlater.server.thrift.methods.looking import job_info, number
from pinlater.server.thrift.methods.record import ServedMethod, queue_of_call
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types


async def _explain_job(service: Service, call: received.explainJob_args) -> types.JobExplanation:
    explained = await service.explaining.explain(call.queueName, call.jobDescriptor)
    queue, ahead = explained.queue, explained.ahead
    return types.JobExplanation(
        jobDescriptor=explained.descriptor,
        job=None if explained.job is None else job_info(explained.job),
        nowMillis=explained.now_ms,
        shard=types.ShardFacts(*explained.shard),
        queue=types.QueueFacts(
            paused=queue.paused,
            pausedAtMillis=queue.paused_at_ms,
            pausedBy=queue.paused_by or None,
            maxJobsPerSecond=queue.max_jobs_per_second,
            nextSlotMillis=queue.next_slot_ms,
            claimedPerSecond=queue.claimed_per_second,
            inProgress=queue.running,
            waitingDequeues=number(queue.waiting_dequeues),
            lastDequeueAtMillis=queue.last_dequeue_at_ms,
            serverStartedAtMillis=queue.server_started_at_ms,
            servers=number(queue.servers),
        ),
        jobsAhead=None if ahead is None else types.JobsAhead(*ahead),
    )


async def _mask(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    if answer.job is not None:
        await mask_info(Turns(), masks.of(answer.jobDescriptor.partition(":")[0]), answer.job)


METHODS = [ServedMethod("explainJob", handle=_explain_job, queues=queue_of_call, mask=_mask)]
