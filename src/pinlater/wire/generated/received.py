"""What incoming structs are decoded into. Generated from pinlater.thrift by pinlater.wire.freshness. Do not edit.

A field that was not sent has its default. Required ones and arguments are never None once they are checked (`wire.checks`).
"""

from __future__ import annotations

from typing import Any

_NOT_SENT: Any = None


class PinLaterException:
    errorCode: int = _NOT_SENT
    message: str = _NOT_SENT
    detail: str | None = None
    retryable: bool | None = None
    retryAfterMillis: int | None = None


class RequestContext:
    source: str = _NOT_SENT
    requestId: str = ''
    authToken: str = ''
    onBehalfOf: str | None = None
    callerAddress: str | None = None


class PinLaterJob:
    body: bytes = _NOT_SENT
    priority: int = 1
    runAfterTimestampMillis: int | None = None
    numAttemptsAllowed: int | None = None
    customStatus: str = ''
    headers: dict[str, str] | None = None
    uniqueKey: str | None = None
    uniqueScope: int = 1
    uniqueForMillis: int | None = None
    claimTimeoutMillis: int | None = None
    expiresAtMillis: int | None = None


class PinLaterEnqueueRequest:
    queueName: str = _NOT_SENT
    jobs: list[PinLaterJob] = _NOT_SENT
    requestKey: str | None = None
    repeated: bool | None = None


class PinLaterEnqueueResponse:
    jobDescriptors: list[str] = _NOT_SENT
    existing: list[int] | None = None


class PinLaterJobAckInfo:
    jobDescriptor: str = _NOT_SENT
    appendCustomStatus: str = ''
    retryDelayMillis: int = 0
    claimToken: str | None = None
    finalFailure: bool | None = None
    errorType: str | None = None
    errorText: str | None = None


class PinLaterJobAckRequest:
    queueName: str = _NOT_SENT
    jobsSucceeded: list[PinLaterJobAckInfo] | None = None
    jobsFailed: list[PinLaterJobAckInfo] | None = None
    perItemErrors: bool | None = None


class AckOutcome:
    descriptor: str = _NOT_SENT
    outcome: int = _NOT_SENT
    holder: str | None = None
    heldSinceMillis: int | None = None
    claimDeadlineMillis: int | None = None
    errorCode: int | None = None
    errorDetail: str | None = None
    retryable: bool | None = None
    retryAfterMillis: int | None = None


class MovedJob:
    descriptor: str = _NOT_SENT
    outcome: int = _NOT_SENT
    movedTo: str | None = None
    holder: str | None = None
    heldSinceMillis: int | None = None


class WorkerInfo:
    library: str | None = None
    version: str | None = None
    host: str | None = None
    pid: int | None = None
    concurrency: int | None = None
    running: int | None = None
    startedAtMillis: int | None = None


class PinLaterDequeueRequest:
    queueName: str = _NOT_SENT
    limit: int = _NOT_SENT
    jobAckRequest: PinLaterJobAckRequest | None = None
    dryRun: bool = False
    coverage: float = 1.0
    waitMillis: int | None = None
    process: int | None = None
    worker: WorkerInfo | None = None


class PinLaterDequeueMetadata:
    attemptsAllowed: int | None = None
    attemptsRemaining: int | None = None
    claimToken: str | None = None
    headers: dict[str, str] | None = None
    claimDeadlineMillis: int | None = None
    createdAtTimestampMillis: int | None = None
    attempt: int | None = None
    bodyMasked: bool | None = None


class PinLaterDequeueResponse:
    jobs: dict[str, bytes] | None = None
    jobMetadata: dict[str, PinLaterDequeueMetadata] | None = None
    ackOutcomes: list[AckOutcome] | None = None
    jobOrder: list[str] | None = None


class PinLaterCheckpointJobRequest:
    jobDescriptor: str = _NOT_SENT
    newBody: bytes | None = None
    moveToPending: bool = False
    runAfterTimestampMillis: int | None = None
    numOfAttemptsAllowed: int | None = None
    prependCustomStatus: str | None = None
    claimToken: str | None = None


class PinLaterCheckpointJobsRequest:
    queueName: str = _NOT_SENT
    requests: list[PinLaterCheckpointJobRequest] = _NOT_SENT
    perItemErrors: bool | None = None


