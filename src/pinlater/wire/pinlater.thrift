// The wire contract of PinLater: what old clients know, and our own additions.
//
// Everything with an id below 100 in the types of the original, and the first twelve methods, is what existing clients in
// any language were generated from: names, ids, types, requiredness and defaults never change. Our additions to those types are
// optional fields with ids of 100 and more, and new methods; an old client never notices them. An id is never used twice:
// `released_ids.json` remembers every one that was ever released, and a test compares.
//
// Transport: TCP, framed, binary protocol. Replies on one connection come in the order of the calls.
// Times are milliseconds since the epoch (UTC) where a name ends in `TimestampMillis` or `AtMillis`, and spans of time in
// milliseconds otherwise. Bodies are bytes and come back byte for byte. Every other string is UTF-8, or the call is refused as
// undecodable (TApplicationException, PROTOCOL_ERROR), as is a call in which a required field or an argument is missing.

namespace py thrift_libs
namespace java com.pinterest.pinlater.thrift

// A scan starts at CONTINUATION_START; an answer with CONTINUATION_END is the last one.
const string CONTINUATION_START = "0"
const string CONTINUATION_END = "-1"

// The codes old clients know. The list may not grow: an unknown enum value breaks them. What is finer is in
// PinLaterException.detail.
enum ErrorCode {
  CONTINUATION_INVALID = 400,
  PASSWORD_INVALID = 403,
  QUEUE_NAME_INVALID = 410,
  QUEUE_NAME_TOO_LONG = 411,
  QUEUE_NOT_FOUND = 413,
  PRIORITY_NOT_SUPPORTED = 416,
  DEQUEUE_RATE_LIMITED = 429,
  ENQUEUE_REJECTED = 430,
  UNKNOWN = 500,
  NO_HEALTHY_SHARDS = 501,
  SHARD_CONNECTION_FAILED = 502,
}

enum PinLaterJobState {
  PENDING = 0,
  IN_PROGRESS = 1,
  SUCCEEDED = 2,
  FAILED = 3,
}

// How long a job's uniqueKey is taken.
enum UniqueScope {
  PENDING = 0,     // until the first claim; not taken again by a retry
  UNFINISHED = 1,  // until the job is finished or deleted
  TIME = 2,        // for uniqueForMillis from the enqueue, whatever becomes of the job
}

// What became of an ack, checkpoint, heartbeat, release or cancel.
enum Outcome {
  APPLIED = 0,
  ALREADY_FINAL = 1,  // the job had finished before; nothing changed
  STALE_CLAIM = 2,    // the job is not in the caller's hands (any more); nothing changed
  NOT_FOUND = 3,      // there is no such job in this queue (any more)
  ERROR = 4,          // its shard could not carry it out, see `errorCode`; answered only to requests with perItemErrors
}

// What a bulk run does to each job.
enum BulkAction {
  RETRY = 0,   // FAILED jobs
  DELETE = 1,  // of any state
  CANCEL = 2,  // PENDING or IN_PROGRESS jobs
  RESTORE = 3, // those that the run `undoes` has deleted; of the filter nothing counts
}

enum BulkState {
  RUNNING = 0,
  STOPPED = 1,
  DONE = 2,
  FAILED = 3,
}

exception PinLaterException {
  1: required ErrorCode errorCode
  2: required string message
  // A word in capitals that programs can compare, finer than the code: BODY_TOO_LARGE, TOO_MANY_WAITING, STORE_FULL, QUEUE_FULL,
  // STALE_CLAIM, INVALID_ARGUMENT, DESCRIPTOR_INVALID, SHARD_UNREACHABLE, DRAINING, INTERNAL ...
  100: optional string detail
  // Whether the same call may succeed later.
  101: optional bool retryable
  // When it is worth another try, as a span from now; a hint.
  102: optional i64 retryAfterMillis
}

// The caller. `source` names the worker: a checkpoint without a claim token counts if it equals the source of the dequeue.
struct RequestContext {
  1: required string source
  2: optional string requestId = ""
  // The caller's token, for servers with access control, as `pinlater token create` prints it. Without one the caller has the roles that
  // the server gives to every caller.
  100: optional string authToken = ""
  // The user that the caller speaks for, such as a console behind a proxy that authenticates people. The audit shows the name beside that of
  // the token, if the token may speak for others; else the server ignores it. 1 to 100 letters, digits and _ . @ + - = : / \.
  130: optional string onBehalfOf
  // The IP address of the client of a caller that passes calls on, such as a browser of a console. Nothing proves it: the audit shows it
  // before the address of the connection, and servers ignore what is no IP address.
  131: optional string callerAddress
}

struct PinLaterJob {
  1: required binary body
  // 1 is the highest; getServerInfo says how many levels the server has (3 by default). Else: PRIORITY_NOT_SUPPORTED.
  2: optional byte priority = 1
  // Not handed out before this time; without it: at once.
  3: optional i64 runAfterTimestampMillis
  // At least 1. A client that leaves it out gets the queue's default, which is 2 unless configured.
  4: optional i32 numAttemptsAllowed = 2
  // Cut at 5,000 characters.
  5: optional string customStatus = ""
  // Handed to the worker with the job: trace context, content type and the like. Bounded in bytes, see the settings.
  100: optional map<string, string> headers
  // At most one job of this queue holds the key at a time, across priorities; a later enqueue gets the descriptor of the first.
  101: optional string uniqueKey
  102: optional UniqueScope uniqueScope = UniqueScope.UNFINISHED
  103: optional i64 uniqueForMillis
  // This job's own claim timeout; without it the queue's, then the server's.
  104: optional i64 claimTimeoutMillis
  // Past this time the job becomes FAILED with status `expired` instead of being handed out.
  105: optional i64 expiresAtMillis
  // Jobs of the queue with the same key run one after the other, in the order in which they were enqueued. 1 to 128 bytes.
  106: optional string orderingKey
  // 107 is kept for tenant.
}

struct PinLaterEnqueueRequest {
  1: required string queueName
  2: required list<PinLaterJob> jobs
  // The same key and content again within two minutes stores nothing and gives the first answer; the same key with other
  // content is an error (REQUEST_KEY_CONFLICT). Per queue.
  100: optional string requestKey
  // Says that this is a resend of a call whose answer was lost; looked up wherever the first may have gone.
  101: optional bool repeated
}

struct PinLaterEnqueueResponse {
  // In the order of the jobs.
  1: required list<string> jobDescriptors
  // Indices of the jobs that were not stored because their uniqueKey was taken; their descriptor is the first one's.
  100: optional list<i32> existing
}

