// A producer and worker in Node, with Apache Thrift's library and the code that its compiler makes of pinlater.thrift.
//
//     node client.js 127.0.0.1:9010
//
// Walks once through the life of a job and prints each step. Keep the parts that your program needs.
"use strict";

const thrift = require("thrift");
const PinLater = require("./gen-nodejs/PinLater");
const types = require("./gen-nodejs/pinlater_types");

const QUEUE = "pictures";

// Names this process: the server shows it as the holder of a job.
const me = new types.RequestContext({ source: "node-example" });

// Calls on one connection are answered in order: a program that also does other things gives its long polls a connection of
// their own. The library rejects no call whose connection breaks, so the handlers of `error` and `close` have to.
function connect(address) {
  const [host, port] = address.split(":");
  const connection = thrift.createConnection(host, Number(port), {
    transport: thrift.TFramedTransport,
    protocol: thrift.TBinaryProtocol,
    connect_timeout: 5_000,
  });
  return { connection, client: thrift.createClient(PinLater, connection) };
}

// Deletes the jobs of an earlier run, so that each run prints the same.
async function cleanUp(client) {
  for (const jobState of [types.PinLaterJobState.PENDING, types.PinLaterJobState.FAILED]) {
    for (const priority of [1, 2, 3]) {
      await client.deleteJobs(me, new types.PinLaterDeleteJobsRequest({ queueName: QUEUE, jobState, priority }));
    }
  }
}

async function enqueue(client) {
  const now = Date.now();
  const run = `${process.pid}-${now}`;
  const one = new types.PinLaterJob({
    body: Buffer.from("one\x00\xff", "latin1"), // any bytes
    priority: 1,
    runAfterTimestampMillis: now,
    numAttemptsAllowed: 5,
    customStatus: "queued",
    headers: { "content-type": "application/octet-stream", "pinlater-task": "resize" },
    uniqueKey: `picture-${run}`,
    uniqueScope: types.UniqueScope.TIME,
    uniqueForMillis: 60_000,
    claimTimeoutMillis: 120_000,
    expiresAtMillis: now + 3_600_000,
  });
  const two = new types.PinLaterJob({ body: Buffer.from("two"), priority: 2 });
  const three = new types.PinLaterJob({ body: Buffer.from("three"), priority: 3, numAttemptsAllowed: 3 });
  const request = new types.PinLaterEnqueueRequest({
    queueName: QUEUE,
    jobs: [one, two, three],
    requestKey: run,
  });
  const jobs = (await client.enqueueJobs(me, request)).jobDescriptors;
  console.log("jobs", ...jobs);

  // What to do when the answer was lost: the same request once more, marked as a repeat. Nothing is stored twice.
  request.repeated = true;
  const again = await client.enqueueJobs(me, request);
  console.log("repeated: the same jobs:", again.jobDescriptors.join() === jobs.join());

  const duplicate = new types.PinLaterJob({ body: Buffer.from("one again"), uniqueKey: one.uniqueKey });
  const taken = await client.enqueueJobs(me, new types.PinLaterEnqueueRequest({ queueName: QUEUE, jobs: [duplicate] }));
  console.log("unique key taken: index", taken.existing[0], "is job one:", taken.jobDescriptors[0] === jobs[0]);
  return jobs;
}

function count(client, jobState, countFutureJobs = false) {
  return client.getJobCount(me, new types.PinLaterGetJobCountRequest({ queueName: QUEUE, jobState, countFutureJobs }));
}

async function look(client, jobs) {
  console.log("waiting:", await count(client, types.PinLaterJobState.PENDING));
  const request = new types.PinLaterScanJobsRequest({
    queueName: QUEUE,
    jobState: types.PinLaterJobState.PENDING,
    limit: 2,
    paged: true,
    includeBody: true,
  });
  const bodies = new Map();
  let pages = 0;
  do {
    const found = await client.scanJobs(me, request);
    for (const job of found.scannedJobs) bodies.set(job.jobDescriptor, job.body.toString("hex"));
    request.continuation = found.continuation;
    pages++;
  } while (request.continuation !== types.CONTINUATION_END);
  console.log("scanned:", bodies.size, "jobs in", pages, "pages, bodies", ...jobs.map((name) => bodies.get(name)));
}

// Asks for jobs, waits up to two seconds for one, and takes along what has been done since the last time.
function claim(client, jobAckRequest) {
  return client.dequeueJobs(
    me,
    new types.PinLaterDequeueRequest({ queueName: QUEUE, limit: 10, waitMillis: 2_000, jobAckRequest }),
  );
}