class PinLaterLookupJobRequest:
    jobDescriptors: list[str] = _NOT_SENT
    includeBody: bool = False


class Attempt:
    number: int = _NOT_SENT
    claimedBy: str | None = None
    claimedAtMillis: int | None = None
    endedAtMillis: int | None = None
    outcome: str | None = None
    errorType: str | None = None
    errorText: str | None = None


class PinLaterJobInfo:
    jobDescriptor: str = _NOT_SENT
    jobState: int = _NOT_SENT
    attemptsAllowed: int = _NOT_SENT
    attemptsRemaining: int = _NOT_SENT
    customStatus: str = _NOT_SENT
    createdAtTimestampMillis: int = _NOT_SENT
    runAfterTimestampMillis: int | None = None
    updatedAtTimestampMillis: int | None = None
    claimDescriptor: str | None = None
    body: bytes | None = None
    headers: dict[str, str] | None = None
    uniqueKey: str | None = None
    claimDeadlineMillis: int | None = None
    lastErrorType: str | None = None
    lastErrorText: str | None = None
    attempts: list[Attempt] | None = None
    finishedAtTimestampMillis: int | None = None
    expiresAtMillis: int | None = None
    progress: str | None = None
    bodyMasked: bool | None = None
    failureGroup: str | None = None


class PinLaterGetJobCountRequest:
    queueName: str = _NOT_SENT
    jobState: int = _NOT_SENT
    priority: int | None = None
    countFutureJobs: bool = False
    bodyRegexToMatch: str | None = None


class PinLaterScanJobsRequest:
    queueName: str = _NOT_SENT
    jobState: int = _NOT_SENT
    priority: int | None = None
    scanFutureJobs: bool = False
    continuation: str = '0'
    limit: int = 100
    bodyRegexToMatch: str | None = None
    paged: bool | None = None
    includeBody: bool | None = None
    shard: str | None = None


class PinLaterScanJobsResponse:
    scannedJobs: list[PinLaterJobInfo] = _NOT_SENT
    continuation: str = '-1'
    incomplete: bool | None = None


class PinLaterRetryFailedJobsRequest:
    queueName: str = _NOT_SENT
    priority: int = 1
    attemptsToAllow: int = 1
    runAfterTimestampMillis: int | None = None
    limit: int = 1000
    skipCancelled: bool | None = None


class PinLaterDeleteJobsRequest:
    queueName: str = _NOT_SENT
    jobState: int = _NOT_SENT
    priority: int = 1
    bodyRegexToMatch: str | None = None
    limit: int = 1000


class RunJobsRequest:
    queueName: str = _NOT_SENT
    jobDescriptors: list[str] = _NOT_SENT
    runAfterTimestampMillis: int | None = None
    attemptsToAllow: int = 1


class ChangePriorityRequest:
    queueName: str = _NOT_SENT
    jobDescriptors: list[str] = _NOT_SENT
    priority: int = _NOT_SENT


class ClaimRef:
    jobDescriptor: str = _NOT_SENT
    claimToken: str = _NOT_SENT


class ClaimsRequest:
    queueName: str = _NOT_SENT
    claims: list[ClaimRef] = _NOT_SENT
    perItemErrors: bool | None = None
    process: int | None = None
    worker: WorkerInfo | None = None


class ReleaseRequest:
    queueName: str = _NOT_SENT
    claims: list[ClaimRef] = _NOT_SENT
    delayMillis: int = 0
    perItemErrors: bool | None = None


class QueueConfig:
    maxJobsPerSecond: float | None = None
    claimTimeoutMillis: int | None = None
    succeededTtlMillis: int | None = None
    failedTtlMillis: int | None = None
    maxBacklog: int | None = None
    defaultAttempts: int | None = None
    defaultExpiryMillis: int | None = None
    paused: bool | None = None
    burst: int | None = None


class QueueCounts:
    priority: int = _NOT_SENT
    pending: int = _NOT_SENT
    future: int = _NOT_SENT
    inProgress: int = _NOT_SENT
    succeeded: int = _NOT_SENT
    failed: int = _NOT_SENT
    enqueuedTotal: int = _NOT_SENT
    claimedTotal: int = _NOT_SENT
    succeededTotal: int = _NOT_SENT
    failedTotal: int = _NOT_SENT
    retriedTotal: int = _NOT_SENT
    oldestDueAtMillis: int | None = None