struct PinLaterJobAckInfo {
  1: required string jobDescriptor
  2: optional string appendCustomStatus = ""
  // Of a failed job: how long until it is due again.
  3: optional i64 retryDelayMillis = 0
  // With a token the ack counts only for the claim it names; without one, for any job IN_PROGRESS.
  100: optional string claimToken
  // Of a failed job: FAILED now, whatever attempts are left.
  101: optional bool finalFailure
  102: optional string errorType
  // The newest is kept whole up to 4,000 characters; 1 KB of it goes into the attempts' history.
  103: optional string errorText
}

struct PinLaterJobAckRequest {
  1: required string queueName
  2: optional list<PinLaterJobAckInfo> jobsSucceeded
  3: optional list<PinLaterJobAckInfo> jobsFailed
  // The error of a shard is the outcome (ERROR) of the items that it holds, and the rest of the call goes on: a dequeue claims.
  // Without it the error of one shard fails the call. Means nothing to ackDequeuedJobs, whose answer has no outcomes.
  100: optional bool perItemErrors
}

// What became of one job, in answer to an ack, checkpoint, heartbeat, release or cancel.
struct AckOutcome {
  1: required string descriptor
  2: required Outcome outcome
  // With STALE_CLAIM: whose claim it is now, and since when; absent where no client holds the job.
  3: optional string holder
  4: optional i64 heldSinceMillis
  // Where the claim was renewed: its new deadline, as a time.
  5: optional i64 claimDeadlineMillis
  // With ERROR, these as in PinLaterException. With the detail OUTCOME_UNKNOWN the item may have been carried out, else it was not;
  // sending it again is safe.
  6: optional ErrorCode errorCode
  7: optional string errorDetail
  8: optional bool retryable
  9: optional i64 retryAfterMillis
}

// What became of one job, in answer to changePriority.
struct MovedJob {
  1: required string descriptor
  2: required Outcome outcome
  // With APPLIED: the job's descriptor from now on.
  3: optional string movedTo
  // With STALE_CLAIM: as in AckOutcome.
  4: optional string holder
  5: optional i64 heldSinceMillis
}

// What a process of a worker says of itself, for operators.
struct WorkerInfo {
  // The kind of its client library, as `python`, and its version.
  1: optional string library
  2: optional string version
  3: optional string host
  4: optional i64 pid
  // Jobs that it runs at once at most, and that it runs now.
  5: optional i32 concurrency
  6: optional i32 running
  // By its own clock.
  7: optional i64 startedAtMillis
}

struct PinLaterDequeueRequest {
  1: required string queueName
  // Cut at the server's bound, and by the bytes that fit a frame; fewer jobs than this is no error.
  2: required i32 limit
  // Carried out before the claim, also for a dry run and where the dequeue is then refused. May name another queue. If it fails
  // nothing is claimed; with its perItemErrors the errors of shards are outcomes and the claim goes on.
  3: optional PinLaterJobAckRequest jobAckRequest
  // Shows jobs and changes nothing.
  4: optional bool dryRun = 0
  // The share of the shards to look at, cut to 0..1; always at least one shard.
  5: optional double coverage = 1.0
  // Long poll: wait so long for a job if none is due, at most getServerInfo.maxWaitMillis. A paused or limited queue waits too
  // instead of refusing. Later calls on the same connection wait behind it.
  100: optional i32 waitMillis
  // A random number, not 0, that names the process among all that ever use the source of the context.
  140: optional i32 process
  // With the first request for a queue, and then about every 10 s.
  141: optional WorkerInfo worker
}

struct PinLaterDequeueMetadata {
  1: optional i32 attemptsAllowed
  2: optional i32 attemptsRemaining
  // Opaque, at most 64 bytes. Names this claim in acks, checkpoints, heartbeats and releases. Absent for a dry run.
  100: optional string claimToken
  101: optional map<string, string> headers
  // Without an ack, checkpoint or heartbeat before this time the job goes back, one attempt poorer.
  102: optional i64 claimDeadlineMillis
  103: optional i64 createdAtTimestampMillis
  // Counts from 1.
  104: optional i32 attempt
  // Of a dry run: the body is masked, as in PinLaterJobInfo.
  130: optional bool bodyMasked
}

struct PinLaterDequeueResponse {
  // Descriptor to body. Both maps may be absent where nothing was found.
  1: optional map<string, binary> jobs
  2: optional map<string, PinLaterDequeueMetadata> jobMetadata
  // Of the acks that rode along: succeeded ones first, then failed ones, each in the request's order. Absent without such acks.
  100: optional list<AckOutcome> ackOutcomes
  // The descriptors in the order to run them, which a map can't say.
  101: optional list<string> jobOrder
}

struct PinLaterCheckpointJobRequest {
  1: required string jobDescriptor
  // Declared binary: the same bytes on the wire as the string of the original, and any bytes come back as they were.
  2: optional binary newBody
  // Puts the job back into the queue and ends the claim, without spending an attempt.
  3: optional bool moveToPending = 0
  // Without it: now.
  4: optional i64 runAfterTimestampMillis
  // Sets the attempts allowed, and those remaining to the same; without it both stay.
  5: optional i32 numOfAttemptsAllowed
  6: optional string prependCustomStatus
  100: optional string claimToken
}

struct PinLaterCheckpointJobsRequest {
  1: required string queueName
  2: required list<PinLaterCheckpointJobRequest> requests
  // As in PinLaterJobAckRequest; means nothing to checkpointJobs.
  100: optional bool perItemErrors
}

struct PinLaterLookupJobRequest {
  1: required list<string> jobDescriptors
  2: optional bool includeBody = 0
}

// How one attempt at a job ended.
struct Attempt {
  // Counts from 1.
  1: required i32 number
  // The claim descriptor of its holder.
  2: optional string claimedBy
  3: optional i64 claimedAtMillis
  4: optional i64 endedAtMillis
  // One of: succeeded, failed, timed_out, cancelled.
  5: optional string outcome
  6: optional string errorType
  7: optional string errorText
}

struct PinLaterJobInfo {
  1: required string jobDescriptor
  2: required PinLaterJobState jobState
  10: required i32 attemptsAllowed
  3: required i32 attemptsRemaining
  4: required string customStatus
  5: required i64 createdAtTimestampMillis
  6: optional i64 runAfterTimestampMillis
  7: optional i64 updatedAtTimestampMillis
  // `host:port:serverStartMillis:source:counter` of the claim; a FAILED job keeps the last one.
  8: optional string claimDescriptor
  9: optional binary body
  100: optional map<string, string> headers
  101: optional string uniqueKey
  102: optional i64 claimDeadlineMillis
  103: optional string lastErrorType
  104: optional string lastErrorText
  // The newest 20, oldest first. A success at the first attempt leaves none.
  105: optional list<Attempt> attempts
  106: optional i64 finishedAtTimestampMillis
  // Past this time a waiting job becomes FAILED, and a FAILED one is not retried.
  107: optional i64 expiresAtMillis
  // What the job said last of how far it is: the text of the line of `customStatus` that begins with `[progress] `.
  108: optional string progress
  109: optional string orderingKey
  // The roles of the caller do not let it see the body, or parts of it: `body` is empty, or JSON with "[masked]" in the place of values.
  130: optional bool bodyMasked
  // Only where "[masked]" is in the place of its texts, which are customStatus, lastErrorText and errorText of its attempts, and progress is
  // absent: the group of failures of its last failed attempt, which a client can't compute then.
  131: optional string failureGroup
}

