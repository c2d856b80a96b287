"""Which operation a method calls: a table, and one small function for each. No business logic here.

A handler takes the service and the decoded arguments, and returns what the wire answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pinlater.server.operations.long_lists import ITEMS_A_TURN, JOBS_A_TURN, in_turns
from pinlater.server.operations.service import Service
from pinlater.server.thrift import answers, requests
from pinlater.server.thrift.requests import caller, named_source, worker
from pinlater.wire.bulk_runs import wire_list, wire_run
from pinlater.wire.generated import received
from pinlater.wire.queue_settings import config_of

Handler = Callable[[Service, Any], Awaitable[Any]]


async def create_queue(service: Service, call: received.createQueue_args) -> None:
    await service.queues.create_queue(call.name)


async def delete_queue(service: Service, call: received.deleteQueue_args) -> None:
    await service.queues.delete_queue(call.name, call.password)


async def enqueue_jobs(service: Service, call: received.enqueueJobs_args) -> Any:
    request = call.request
    stored = await service.enqueuing.enqueue(
        request.queueName,
        requests.jobs_to_enqueue(request.jobs),
        request_key=request.requestKey or None,
        repeat=bool(request.repeated),
        arrived_s=getattr(call, "arrived_s", None),
    )
    return answers.enqueued(stored)


async def dequeue_jobs(service: Service, call: received.dequeueJobs_args) -> Any:
    request = call.request
    queue = request.queueName
    dequeued = await service.dequeuing.dequeue(
        worker(call.requestContext, request), await requests.dequeue_command(request)
    )
    if len(dequeued.ack_results) <= ITEMS_A_TURN:
        return answers.DequeueAnswer(queue, dequeued)
    try:
        outcomes = await in_turns(dequeued.ack_results, answers.ack_outcomes)
    except asyncio.CancelledError:  # the caller has gone: what was claimed goes back, unspent
        service.dequeuing.undelivered(queue, dequeued.claimed)
        raise
    return answers.DequeueAnswer(queue, dequeued, outcomes)


async def ack_dequeued_jobs(service: Service, call: received.ackDequeuedJobs_args) -> None:
    # Its answer has no outcomes, so an error of a single item would be lost.
    batch = await requests.ack_batch(call.request, per_item_errors=False)
    await service.claimed_jobs.acknowledge(caller(call.requestContext), batch)


async def ack_jobs(service: Service, call: received.ackJobs_args) -> Any:
    request = call.request
    batch = await requests.ack_batch(request, per_item_errors=bool(request.perItemErrors))
    results = await service.claimed_jobs.acknowledge(caller(call.requestContext), batch)
    return await in_turns(results, answers.ack_outcomes)


async def checkpoint_jobs(service: Service, call: received.checkpointJobs_args) -> None:
    await service.claimed_jobs.checkpoint(
        caller(call.requestContext), call.request.queueName, await requests.checkpoints(call.request)
    )


async def checkpoint_jobs_fenced(service: Service, call: received.checkpointJobsFenced_args) -> Any:
    request = call.request
    results = await service.claimed_jobs.checkpoint(
        caller(call.requestContext),
        request.queueName,
        await requests.checkpoints(request),
        per_item_errors=bool(request.perItemErrors),
    )
    return await in_turns(results, answers.ack_outcomes)


async def heartbeat_claims(service: Service, call: received.heartbeatClaims_args) -> Any:
    request = call.request
    claims = await requests.claims(request)
    results = await service.claimed_jobs.heartbeat(
        request.queueName,
        claims,
        caller=worker(call.requestContext, request),
        per_item_errors=bool(request.perItemErrors),
    )
    return await in_turns(results, answers.ack_outcomes)


async def release_jobs(service: Service, call: received.releaseJobs_args) -> Any:
    request = call.request
    claims = await requests.claims(request)
    results = await service.claimed_jobs.release(
        request.queueName,
        claims,
        request.delayMillis,
        caller=caller(call.requestContext),
        per_item_errors=bool(request.perItemErrors),
    )
    return await in_turns(results, answers.ack_outcomes)


async def cancel_jobs(service: Service, call: received.cancelJobs_args) -> Any:
    results = await service.claimed_jobs.cancel(call.queueName, call.jobDescriptors)
    return await in_turns(results, answers.ack_outcomes)


async def lookup_jobs(service: Service, call: received.lookupJobs_args) -> Any:
    request = call.request
    found = await service.job_queries.lookup(request.jobDescriptors, bodies=request.includeBody)
    return dict(await in_turns(found, answers.looked_up))


async def find_unique_key(service: Service, call: received.findUniqueKey_args) -> Any:
    found = await service.job_queries.find_unique_key(call.request.queueNames, call.request.uniqueKey)
    jobs = await in_turns(found.jobs, answers.job_infos, JOBS_A_TURN)
    return answers.key_holders(found, jobs)


async def get_job_count(service: Service, call: received.getJobCount_args) -> int:
    return answers.number(await service.job_queries.count(requests.count_filter(call.request)))


async def count_jobs(service: Service, call: received.countJobs_args) -> Any:
    return answers.job_count(await service.job_queries.count_jobs(requests.count_filter(call.request)))


async def get_queue_names(service: Service, call: received.getQueueNames_args) -> set[str]:
    del call
    return set(await service.queues.queue_names())


async def scan_jobs(service: Service, call: received.scanJobs_args) -> Any:
    found = await service.job_queries.scan(requests.scan_command(call.request))
    jobs = await in_turns(found.jobs, answers.job_infos, JOBS_A_TURN)
    return answers.scanned(found, jobs)


async def retry_failed_jobs(service: Service, call: received.retryFailedJobs_args) -> int:
    request = call.request
    return answers.number(
        await service.bulk.retry_failed(
            request.queueName,
            request.priority,
            request.attemptsToAllow,
            request.runAfterTimestampMillis,
            request.limit,
            skip_cancelled=bool(request.skipCancelled),
        )
    )


async def run_jobs(service: Service, call: received.runJobs_args) -> Any:
    request = call.request
    results = await service.bulk.run_jobs(
        request.queueName, request.jobDescriptors, request.attemptsToAllow, request.runAfterTimestampMillis
    )
    return await in_turns(results, answers.ack_outcomes)


async def change_priority(service: Service, call: received.changePriority_args) -> Any:
    request = call.request
    results = await service.bulk.change_priority(request.queueName, request.jobDescriptors, request.priority)
    return await in_turns(results, answers.moved_jobs)


async def delete_jobs(service: Service, call: received.deleteJobs_args) -> int:
    return answers.number(await service.bulk.delete_jobs(requests.delete_filter(call.request), call.request.limit))


async def delete_jobs_by_descriptor(service: Service, call: received.deleteJobsByDescriptor_args) -> int:
    return answers.number(await service.bulk.delete_jobs_by_descriptor(call.queueName, call.jobDescriptors))


async def configure_queue(service: Service, call: received.configureQueue_args) -> None:
    await service.queues.configure_queue(call.queueName, config_of(call.config))


async def get_queue_config(service: Service, call: received.getQueueConfig_args) -> Any:
    return answers.queue_config(await service.queues.queue_config(call.queueName))


async def get_settings_in_force(service: Service, call: received.getSettingsInForce_args) -> Any:
    return answers.settings_in_force(await service.queue_settings.in_force(call.queueName))


async def get_waiting_dequeues(service: Service, call: received.getWaitingDequeues_args) -> Any:
    del call
    return await in_turns(await service.waiting_dequeues(), answers.waiting_dequeues)


async def get_workers(service: Service, call: received.getWorkers_args) -> Any:
    return await answers.workers(await service.known_workers(bool(call.everywhere)))


async def get_cluster(service: Service, call: received.getCluster_args) -> Any:
    del call
    return answers.cluster_status(await service.cluster())


async def get_queue_owners(service: Service, call: received.getQueueOwners_args) -> Any:
    del call
    return answers.queue_owners(await service.owners())


async def get_audit(service: Service, call: received.getAudit_args) -> Any:
    return answers.audit_page(await service.audit.read(requests.audit_filter(call.request)))


async def pause_queue(service: Service, call: received.pauseQueue_args) -> None:
    await service.queues.set_paused(call.queueName, True, named_source(call.requestContext))


async def resume_queue(service: Service, call: received.resumeQueue_args) -> None:
    await service.queues.set_paused(call.queueName, False)


async def get_queue_stats(service: Service, call: received.getQueueStats_args) -> Any:
    return await answers.all_queue_stats(await service.queues.queue_stats(call.queueNames))


async def get_server_info(service: Service, call: received.getServerInfo_args) -> Any:
    del call
    return answers.server_info(await service.server_info())


async def explain_job(service: Service, call: received.explainJob_args) -> Any:
    return answers.job_explanation(await service.explaining.explain(call.queueName, call.jobDescriptor))


async def get_queue_history(service: Service, call: received.getQueueHistory_args) -> Any:
    request = call.request
    history = await service.history.queue_history(
        request.queueNames, request.fromMillis, request.untilMillis, request.stepSeconds
    )
    return await answers.queue_history(history)


async def get_failures(service: Service, call: received.getFailures_args) -> Any:
    return await answers.failure_groups(await service.failures.failure_groups(call.request.queueNames))


async def start_bulk_run(service: Service, call: received.startBulkRun_args) -> Any:
    source = call.requestContext.source
    return wire_run(await service.bulk_runs.start(requests.bulk_order(call.order), source, source))


async def stop_bulk_run(service: Service, call: received.stopBulkRun_args) -> Any:
    return wire_run(await service.bulk_runs.stop(call.queueName, call.runId))


async def get_bulk_runs(service: Service, call: received.getBulkRuns_args) -> Any:
    return list(map(wire_run, await service.bulk_runs.runs(call.queueNames or None)))


async def list_bulk_runs(service: Service, call: received.listBulkRuns_args) -> Any:
    return wire_list(await service.bulk_runs.list_runs(call.request.queueNames or None))


async def mute_failures(service: Service, call: received.muteFailures_args) -> None:
    await service.failures.mute(call.mute.queueName, call.mute.name, call.mute.untilMillis)


async def add_deploy_mark(service: Service, call: received.addDeployMark_args) -> None:
    await service.history.add_mark(call.mark.text, call.mark.atMillis, call.mark.queueName or "")


HANDLERS: dict[str, Handler] = {
    "createQueue": create_queue,
    "deleteQueue": delete_queue,
    "enqueueJobs": enqueue_jobs,
    "dequeueJobs": dequeue_jobs,
    "ackDequeuedJobs": ack_dequeued_jobs,
    "checkpointJobs": checkpoint_jobs,
    "lookupJobs": lookup_jobs,
    "findUniqueKey": find_unique_key,
    "getJobCount": get_job_count,
    "getQueueNames": get_queue_names,
    "scanJobs": scan_jobs,
    "retryFailedJobs": retry_failed_jobs,
    "deleteJobs": delete_jobs,
    "getServerInfo": get_server_info,
    "ackJobs": ack_jobs,
    "checkpointJobsFenced": checkpoint_jobs_fenced,
    "heartbeatClaims": heartbeat_claims,
    "releaseJobs": release_jobs,
    "cancelJobs": cancel_jobs,
    "configureQueue": configure_queue,
    "getQueueConfig": get_queue_config,
    "pauseQueue": pause_queue,
    "resumeQueue": resume_queue,
    "getQueueStats": get_queue_stats,
    "runJobs": run_jobs,
    "changePriority": change_priority,
    "countJobs": count_jobs,
    "getSettingsInForce": get_settings_in_force,
    "getWaitingDequeues": get_waiting_dequeues,
    "getWorkers": get_workers,
    "getCluster": get_cluster,
    "explainJob": explain_job,
    "getQueueHistory": get_queue_history,
    "addDeployMark": add_deploy_mark,
    "getFailures": get_failures,
    "muteFailures": mute_failures,
    "startBulkRun": start_bulk_run,
    "stopBulkRun": stop_bulk_run,
    "getBulkRuns": get_bulk_runs,
    "listBulkRuns": list_bulk_runs,
    "getQueueOwners": get_queue_owners,
    "getAudit": get_audit,
    "deleteJobsByDescriptor": delete_jobs_by_descriptor,
}