class QueueRates:
    enqueued: float = _NOT_SENT
    claimed: float = _NOT_SENT
    succeeded: float = _NOT_SENT
    failed: float = _NOT_SENT
    retried: float = _NOT_SENT


class QueueStats:
    queueName: str = _NOT_SENT
    paused: bool = _NOT_SENT
    counts: list[QueueCounts] = _NOT_SENT
    oldestWaitingMillis: int | None = None
    rates: QueueRates = _NOT_SENT
    waitingDequeues: int = _NOT_SENT
    incomplete: bool | None = None
    maxJobsPerSecond: float | None = None


class FailureGroup:
    queueName: str = _NOT_SENT
    name: str = _NOT_SENT
    task: str = _NOT_SENT
    errorType: str = _NOT_SENT
    pattern: str = _NOT_SENT
    failures: int = _NOT_SENT
    firstMillis: int = _NOT_SENT
    lastMillis: int = _NOT_SENT
    sampleDescriptor: str = _NOT_SENT
    hours: list[int] = _NOT_SENT
    mutedUntilMillis: int | None = None


class BulkFilter:
    jobState: int = _NOT_SENT
    priority: int | None = None
    bodyRegexToMatch: str | None = None
    tasks: list[str] | None = None
    headers: dict[str, str] | None = None
    errorText: str | None = None
    minAttempts: int | None = None
    enqueuedFromMillis: int | None = None
    enqueuedBeforeMillis: int | None = None
    groupName: str | None = None
    skipCancelled: bool | None = None


class BulkOrder:
    queueName: str = _NOT_SENT
    action: int = _NOT_SENT
    filter: BulkFilter = _NOT_SENT
    attemptsToAllow: int = 1
    jobsPerSecond: float | None = None
    forGood: bool | None = None
    undoes: str | None = None
    expectedJobs: int | None = None


class BulkRun:
    id: str = _NOT_SENT
    order: BulkOrder = _NOT_SENT
    startedBy: str = _NOT_SENT
    startedMillis: int = _NOT_SENT
    state: int = _NOT_SENT
    looked: int = _NOT_SENT
    changed: int = _NOT_SENT
    newsMillis: int = _NOT_SENT
    endedMillis: int | None = None
    detail: str | None = None
    undoUntilMillis: int | None = None
    toLookAt: int | None = None
    expectedChanges: int | None = None
    percent: int | None = None
    leftMillis: int | None = None


class BulkRunsRequest:
    queueNames: list[str] = _NOT_SENT


class BulkRunsResponse:
    runs: list[BulkRun] = _NOT_SENT
    incomplete: bool | None = None
    missingShards: list[str] | None = None


class FailureMute:
    queueName: str = _NOT_SENT
    name: str = _NOT_SENT
    untilMillis: int | None = None


class FailuresRequest:
    queueNames: list[str] = _NOT_SENT


class FailuresResponse:
    groups: list[FailureGroup] = _NOT_SENT
    incomplete: bool | None = None


class Percentiles:
    number: int = _NOT_SENT
    p50Millis: int = _NOT_SENT
    p90Millis: int = _NOT_SENT
    p99Millis: int = _NOT_SENT


class HistoryPoint:
    atMillis: int = _NOT_SENT
    enqueued: int = _NOT_SENT
    claimed: int = _NOT_SENT
    succeeded: int = _NOT_SENT
    failed: int = _NOT_SENT
    timedOut: int = _NOT_SENT
    expired: int = _NOT_SENT
    due: int | None = None
    scheduled: int | None = None
    inProgress: int | None = None
    oldestWaitingMillis: int | None = None
    waits: Percentiles | None = None
    runs: Percentiles | None = None


class QueueHistory:
    queueName: str = _NOT_SENT
    points: list[HistoryPoint] = _NOT_SENT


class QueueHistoryRequest:
    queueNames: list[str] = _NOT_SENT
    fromMillis: int = _NOT_SENT
    untilMillis: int | None = None
    stepSeconds: int | None = None


class DeployMark:
    atMillis: int = _NOT_SENT
    text: str = _NOT_SENT
    queueName: str | None = None