// Which jobs of a queue a scan, a count or a bulk run is about. What is absent chooses by nothing.
struct JobFilter {
  1: required PinLaterJobState jobState
  2: optional byte priority
  // Searched for (not matched) in the body, RE2 syntax, case-sensitive.
  3: optional string bodyRegexToMatch
  // One of them.
  4: optional list<string> tasks
  // All of them.
  5: optional map<string, string> headers
  // In type or text of the error, in small or large letters.
  6: optional string errorText
  // That have begun.
  7: optional i32 minAttempts
  8: optional i64 enqueuedFromMillis
  9: optional i64 enqueuedBeforeMillis
  // Of failures.
  10: optional string groupName
  11: optional bool skipCancelled
}

struct PinLaterGetJobCountRequest {
  1: required string queueName
  2: required PinLaterJobState jobState
  // Without it: all priorities.
  3: optional byte priority
  // For PENDING: with it only jobs not due yet are counted, without it only those that are due.
  4: optional bool countFutureJobs = 0
  // Searched for (not matched) in the body, RE2 syntax, case-sensitive. Makes the count bounded instead of exact.
  5: optional string bodyRegexToMatch
  // Of countJobs: chooses the jobs, in place of the fields jobState, priority and bodyRegexToMatch. A count by more than state and priority
  // reads jobs: one call counts a part of them, and its answer has a continuation for the next call. getJobCount refuses it.
  100: optional JobFilter filter
  // Where a count with `filter` begins: CONTINUATION_START, or what the answer before gave.
  101: optional string continuation
}

struct PinLaterScanJobsRequest {
  1: required string queueName
  2: required PinLaterJobState jobState
  3: optional byte priority
  4: optional bool scanFutureJobs = 0
  // CONTINUATION_START, or what an answer to a paged scan gave. Anything else: CONTINUATION_INVALID.
  5: optional string continuation = "0"
  6: optional i32 limit = 100
  7: optional string bodyRegexToMatch
  // Asks for a continuation where there is more; without it the answer's is always CONTINUATION_END.
  100: optional bool paged
  101: optional bool includeBody
  // Only jobs on this shard, named as in descriptors, with or without the `s`. A name that is no shard's is refused (SHARD_NOT_FOUND), and
  // a shard that is unreachable, too. Older servers do not read it and answer the jobs of all shards.
  102: optional string shard
  // Chooses the jobs, in place of the fields jobState, priority and bodyRegexToMatch. One call compares a part of the jobs: a paged scan
  // then has fewer jobs than `limit`, perhaps none, and a continuation, without `incomplete`.
  103: optional JobFilter filter
}

struct PinLaterScanJobsResponse {
  // Newest first.
  1: required list<PinLaterJobInfo> scannedJobs
  2: optional string continuation = "-1"
  // An unreachable shard or a bound on time cut the answer short.
  100: optional bool incomplete
  // The server has read the filter of the request. Older ones do not, and answer all jobs of the state.
  101: optional bool filtered
}

struct PinLaterRetryFailedJobsRequest {
  1: required string queueName
  2: optional byte priority = 1
  3: optional i32 attemptsToAllow = 1
  // Without it: now.
  4: optional i64 runAfterTimestampMillis
  // 0 does nothing.
  5: optional i32 limit = 1000
  // Leaves jobs that cancelJobs has ended as they are, and does not count them.
  100: optional bool skipCancelled
}

struct PinLaterDeleteJobsRequest {
  1: required string queueName
  2: required PinLaterJobState jobState
  3: optional byte priority = 1
  4: optional string bodyRegexToMatch
  // 0 does nothing.
  5: optional i32 limit = 1000
}

struct RunJobsRequest {
  1: required string queueName
  2: required list<string> jobDescriptors
  // When they become due. Without it: now.
  3: optional i64 runAfterTimestampMillis
  // Attempts that a FAILED job gets; a PENDING one keeps its own.
  4: optional i32 attemptsToAllow = 1
  // PENDING jobs stay as they are. All servers that know JobFilter know it.
  5: optional bool onlyFailed
}

struct ChangePriorityRequest {
  1: required string queueName
  2: required list<string> jobDescriptors
  // That the jobs get: 1 is the highest.
  3: required byte priority
}

// A claim as its holder names it.
struct ClaimRef {
  1: required string jobDescriptor
  2: required string claimToken
}

struct ClaimsRequest {
  1: required string queueName
  2: required list<ClaimRef> claims
  // As in PinLaterJobAckRequest.
  3: optional bool perItemErrors
  // As in PinLaterDequeueRequest.
  4: optional i32 process
  5: optional WorkerInfo worker
}

struct ReleaseRequest {
  1: required string queueName
  2: required list<ClaimRef> claims
  // How long until the jobs are due again.
  3: optional i64 delayMillis = 0
  // As in PinLaterJobAckRequest.
  4: optional bool perItemErrors
}

// What is kept with a queue in the store. A field that is absent leaves it to the server's settings.
struct QueueConfig {
  // 0 stops dequeues; fractions are allowed. The lower of this and the limits file's holds.
  1: optional double maxJobsPerSecond
  2: optional i64 claimTimeoutMillis
  3: optional i64 succeededTtlMillis
  4: optional i64 failedTtlMillis
  // The most PENDING jobs; an enqueue beyond it is refused with ENQUEUE_REJECTED, detail QUEUE_FULL.
  5: optional i64 maxBacklog
  6: optional i32 defaultAttempts
  // Expiry of a job that names none, counted from its enqueue.
  7: optional i64 defaultExpiryMillis
  // Said by getQueueConfig. configureQueue doesn't look at it: pauseQueue and resumeQueue change it.
  8: optional bool paused
  // The most jobs that a limited queue saves up while it is quiet, and then hands out at once. Absent: those of a second, at least one.
  100: optional i32 burst
  // On how many shards the queue is stored. Absent: as many as the servers choose, which begins with one.
  101: optional i32 partitions
  // How many jobs of an ordering key may be ready or in hand at a time, from 1 to 100. Absent: 1.
  102: optional i32 maxInHandPerKey
  // Where a job with an ordering key waits for its next attempt when one has failed: `in_place`, and the jobs behind it wait, or `to_back`,
  // behind them. Absent: `in_place`.
  103: optional string retryPlace
  // What a job with an ordering key does that fails finally: `continue`, and the next one goes, or `stop`, and the jobs behind it wait until
  // it is retried, deleted or let go. Absent: `continue`.
  104: optional string afterFailure
  // Said by getQueueConfig: all jobs of the queue run one after the other (createOrderedQueue). configureQueue doesn't look at it.
  105: optional bool ordered
}