// An ack counts for the claim whose token it carries: `late` below comes too late, the job has been claimed again since.
function ack(claimed, name, more) {
  const { claimToken } = claimed.jobMetadata[name];
  return new types.PinLaterJobAckInfo({ jobDescriptor: name, claimToken, ...more });
}

const nameOf = (values, value) => Object.keys(values).find((name) => values[name] === value);
const outcome = (each) => nameOf(types.Outcome, each.outcome);

async function work(client) {
  const claimed = await claim(client);
  for (const name of claimed.jobOrder) {
    const about = claimed.jobMetadata[name];
    const task = JSON.stringify(about.headers?.["pinlater-task"] ?? "");
    const body = claimed.jobs[name].toString("hex");
    console.log(`claimed: ${body}, attempt ${about.attempt}, ${about.attemptsRemaining} left, task ${task}`);
  }
  const [one, two, three] = claimed.jobOrder;

  // Saves how far two has come and renews its claim.
  const { claimToken } = claimed.jobMetadata[two];
  const step = new types.PinLaterCheckpointJobRequest({ jobDescriptor: two, claimToken, newBody: Buffer.from("two, half done") });
  const checkpoints = new types.PinLaterCheckpointJobsRequest({ queueName: QUEUE, requests: [step] });
  const [saved] = await client.checkpointJobsFenced(me, checkpoints);
  console.log("checkpoint:", outcome(saved));

  // Three failed and is due again at once.
  const retry = ack(claimed, three, { errorType: "Timeout", errorText: "no answer" });
  const again = await claim(client, new types.PinLaterJobAckRequest({ queueName: QUEUE, jobsFailed: [retry] }));
  const { attempt } = again.jobMetadata[three];
  console.log(`ack rode along: ${outcome(again.ackOutcomes[0])}; claimed again: ${again.jobs[three]}, attempt ${attempt}`);

  const done = ack(claimed, one, { appendCustomStatus: ", done" });
  // Final: whatever attempts are left.
  const hopeless = ack(claimed, two, { finalFailure: true, errorType: "BadPicture", errorText: "it is empty" });
  const late = ack(claimed, three);
  const later = ack(again, three, { retryDelayMillis: 3_600_000 });
  for (const acks of [{ jobsSucceeded: [done], jobsFailed: [hopeless, late] }, { jobsFailed: [later] }]) {
    const outcomes = await client.ackJobs(me, new types.PinLaterJobAckRequest({ queueName: QUEUE, ...acks }));
    for (const each of outcomes) console.log("ack:", outcome(each));
  }
}

async function lookAgain(client, jobs) {
  const request = new types.PinLaterLookupJobRequest({ jobDescriptors: jobs, includeBody: true });
  const found = await client.lookupJobs(me, request);
  for (const name of jobs) {
    const job = found[name];
    const state = nameOf(types.PinLaterJobState, job.jobState);
    const left = `${job.attemptsRemaining} of ${job.attemptsAllowed} attempts left`;
    const error = JSON.stringify(job.lastErrorType ?? "");
    console.log(`now: ${job.body.toString("hex")}, ${state}, ${left}, status "${job.customStatus}", error ${error}`);
  }
  const failed = await count(client, types.PinLaterJobState.FAILED);
  console.log("failed:", failed, "waiting for later:", await count(client, types.PinLaterJobState.PENDING, true));
}

async function beRefused(client) {
  try {
    await client.dequeueJobs(me, new types.PinLaterDequeueRequest({ queueName: "no_such_queue", limit: 1 }));
  } catch (error) {
    if (!(error instanceof types.PinLaterException)) throw error;
    const code = nameOf(types.ErrorCode, error.errorCode);
    console.log(`refused: ${code}, detail ${error.detail}, retryable ${error.retryable}: ${error.message}`);
  }
}

async function main() {
  const { connection, client } = connect(process.argv[2] ?? "127.0.0.1:9010");
  const broken = new Promise((_, reject) => {
    connection.on("error", reject);
    connection.on("close", () => reject(new Error("the server closed the connection")));
  });
  const walk = async () => {
    await client.createQueue(me, QUEUE);
    await cleanUp(client);
    const jobs = await enqueue(client);
    await look(client, jobs);
    await work(client);
    await lookAgain(client, jobs);
    await beRefused(client);
  };
  try {
    await Promise.race([walk(), broken]);
  } finally {
    connection.end();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