class QueueHistoryResponse:
    queues: list[QueueHistory] = _NOT_SENT
    marks: list[DeployMark] = _NOT_SENT
    stepSeconds: int = _NOT_SENT
    fromMillis: int = _NOT_SENT
    untilMillis: int = _NOT_SENT
    incomplete: bool | None = None


class JobCount:
    jobs: int = _NOT_SENT
    incomplete: bool | None = None


class UniqueKeyRequest:
    queueNames: list[str] = _NOT_SENT
    uniqueKey: str = _NOT_SENT


class KeyHolders:
    jobs: list[PinLaterJobInfo] = _NOT_SENT
    incomplete: bool | None = None


class SettingsInForce:
    values: QueueConfig = _NOT_SENT
    origins: dict[str, str] = _NOT_SENT


class WaitingDequeues:
    queueName: str = _NOT_SENT
    source: str = _NOT_SENT
    number: int = _NOT_SENT


class WorkerQueue:
    queueName: str = _NOT_SENT
    askedMillisAgo: int | None = None
    handedOut: int = _NOT_SENT
    timedOut: int = _NOT_SENT
    late: int = _NOT_SENT
    timedOutLately: int = _NOT_SENT
    lateLately: int = _NOT_SENT
    timedOutTimes: int | None = None


class LostClaim:
    queueName: str = _NOT_SENT
    jobDescriptor: str = _NOT_SENT
    endedMillisAgo: int = _NOT_SENT


class WorkerStatus:
    source: str = _NOT_SENT
    process: int | None = None
    heardMillisAgo: int | None = None
    queues: list[WorkerQueue] = _NOT_SENT
    claimMillis: int | None = None
    info: WorkerInfo | None = None
    saidMillisAgo: int | None = None
    lost: list[LostClaim] = _NOT_SENT


class ServerWorkers:
    workers: list[WorkerStatus] = _NOT_SENT
    waiting: list[WaitingDequeues] = _NOT_SENT
    serverId: str = _NOT_SENT
    servers: int = _NOT_SENT
    nowMillis: int = _NOT_SENT
    upMillis: int = _NOT_SENT
    forgotten: int = _NOT_SENT


class AuditRequest:
    queueName: str | None = None
    who: str | None = None
    operation: str | None = None
    sinceTimestampMillis: int | None = None
    untilTimestampMillis: int | None = None
    limit: int = 100
    continuation: str | None = None


class AuditEntry:
    id: str = _NOT_SENT
    atMillis: int = _NOT_SENT
    who: str = _NOT_SENT
    roles: list[str] = _NOT_SENT
    source: str = _NOT_SENT
    address: str = _NOT_SENT
    operation: str = _NOT_SENT
    queueName: str = _NOT_SENT
    arguments: str = _NOT_SENT
    jobs: int | None = None
    outcome: str = _NOT_SENT
    detail: str = _NOT_SENT
    server: str = _NOT_SENT


class AuditPage:
    entries: list[AuditEntry] = _NOT_SENT
    continuation: str | None = None
    incomplete: bool | None = None


class ClusterServer:
    address: str = _NOT_SENT
    name: str | None = None
    slots: dict[str, int] = _NOT_SENT
    answers: bool = _NOT_SENT
    heard: bool = _NOT_SENT
    heardMillisAgo: int | None = None
    usable: bool = _NOT_SENT
    unansweredCalls: int = _NOT_SENT
    itemsSent: int = _NOT_SENT
    itemsTaken: int = _NOT_SENT
    version: str | None = None
    startedAtMillis: int | None = None
    connections: int | None = None
    loopLagMillis: int | None = None


class ShardLane:
    kind: str = _NOT_SENT
    waiting: int = _NOT_SENT
    running: int = _NOT_SENT
    runningMillis: int | None = None
    calls: int = _NOT_SENT
    requests: int = _NOT_SENT
    meanMillis: float | None = None
    slowestMillis: float | None = None


class ShardJobs:
    countedAtMillis: int = _NOT_SENT
    due: int = _NOT_SENT
    scheduled: int = _NOT_SENT
    inProgress: int = _NOT_SENT
    succeeded: int = _NOT_SENT
    failed: int = _NOT_SENT
    oldestDueAtMillis: int | None = None