// Jobs of one priority of a queue, from counters that change with the jobs. The totals count since the queue was made.
struct QueueCounts {
  1: required byte priority
  // Exact. Includes `future`.
  2: required i64 pending
  // The part of pending that is not due yet; may be 5 s old.
  3: required i64 future
  4: required i64 inProgress
  5: required i64 succeeded
  6: required i64 failed
  7: required i64 enqueuedTotal
  8: required i64 claimedTotal
  9: required i64 succeededTotal
  10: required i64 failedTotal
  11: required i64 retriedTotal
  // Since when the job that waits longest has been due; absent where none waits.
  12: optional i64 oldestDueAtMillis
  // The part of `future` that waits behind other jobs of its ordering key; absent for none. 10,000 of a shard stand for that or more.
  13: optional i64 behindKey
}

// Jobs a second over the last minute (less right after a start), from the totals in the stores: of all servers together.
struct QueueRates {
  1: required double enqueued
  2: required double claimed
  3: required double succeeded
  4: required double failed
  5: required double retried
}

// On how many shards a queue is to be stored. It is on fewer if fewer take enqueues.
struct PartitionNumber {
  1: required i32 number
  // The servers chose it, and no operator.
  2: required bool automatic
  // When they chose it, or when an operator last changed the settings of the queue. Absent: never, or not known.
  3: optional i64 sinceMillis
}

struct QueueStats {
  1: required string queueName
  2: required bool paused
  3: required list<QueueCounts> counts
  // Age of the job that has been due longest; absent where none waits.
  4: optional i64 oldestWaitingMillis
  5: required QueueRates rates
  // Long polls that wait now, on this server and on those of the same shards that it hears.
  6: required i32 waitingDequeues
  // A shard was unreachable; its jobs are not counted.
  7: optional bool incomplete
  // The lowest limit of dequeues on the server that answers; absent where there is none.
  8: optional double maxJobsPerSecond
  // The shards on which the queue is stored; absent where there is one shard only.
  9: optional list<string> partitions
  // Unfinished jobs on other shards in reach, by shard.
  10: optional map<string, i64> strays
  // Absent where there is one shard only.
  11: optional PartitionNumber partitionNumber
}

// Failed attempts of a queue that look alike: of one task, with one type of error, and one text but for numbers, names in quotes and addresses.
struct FailureGroup {
  1: required string queueName
  // 16 hexadecimal digits; only zeros for failures of more groups than are kept.
  2: required string name
  3: required string task
  4: required string errorType
  5: required string pattern
  6: required i64 failures
  7: required i64 firstMillis
  8: required i64 lastMillis
  // The job that failed last. It may be gone.
  9: required string sampleDescriptor
  // Of the last 24 hours, the oldest first.
  10: required list<i64> hours
  // An operator muted it until then; absent if not.
  11: optional i64 mutedUntilMillis
}

struct BulkOrder {
  1: required string queueName
  2: required BulkAction action
  3: required JobFilter filter
  // Of each job that is retried.
  4: optional i32 attemptsToAllow = 1
  // The most changes a second; as many as go if absent.
  5: optional double jobsPerSecond
  // No copies of deleted jobs are kept: they can't be restored.
  6: optional bool forGood
  // The id of the run whose deleted jobs are restored.
  7: optional string undoes
  // How many jobs the caller has found to fit. It is shown with the progress, and decides nothing.
  8: optional i64 expectedJobs
  // The most changes: the run ends with the last of them. If an answer of the store is lost on the way, it may make some more. Only with
  // startLimitedBulkRun, since older servers would not read it.
  9: optional i64 maxJobs
}

// A change of many jobs that servers carry out in the background, or have.
struct BulkRun {
  1: required string id
  2: required BulkOrder order
  // The source of the caller that started it.
  3: required string startedBy
  4: required i64 startedMillis
  5: required BulkState state
  // How often a job was compared, which may be several times for a job, and to how many it happened.
  6: required i64 looked
  7: required i64 changed
  // When its progress was told last.
  8: required i64 newsMillis
  9: optional i64 endedMillis
  // What it waits for, why it failed, what it could not do, or that changes may be missing in `changed`.
  10: optional string detail
  // Until then all that it has deleted can be restored. Absent if there is nothing to restore.
  11: optional i64 undoUntilMillis
  // About how many jobs its look at the queue compares. Absent while a shard could not be asked.
  12: optional i64 toLookAt
  // About how many jobs it changes in all. Absent if that is not known.
  13: optional i64 expectedChanges
  // How far it is: at most 99 until it is done. Absent if that is not known.
  14: optional i32 percent
  // About how long it will take yet, at its speed so far. Absent for a run that has ended, stops, waits or stands still.
  15: optional i64 leftMillis
}

struct BulkRunsRequest {
  // Of all queues for an empty list.
  1: required list<string> queueNames
}

struct BulkRunsResponse {
  // The newest first.
  1: required list<BulkRun> runs
  // A shard could not be asked: runs that it keeps may be missing.
  2: optional bool incomplete
  // The names of these shards. Absent if all were asked.
  3: optional list<string> missingShards
}

struct FailureMute {
  1: required string queueName
  // The group's.
  2: required string name
  // At most in 30 days, and so without it. A time that is past ends the mute.
  3: optional i64 untilMillis
}

struct FailuresRequest {
  1: required list<string> queueNames
}

struct FailuresResponse {
  // Those with the most failures of the last 24 hours first, and muted ones last.
  1: required list<FailureGroup> groups
  // A shard was unreachable; its failures are missing.
  2: optional bool incomplete
}

// Spans in milliseconds; at most a sixteenth off.
struct Percentiles {
  1: required i64 number
  2: required i64 p50Millis
  3: required i64 p90Millis
  4: required i64 p99Millis
}

// What happened in a queue during one step, on all servers, and the highest depth in it. An absent number is not known.
struct HistoryPoint {
  1: required i64 atMillis
  2: required i64 enqueued
  3: required i64 claimed
  4: required i64 succeeded
  // Attempts that failed, and claims that timed out.
  5: required i64 failed
  6: required i64 timedOut
  7: required i64 expired
  8: optional i64 due
  9: optional i64 scheduled
  10: optional i64 inProgress
  // How long the oldest due job had waited.
  11: optional i64 oldestWaitingMillis
  // From when a job was due to its hand-out; from a claim to its ack, of some of the acks with a token.
  12: optional Percentiles waits
  13: optional Percentiles runs
}