class ShardSize:
    usedBytes: int | None = None
    logBytes: int | None = None
    limitBytes: int | None = None
    measuredAtMillis: int | None = None
    late: bool | None = None


class ShardDrain:
    sinceMillis: int = _NOT_SENT
    leaving: bool = _NOT_SENT
    liveAtFirst: int | None = None
    jobsPerSecond: float | None = None
    emptyAtMillis: int | None = None


class ShardMemory:
    jobs: int = _NOT_SENT
    bytes: int = _NOT_SENT
    claims: int = _NOT_SENT
    staleClaims: int = _NOT_SENT


class ShardDetails:
    kind: str = _NOT_SENT
    address: str | None = None
    takesEnqueues: bool = _NOT_SENT
    sinceMillis: int = _NOT_SENT
    failure: str | None = None
    failedAtMillis: int | None = None
    probing: bool = _NOT_SENT
    stalled: bool = _NOT_SENT
    full: str | None = None
    jobs: ShardJobs | None = None
    size: ShardSize = _NOT_SENT
    drain: ShardDrain | None = None
    lanes: list[ShardLane] = _NOT_SENT
    failureKind: str | None = None
    memory: ShardMemory | None = None


class ClusterShard:
    name: str = _NOT_SENT
    inReach: bool = _NOT_SENT
    ownersVersion: int = _NOT_SENT
    owners: list[int] = _NOT_SENT
    misplacedSlices: list[int] = _NOT_SENT
    details: ShardDetails | None = None


class ForwardedCalls:
    kind: str = _NOT_SENT
    callsSent: int = _NOT_SENT
    itemsSent: int = _NOT_SENT
    callsTaken: int = _NOT_SENT
    itemsTaken: int = _NOT_SENT


class FrontProcess:
    number: int = _NOT_SENT
    callsTaken: int = _NOT_SENT
    callsUnderWay: int = _NOT_SENT
    waitingCalls: int = _NOT_SENT
    untakenBytes: int = _NOT_SENT


class ClusterStatus:
    address: str = _NOT_SENT
    servers: list[ClusterServer] = _NOT_SENT
    shards: list[ClusterShard] = _NOT_SENT
    forwarded: list[ForwardedCalls] = _NOT_SENT
    moves: int = _NOT_SENT
    answersLost: int = _NOT_SENT
    incomplete: bool | None = None
    frontProcesses: list[FrontProcess] | None = None


class CallerRights:
    tokenName: str | None = None
    roles: list[str] = _NOT_SENT
    queues: list[str] = _NOT_SENT
    expiresAtMillis: int | None = None
    speaksForOthers: bool | None = None


class JobsAhead:
    jobs: int = _NOT_SENT
    atLeast: bool = _NOT_SENT
    incomplete: bool = _NOT_SENT


class QueueFacts:
    paused: bool = _NOT_SENT
    pausedAtMillis: int | None = None
    pausedBy: str | None = None
    maxJobsPerSecond: float | None = None
    nextSlotMillis: int | None = None
    claimedPerSecond: float = _NOT_SENT
    inProgress: int = _NOT_SENT
    waitingDequeues: int = _NOT_SENT
    lastDequeueAtMillis: int | None = None
    serverStartedAtMillis: int = _NOT_SENT
    servers: int = _NOT_SENT


class ShardFacts:
    name: str = _NOT_SENT
    inReach: bool = _NOT_SENT
    drains: bool = _NOT_SENT


class JobExplanation:
    jobDescriptor: str = _NOT_SENT
    job: PinLaterJobInfo | None = None
    nowMillis: int = _NOT_SENT
    shard: ShardFacts = _NOT_SENT
    queue: QueueFacts = _NOT_SENT
    jobsAhead: JobsAhead | None = None


class ServerInfo:
    version: str = _NOT_SENT
    features: list[str] = _NOT_SENT
    storeKind: str = _NOT_SENT
    nowMillis: int = _NOT_SENT
    startedAtMillis: int = _NOT_SENT
    priorityLevels: int = _NOT_SENT
    maxBodyBytes: int = _NOT_SENT
    maxFrameBytes: int = _NOT_SENT
    maxJobsPerRequest: int = _NOT_SENT
    maxDescriptorsPerRequest: int = _NOT_SENT
    maxWaitMillis: int = _NOT_SENT
    access: str | None = None
    serverId: str | None = None
    caller: CallerRights | None = None