// Points by time. A step without a point: nothing happened, and no unfinished job was there.
struct QueueHistory {
  1: required string queueName
  2: required list<HistoryPoint> points
}

// From 1 to 100 queues; at most 5,000 points together.
struct QueueHistoryRequest {
  1: required list<string> queueNames
  // At most 30 days ago; an earlier time counts as that.
  2: required i64 fromMillis
  // Absent: now.
  3: optional i64 untilMillis
  // 60, 600 or 3600. Absent: the finest that is kept for the range.
  4: optional i32 stepSeconds
}

// Something that people did at some time, such as a deployment.
struct DeployMark {
  1: required i64 atMillis
  // 1 to 200 printable characters.
  2: required string text
  // Absent: of all queues.
  3: optional string queueName
}

struct QueueHistoryResponse {
  1: required list<QueueHistory> queues
  2: required list<DeployMark> marks
  3: required i32 stepSeconds
  4: required i64 fromMillis
  5: required i64 untilMillis
  // A shard was unreachable; what it keeps is missing.
  6: optional bool incomplete
}

// How many jobs a filter finds.
struct JobCount {
  1: required i64 jobs
  // A shard was unreachable; its jobs are not counted.
  2: optional bool incomplete
  // The server has read the filter of the request. Older ones do not, and count all jobs of the state.
  3: optional bool filtered
  // There are jobs that this call has not compared: the next one begins here. Absent at the end.
  4: optional string continuation
}

struct UniqueKeyRequest {
  // An empty list asks in all queues. A queue that does not exist is left out, unless it is the only one.
  1: required list<string> queueNames
  2: required string uniqueKey
}

// The jobs that hold a unique key.
struct KeyHolders {
  // Without bodies. A queue has one at most, but for a moment after a change of the shards.
  1: required list<PinLaterJobInfo> jobs
  // A shard was unreachable, or more jobs hold the key than one answer shows.
  2: optional bool incomplete
}

// A queue's settings as they hold on this server.
struct SettingsInForce {
  1: required QueueConfig values
  // Where each value comes from, by its name in QueueConfig: `queue`, `limits file`, or the name of the server's setting. A name that is
  // not there has no value.
  2: required map<string, string> origins
}

// Long polls of one caller on one queue that wait on this server now.
struct WaitingDequeues {
  1: required string queueName
  2: required string source
  3: required i32 number
}

// What became of the claims of a worker in one queue, as the server that answers counted it in the last hour.
struct WorkerQueue {
  1: required string queueName
  // When it asked for jobs last; absent if only the end of its claims is known.
  2: optional i64 askedMillisAgo
  3: required i64 handedOut
  // Claims that this server ended at their deadline, and answers of the worker that came after a claim had ended; each in the last hour, then
  // in its last ten minutes.
  4: required i64 timedOut
  5: required i64 late
  6: required i64 timedOutLately
  7: required i64 lateLately
  // How often claims timed out in the last hour: those within a minute count once. Absent from servers that do not count this.
  8: optional i64 timedOutTimes
}

// A claim that ended at its deadline.
struct LostClaim {
  1: required string queueName
  2: required string jobDescriptor
  3: required i64 endedMillisAgo
}

// A process of a worker, or a caller that names none.
struct WorkerStatus {
  1: required string source
  // Absent for callers that name none, which may be several. The lost claims of a source are counted there, too: claims name the source only.
  2: optional i32 process
  // Absent if only the end of claims is known.
  3: optional i64 heardMillisAgo
  // The last ones that it asked for.
  4: required list<WorkerQueue> queues
  // The longest claim among those that it got last.
  5: optional i64 claimMillis
  // As it said last, and how long ago.
  6: optional WorkerInfo info
  7: optional i64 saidMillisAgo
  // Of the source, the newest first, at most 5.
  8: required list<LostClaim> lost
}

// What one server knows of workers.
struct ServerWorkers {
  // Heard in the last 15 minutes, the last heard first, at most 2,000.
  1: required list<WorkerStatus> workers
  2: required list<WaitingDequeues> waiting
  // Names one start of the server process.
  3: required string serverId
  // That share the shards.
  4: required i32 servers
  5: required i64 nowMillis
  6: required i64 upMillis
  // How often it gave up a worker for another one in the last hour, since there were more than it keeps, and workers that are left out here.
  7: required i64 forgotten
}

// Which entries of the audit to read, the newest first. What is not set leaves nothing out.
struct AuditRequest {
  1: optional string queueName
  // The name of a token, `no token` or `admin password`.
  2: optional string who
  // A method of this contract, or an event such as `tokenAdded`.
  3: optional string operation
  // From this time on, and before that one.
  4: optional i64 sinceTimestampMillis
  5: optional i64 untilTimestampMillis
  // At most 500.
  6: optional i32 limit = 100
  // Of the answer before.
  7: optional string continuation
}

// A change that a caller asked for, or that a server took over from one of its files.
struct AuditEntry {
  1: required string id
  2: required i64 atMillis
  // The name of the caller's token, `no token`, `admin password`, or the file.
  3: required string who
  4: required list<string> roles
  // What the caller calls itself, and the address of its connection: `ADDRESS through CONNECTION` if the caller names that of a client.
  5: required string source
  6: required string address
  7: required string operation
  // Empty for a change of no queue.
  8: required string queueName
  // A JSON object. Never bodies or secrets.
  9: required string arguments
  // How many jobs were changed, for operations that count them.
  10: optional i64 jobs
  // `ok`, `refused`, `failed` (a shard could not be reached) or `unknown`.
  11: required string outcome
  // The code and detail of an error.
  12: required string detail
  // The server that carried it out.
  13: required string server
}

struct AuditPage {
  1: required list<AuditEntry> entries
  // Continues behind these entries; not set at the end. A page may have few entries, or none, although more follow.
  2: optional string continuation
  // A shard could not be asked, so that entries may be missing.
  3: optional bool incomplete
}

// A server of the shards, as the server that answers knows it.
struct ClusterServer {
  // As it announced itself to the other servers.
  1: required string address
  // Host and process id, if the shards say it.
  2: optional string name
  // By shard.
  3: required map<string, i32> slots
  // It is the server that answers.
  4: required bool answers
  // It said something over a connection within the last moments.
  5: required bool heard
  // How long ago that was; absent if it never did.
  6: optional i64 heardMillisAgo
  // The server that answers can send calls to it.
  7: required bool usable
  8: required i32 unansweredCalls
  // Requests and acks sent to it, and taken from it, since the start of the server that answers.
  9: required i64 itemsSent
  10: required i64 itemsTaken
  // As it said last; absent if it has not.
  11: optional string version
  12: optional i64 startedAtMillis
  // Of clients.
  13: optional i32 connections
  // The longest delay of its event loop in this minute and the last.
  14: optional i64 loopLagMillis
}

// Calls of one kind from the server that answers to a shard.
struct ShardLane {
  // insert, claim, finish, extend, checkpoint, release
  1: required string kind
  // Requests for the next call, and requests in the call under way.
  2: required i32 waiting
  3: required i32 running
  // How long the call under way has taken so far; absent if there is none.
  4: optional i64 runningMillis
  // Calls that ended in the last minute, and the requests in them.
  5: required i64 calls
  6: required i64 requests
  // How long such a call took on average, and on average in the slowest five seconds; absent without calls.
  7: optional double meanMillis
  8: optional double slowestMillis
}

// Jobs of a shard, as they were counted last.
struct ShardJobs {
  1: required i64 countedAtMillis
  2: required i64 due
  3: required i64 scheduled
  4: required i64 inProgress
  5: required i64 succeeded
  6: required i64 failed
  // Absent if no job is due.
  7: optional i64 oldestDueAtMillis
}

// The space that a store takes. A number is absent if the store does not say it.
struct ShardSize {
  1: optional i64 usedBytes
  // Of its write-ahead log, beside that.
  2: optional i64 logBytes
  // At which it is full.
  3: optional i64 limitBytes
  4: optional i64 measuredAtMillis
  // The store did not answer the last question in time.
  5: optional bool late
}

// Of a shard that takes no enqueues.
struct ShardDrain {
  // Since when the server that answers knows it.
  1: required i64 sinceMillis
  // The shard is taken out of the shard map, and goes once it is empty.
  2: required bool leaving
  // Live jobs at the first count since.
  3: optional i64 liveAtFirst
  // How fast their number falls, over the last ten minutes at most; below 0 while it grows.
  4: optional double jobsPerSecond
  // When none is left if it goes on like that.
  5: optional i64 emptyAtMillis
}

// Due jobs that the server that answers remembers, to hand them out without a search.
struct ShardMemory {
  1: required i64 jobs
  // Which they take in the server.
  2: required i64 bytes
  // Since the server's start: claims of a queue that were answered from memory, with these jobs or because none is due, and those that
  // searched after all, as a job was gone or locked. On Redis and SQLite a server remembers no jobs, only that none is due.
  3: required i64 claims
  4: required i64 staleClaims
}

// How a shard is, as the server that answers knows it.
struct ShardDetails {
  // mysql, redis, sqlite or memory
  1: required string kind
  // Of its database or file, without passwords.
  2: optional string address
  3: required bool takesEnqueues
  // When the server began or ceased to use it.
  4: required i64 sinceMillis
  // Why a call or a probe failed last. Absent for callers without the role operate.
  5: optional string failure
  6: optional i64 failedAtMillis
  // It is out of use, and tried again and again.
  7: required bool probing
  // A call takes too long just now.
  8: required bool stalled
  // Why it refuses enqueues as full; for callers without the role operate only that it does.
  9: optional string full
  // Absent until they were counted.
  10: optional ShardJobs jobs
  11: required ShardSize size
  12: optional ShardDrain drain
  13: required list<ShardLane> lanes
  // timeout, refused, connection or internal; of the last failure.
  14: optional string failureKind
  // Absent if the store has none.
  15: optional ShardMemory memory
}

struct ClusterShard {
  1: required string name
  2: required bool inReach
  // Grows with each change of the owners; 0 if servers do not share the shard.
  3: required i64 ownersVersion
  // Indices of ClusterStatus.servers, by slice; -1 for none.
  4: required list<i32> owners
  // Slices that are about to get another owner.
  5: required list<i32> misplacedSlices
  6: optional ShardDetails details
}

// Calls of one kind between the server that answers and others since its start, and the items in them.
struct ForwardedCalls {
  // insert, claim, finish, extend, checkpoint, release
  1: required string kind
  2: required i64 callsSent
  3: required i64 itemsSent
  4: required i64 callsTaken
  5: required i64 itemsTaken
}

// A front process of the server that answers: it has no store, and asks this server's store process for each operation.
struct FrontProcess {
  1: required i32 number
  // Since it connected.
  2: required i64 callsTaken
  // Not answered yet; those that wait are long polls and searches.
  3: required i32 callsUnderWay
  4: required i32 waitingCalls
  // Of answers that it has not read.
  5: required i64 untakenBytes
}

struct ClusterStatus {
  // Of the server that answers, as in `servers`.
  1: required string address
  2: required list<ClusterServer> servers
  3: required list<ClusterShard> shards
  4: required list<ForwardedCalls> forwarded
  // How often a slice got another owner since the start of the server that answers.
  5: required i64 moves
  // Requests sent to other servers whose answers did not come.
  6: required i64 answersLost
  // There are more servers or shards than an answer holds.
  7: optional bool incomplete
  // Absent if there are none.
  8: optional list<FrontProcess> frontProcesses
  // Queues with several partitions, of more than 200 those with the most. Absent if there are none.
  9: optional map<string, PartitionNumber> partitions
  // Why nothing can change the owners of queues now, and since when. Absent if something can.
  10: optional string coordinatorTrouble
}

// What a server with access control lets the caller do.
struct CallerRights {
  // The name of the caller's token; absent without a token.
  1: optional string tokenName
  // read, produce, work, operate, admin: as the token has them, without those that they include.
  2: required list<string> roles
  // Patterns of the queues; `*` is all.
  3: required list<string> queues
  4: optional i64 expiresAtMillis
  // The token may name the user that it speaks for (RequestContext.onBehalfOf).
  5: optional bool speaksForOthers
}

// Waiting jobs that are handed out before a job, on all shards.
struct JobsAhead {
  1: required i64 jobs
  // There may be more: the count ended at its bound.
  2: required bool atLeast
  // A shard was unreachable; its jobs are not counted.
  3: required bool incomplete
}

// What holds for the jobs of a queue, as the server that answers knows it.
struct QueueFacts {
  1: required bool paused
  2: optional i64 pausedAtMillis
  // The source of the caller, with its token if it sent one, else with its callerAddress. Absent: not paused, or by a server that did not keep it.
  3: optional string pausedBy
  // Of all servers together; absent without a limit.
  4: optional double maxJobsPerSecond
  // How long until this server may hand out the next job. Absent: now, or only after a change of settings.
  5: optional i64 nextSlotMillis
  // In the last minute, of all servers together.
  6: required double claimedPerSecond
  // Counted for a PENDING job only.
  7: required i64 inProgress
  // Long polls that wait on this server now.
  8: required i32 waitingDequeues
  // When this server was last asked for jobs of the queue; absent if it was not since its start.
  9: optional i64 lastDequeueAtMillis
  10: required i64 serverStartedAtMillis
  // That share the shards.
  11: required i32 servers
  // Absent where there is one shard only.
  12: optional PartitionNumber partitionNumber
}