class OwningServer:
    id: str = _NOT_SENT
    address: str | None = None


class OwnedShard:
    name: str = _NOT_SENT
    takesEnqueues: bool = _NOT_SENT
    owners: list[int] = _NOT_SENT


class QueueOwners:
    servers: list[OwningServer] = _NOT_SENT
    shards: list[OwnedShard] = _NOT_SENT


class createQueue_args:
    requestContext: RequestContext = _NOT_SENT
    name: str = _NOT_SENT


class createQueue_result:
    e: PinLaterException | None = None


class deleteQueue_args:
    requestContext: RequestContext = _NOT_SENT
    name: str = _NOT_SENT
    password: str = _NOT_SENT


class deleteQueue_result:
    e: PinLaterException | None = None


class enqueueJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterEnqueueRequest = _NOT_SENT


class enqueueJobs_result:
    success: PinLaterEnqueueResponse | None = None
    e: PinLaterException | None = None


class dequeueJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterDequeueRequest = _NOT_SENT


class dequeueJobs_result:
    success: PinLaterDequeueResponse | None = None
    e: PinLaterException | None = None


class ackDequeuedJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterJobAckRequest = _NOT_SENT


class ackDequeuedJobs_result:
    e: PinLaterException | None = None


class checkpointJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterCheckpointJobsRequest = _NOT_SENT


class checkpointJobs_result:
    e: PinLaterException | None = None


class lookupJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterLookupJobRequest = _NOT_SENT


class lookupJobs_result:
    success: dict[str, PinLaterJobInfo] | None = None
    e: PinLaterException | None = None


class getJobCount_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterGetJobCountRequest = _NOT_SENT


class getJobCount_result:
    success: int | None = None
    e: PinLaterException | None = None


class getQueueNames_args:
    requestContext: RequestContext = _NOT_SENT


class getQueueNames_result:
    success: set[str] | None = None
    e: PinLaterException | None = None


class scanJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterScanJobsRequest = _NOT_SENT


class scanJobs_result:
    success: PinLaterScanJobsResponse | None = None
    e: PinLaterException | None = None


class retryFailedJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterRetryFailedJobsRequest = _NOT_SENT


class retryFailedJobs_result:
    success: int | None = None
    e: PinLaterException | None = None


class deleteJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterDeleteJobsRequest = _NOT_SENT


class deleteJobs_result:
    success: int | None = None
    e: PinLaterException | None = None


class getServerInfo_args:
    requestContext: RequestContext = _NOT_SENT


class getServerInfo_result:
    success: ServerInfo | None = None
    e: PinLaterException | None = None


class ackJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterJobAckRequest = _NOT_SENT


class ackJobs_result:
    success: list[AckOutcome] | None = None
    e: PinLaterException | None = None


class checkpointJobsFenced_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterCheckpointJobsRequest = _NOT_SENT


class checkpointJobsFenced_result:
    success: list[AckOutcome] | None = None
    e: PinLaterException | None = None


class heartbeatClaims_args:
    requestContext: RequestContext = _NOT_SENT
    request: ClaimsRequest = _NOT_SENT


class heartbeatClaims_result:
    success: list[AckOutcome] | None = None
    e: PinLaterException | None = None


class releaseJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: ReleaseRequest = _NOT_SENT


class releaseJobs_result:
    success: list[AckOutcome] | None = None
    e: PinLaterException | None = None


class cancelJobs_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT
    jobDescriptors: list[str] = _NOT_SENT


class cancelJobs_result:
    success: list[AckOutcome] | None = None
    e: PinLaterException | None = None


class configureQueue_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT
    config: QueueConfig = _NOT_SENT


class configureQueue_result:
    e: PinLaterException | None = None


class getQueueConfig_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT


class getQueueConfig_result:
    success: QueueConfig | None = None
    e: PinLaterException | None = None


class pauseQueue_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT


class pauseQueue_result:
    e: PinLaterException | None = None


class resumeQueue_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT


class resumeQueue_result:
    e: PinLaterException | None = None


class getQueueStats_args:
    requestContext: RequestContext = _NOT_SENT
    queueNames: list[str] = _NOT_SENT