struct ShardFacts {
  1: required string name
  2: required bool inReach
  // It gets no new jobs.
  3: required bool drains
}

// What tells why a job waits.
struct JobExplanation {
  1: required string jobDescriptor
  // Without its body. Absent if its shard is not in reach; else there is no such job.
  2: optional PinLaterJobInfo job
  // The server's clock.
  3: required i64 nowMillis
  4: required ShardFacts shard
  5: required QueueFacts queue
  // Of a PENDING job that does not wait behind another of its ordering key.
  6: optional JobsAhead jobsAhead
  // The first job of its ordering key, behind which it waits, and how many come before it under the key: 10,000 stand for that or more.
  100: optional string behindJob
  101: optional i64 aheadInKey
  // The shard that had the jobs with ordering keys of the queue before. All such jobs on the job's shard wait until it has none left: how
  // many it has, of which 10,000 stand for that or more; absent if it can't be asked.
  102: optional string formerShard
  103: optional i64 aheadOnFormer
}

struct ServerInfo {
  1: required string version
  // Names of what this server can do beyond the original, so that a client can ask before it uses it.
  2: required list<string> features
  // memory, sqlite, mysql, redis
  3: required string storeKind
  // The server's clock, for clients that show ages.
  4: required i64 nowMillis
  5: required i64 startedAtMillis
  6: required i32 priorityLevels
  // The bounds: over them a call is refused with a clear error.
  7: required i32 maxBodyBytes
  8: required i32 maxFrameBytes
  9: required i32 maxJobsPerRequest
  10: required i32 maxDescriptorsPerRequest
  11: required i32 maxWaitMillis
  // tokens: calls need a token with a role, or the roles of callers without one. loopback: any caller may do anything, and the server
  // listens on its own machine only. insecure: any caller may do anything, from the network too. Absent: an older server.
  12: optional string access
  // Names one start of one server: equal ids mean the same. Absent if other servers answer at the same address, or the server shares no
  // shards.
  13: optional string serverId
  // With access control only.
  14: optional CallerRights caller
}

// A server that owns queues.
struct OwningServer {
  // ServerInfo.serverId.
  1: required string id
  // Where clients reach it, as host:port, as far as the server itself knows.
  2: optional string address
}

struct OwnedShard {
  1: required string name
  2: required bool takesEnqueues
  // Indices of QueueOwners.servers, by slice; -1 for none. The slice of a queue is the CRC-32 of its name modulo the length.
  3: required list<i32> owners
}

// The servers through which all servers work on queues, for clients that send their calls there. None if servers don't share the shards.
// Owners that are busy while other servers are not are left out.
struct QueueOwners {
  1: required list<OwningServer> servers
  2: required list<OwnedShard> shards
  // Queues with several partitions, and how many. Absent from servers that store each queue on all shards.
  3: optional map<string, i32> partitions
}