class getQueueStats_result:
    success: list[QueueStats] | None = None
    e: PinLaterException | None = None


class runJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: RunJobsRequest = _NOT_SENT


class runJobs_result:
    success: list[AckOutcome] | None = None
    e: PinLaterException | None = None


class changePriority_args:
    requestContext: RequestContext = _NOT_SENT
    request: ChangePriorityRequest = _NOT_SENT


class changePriority_result:
    success: list[MovedJob] | None = None
    e: PinLaterException | None = None


class countJobs_args:
    requestContext: RequestContext = _NOT_SENT
    request: PinLaterGetJobCountRequest = _NOT_SENT


class countJobs_result:
    success: JobCount | None = None
    e: PinLaterException | None = None


class findUniqueKey_args:
    requestContext: RequestContext = _NOT_SENT
    request: UniqueKeyRequest = _NOT_SENT


class findUniqueKey_result:
    success: KeyHolders | None = None
    e: PinLaterException | None = None


class getSettingsInForce_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT


class getSettingsInForce_result:
    success: SettingsInForce | None = None
    e: PinLaterException | None = None


class getWaitingDequeues_args:
    requestContext: RequestContext = _NOT_SENT


class getWaitingDequeues_result:
    success: list[WaitingDequeues] | None = None
    e: PinLaterException | None = None


class getWorkers_args:
    requestContext: RequestContext = _NOT_SENT
    everywhere: bool = _NOT_SENT


class getWorkers_result:
    success: list[ServerWorkers] | None = None
    e: PinLaterException | None = None


class getCluster_args:
    requestContext: RequestContext = _NOT_SENT


class getCluster_result:
    success: ClusterStatus | None = None
    e: PinLaterException | None = None


class explainJob_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT
    jobDescriptor: str = _NOT_SENT


class explainJob_result:
    success: JobExplanation | None = None
    e: PinLaterException | None = None


class getQueueOwners_args:
    requestContext: RequestContext = _NOT_SENT


class getQueueOwners_result:
    success: QueueOwners | None = None
    e: PinLaterException | None = None


class getAudit_args:
    requestContext: RequestContext = _NOT_SENT
    request: AuditRequest = _NOT_SENT


class getAudit_result:
    success: AuditPage | None = None
    e: PinLaterException | None = None


class getQueueHistory_args:
    requestContext: RequestContext = _NOT_SENT
    request: QueueHistoryRequest = _NOT_SENT


class getQueueHistory_result:
    success: QueueHistoryResponse | None = None
    e: PinLaterException | None = None


class getFailures_args:
    requestContext: RequestContext = _NOT_SENT
    request: FailuresRequest = _NOT_SENT


class getFailures_result:
    success: FailuresResponse | None = None
    e: PinLaterException | None = None


class startBulkRun_args:
    requestContext: RequestContext = _NOT_SENT
    order: BulkOrder = _NOT_SENT


class startBulkRun_result:
    success: BulkRun | None = None
    e: PinLaterException | None = None


class stopBulkRun_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT
    runId: str = _NOT_SENT


class stopBulkRun_result:
    success: BulkRun | None = None
    e: PinLaterException | None = None


class getBulkRuns_args:
    requestContext: RequestContext = _NOT_SENT
    queueNames: list[str] = _NOT_SENT


class getBulkRuns_result:
    success: list[BulkRun] | None = None
    e: PinLaterException | None = None


class listBulkRuns_args:
    requestContext: RequestContext = _NOT_SENT
    request: BulkRunsRequest = _NOT_SENT


class listBulkRuns_result:
    success: BulkRunsResponse | None = None
    e: PinLaterException | None = None


class muteFailures_args:
    requestContext: RequestContext = _NOT_SENT
    mute: FailureMute = _NOT_SENT


class muteFailures_result:
    e: PinLaterException | None = None


class addDeployMark_args:
    requestContext: RequestContext = _NOT_SENT
    mark: DeployMark = _NOT_SENT


class addDeployMark_result:
    e: PinLaterException | None = None


class deleteJobsByDescriptor_args:
    requestContext: RequestContext = _NOT_SENT
    queueName: str = _NOT_SENT
    jobDescriptors: list[str] = _NOT_SENT


class deleteJobsByDescriptor_result:
    success: int | None = None
    e: PinLaterException | None = None