// Every method that names a queue answers QUEUE_NOT_FOUND where there is none, but lookupJobs, deleteQueue and createQueue.
service PinLater {
  // The methods of the original.

  // A name is one or more ASCII letters, digits and underscores (QUEUE_NAME_INVALID), up to the store's length
  // (QUEUE_NAME_TOO_LONG). Where the queue exists already nothing happens.
  void createQueue(1: RequestContext requestContext, 2: string name) throws (1: PinLaterException e)

  // PASSWORD_INVALID unless the admin password fits. Where there is no such queue nothing happens.
  void deleteQueue(1: RequestContext requestContext, 2: string name, 3: string password) throws (1: PinLaterException e)

  // All jobs are stored when the answer comes, or (one shard) none.
  PinLaterEnqueueResponse enqueueJobs(1: RequestContext requestContext, 2: PinLaterEnqueueRequest request) throws (1: PinLaterException e)

  // Claims jobs that are due, higher priorities first. DEQUEUE_RATE_LIMITED over the queue's limit or while it is paused.
  PinLaterDequeueResponse dequeueJobs(1: RequestContext requestContext, 2: PinLaterDequeueRequest request) throws (1: PinLaterException e)

  void ackDequeuedJobs(1: RequestContext requestContext, 2: PinLaterJobAckRequest request) throws (1: PinLaterException e)

  void checkpointJobs(1: RequestContext requestContext, 2: PinLaterCheckpointJobsRequest request) throws (1: PinLaterException e)

  // Jobs that are not there are left out of the map.
  map<string, PinLaterJobInfo> lookupJobs(1: RequestContext requestContext, 2: PinLaterLookupJobRequest request) throws (1: PinLaterException e)

  // Cut at 2,147,483,647.
  i32 getJobCount(1: RequestContext requestContext, 2: PinLaterGetJobCountRequest request) throws (1: PinLaterException e)

  set<string> getQueueNames(1: RequestContext requestContext) throws (1: PinLaterException e)

  PinLaterScanJobsResponse scanJobs(1: RequestContext requestContext, 2: PinLaterScanJobsRequest request) throws (1: PinLaterException e)

  // How many went back to PENDING.
  i32 retryFailedJobs(1: RequestContext requestContext, 2: PinLaterRetryFailedJobsRequest request) throws (1: PinLaterException e)

  // How many were deleted.
  i32 deleteJobs(1: RequestContext requestContext, 2: PinLaterDeleteJobsRequest request) throws (1: PinLaterException e)

  // Our own.

  ServerInfo getServerInfo(1: RequestContext requestContext) throws (1: PinLaterException e)

  // As ackDequeuedJobs, with an outcome for each job: succeeded ones first, then failed ones, in the request's order.
  list<AckOutcome> ackJobs(1: RequestContext requestContext, 2: PinLaterJobAckRequest request) throws (1: PinLaterException e)

  // As checkpointJobs, with an outcome for each, in the request's order.
  list<AckOutcome> checkpointJobsFenced(1: RequestContext requestContext, 2: PinLaterCheckpointJobsRequest request) throws (1: PinLaterException e)

  // Renews claims: deadline = now + the job's claim timeout. Never revives one.
  list<AckOutcome> heartbeatClaims(1: RequestContext requestContext, 2: ClaimsRequest request) throws (1: PinLaterException e)

  // Gives jobs back without spending an attempt.
  list<AckOutcome> releaseJobs(1: RequestContext requestContext, 2: ReleaseRequest request) throws (1: PinLaterException e)

  // PENDING or IN_PROGRESS to FAILED with status `cancelled`; finished jobs stay as they are (ALREADY_FINAL).
  list<AckOutcome> cancelJobs(1: RequestContext requestContext, 2: string queueName, 3: list<string> jobDescriptors) throws (1: PinLaterException e)

  // Replaces all of the queue's settings. Other servers follow within 5 s.
  void configureQueue(1: RequestContext requestContext, 2: string queueName, 3: QueueConfig config) throws (1: PinLaterException e)

  QueueConfig getQueueConfig(1: RequestContext requestContext, 2: string queueName) throws (1: PinLaterException e)

  void pauseQueue(1: RequestContext requestContext, 2: string queueName) throws (1: PinLaterException e)

  void resumeQueue(1: RequestContext requestContext, 2: string queueName) throws (1: PinLaterException e)

  // Jobs that failed finally no longer stop their ordering key, as `afterFailure` lets them: the next jobs of the key go. They stay FAILED.
  // Returns how many stopped it. A repeat is safe.
  i32 unblockKey(1: RequestContext requestContext, 2: string queueName, 3: string orderingKey) throws (1: PinLaterException e)

  // Creates the queue of a task, as clients do for tasks that are enqueued and workers that start. Where the queue exists nothing happens.
  // QUEUE_NOT_FOUND with the reason if the setting jobs.auto_create is false, or if the queue was deleted within the last day.
  void ensureQueue(1: RequestContext requestContext, 2: string name) throws (1: PinLaterException e)

  // Creates a queue of which all jobs run one after the other, as if under one ordering key, `*`. Where such a queue exists nothing happens.
  // INVALID_ARGUMENT where a queue exists that is not ordered.
  void createOrderedQueue(1: RequestContext requestContext, 2: string name) throws (1: PinLaterException e)

  // An empty list asks for all queues. Never scans jobs.
  list<QueueStats> getQueueStats(1: RequestContext requestContext, 2: list<string> queueNames) throws (1: PinLaterException e)

  // Jobs by name: PENDING ones become due at that time, FAILED ones go back to the queue, as retryFailedJobs does it. STALE_CLAIM for a job in
  // hand, ALREADY_FINAL for one that succeeded or whose uniqueKey another job holds.
  list<AckOutcome> runJobs(1: RequestContext requestContext, 2: RunJobsRequest request) throws (1: PinLaterException e)

  // Gives PENDING and FAILED jobs another priority, and with it another descriptor; their old descriptors name nothing any more. All else
  // of them stays. APPLIED also for a job that has that priority already, so that a call can be sent again. STALE_CLAIM for a job in hand,
  // ALREADY_FINAL for one that succeeded.
  list<MovedJob> changePriority(1: RequestContext requestContext, 2: ChangePriorityRequest request) throws (1: PinLaterException e)

  // As getJobCount; the number is not cut, and the answer says where a shard is missing.
  JobCount countJobs(1: RequestContext requestContext, 2: PinLaterGetJobCountRequest request) throws (1: PinLaterException e)

  // The jobs that hold a unique key now, by an index; never scans jobs. A key that has been freed is held by none, though its job may still be
  // there.
  KeyHolders findUniqueKey(1: RequestContext requestContext, 2: UniqueKeyRequest request) throws (1: PinLaterException e)

  // What holds for the queue now: its own settings, and the server's where it has none.
  SettingsInForce getSettingsInForce(1: RequestContext requestContext, 2: string queueName) throws (1: PinLaterException e)

  // The dequeues that wait for jobs on this server, by queue and source.
  list<WaitingDequeues> getWaitingDequeues(1: RequestContext requestContext) throws (1: PinLaterException e)

  // The workers that this server heard lately, and what became of their claims here; with `everywhere` then those of the other servers of its
  // shards that answer it within a second, of all others together about 10,000. Reads no jobs.
  list<ServerWorkers> getWorkers(1: RequestContext requestContext, 2: bool everywhere) throws (1: PinLaterException e)

  // Which servers share the shards, and which of them owns what, as the server that answers knows it.
  ClusterStatus getCluster(1: RequestContext requestContext) throws (1: PinLaterException e)

  // What the server knows of a job, its queue and its shard, from which a client can tell why the job waits. Never scans jobs.
  JobExplanation explainJob(1: RequestContext requestContext, 2: string queueName, 3: string jobDescriptor) throws (1: PinLaterException e)

  // Which servers own queues, as the server that answers knows it: a hint. Every server takes every call.
  QueueOwners getQueueOwners(1: RequestContext requestContext) throws (1: PinLaterException e)

  // Changes of queues, jobs, tokens and shards with their callers, as the shards keep them for a time.
  AuditPage getAudit(1: RequestContext requestContext, 2: AuditRequest request) throws (1: PinLaterException e)
  // What happened in queues over the last minutes or days, for charts. Reads no jobs. A queue that does not exist is left out, unless it is
  // the only one.
  QueueHistoryResponse getQueueHistory(1: RequestContext requestContext, 2: QueueHistoryRequest request) throws (1: PinLaterException e)

  // Failed attempts in groups, as they were counted over the last 30 days. Reads no jobs. A queue that does not exist is left out, unless it
  // is the only one.
  FailuresResponse getFailures(1: RequestContext requestContext, 2: FailuresRequest request) throws (1: PinLaterException e)

  // Begins a change of many jobs in the background. It survives restarts: the servers continue it.
  BulkRun startBulkRun(1: RequestContext requestContext, 2: BulkOrder order) throws (1: PinLaterException e)

  // The same of an order with maxJobs. A server from before that field does not know the method, and so does not change more jobs.
  BulkRun startLimitedBulkRun(1: RequestContext requestContext, 2: BulkOrder order) throws (1: PinLaterException e)

  // A run that has ended stays as it is.
  BulkRun stopBulkRun(1: RequestContext requestContext, 2: string queueName, 3: string runId) throws (1: PinLaterException e)

  // Those of the last 30 days, the newest first: of these queues, or of all for an empty list. Says nothing of shards that could not be asked.
  list<BulkRun> getBulkRuns(1: RequestContext requestContext, 2: list<string> queueNames) throws (1: PinLaterException e)

  // As getBulkRuns, and says which shards could not be asked.
  BulkRunsResponse listBulkRuns(1: RequestContext requestContext, 2: BulkRunsRequest request) throws (1: PinLaterException e)

  // Mutes a group of failures, which are still counted. A repeat changes nothing but the end.
  void muteFailures(1: RequestContext requestContext, 2: FailureMute mute) throws (1: PinLaterException e)

  // Keeps a mark for 30 days. A repeat changes nothing.
  void addDeployMark(1: RequestContext requestContext, 2: DeployMark mark) throws (1: PinLaterException e)

  // How many were deleted, in whatever state they were.
  i32 deleteJobsByDescriptor(1: RequestContext requestContext, 2: string queueName, 3: list<string> jobDescriptors) throws (1: PinLaterException e)

  // How many were deleted: those that are in the state at that moment.
  i32 deleteJobsInState(1: RequestContext requestContext, 2: string queueName, 3: list<string> jobDescriptors, 4: PinLaterJobState state) throws (1: PinLaterException e)
}
