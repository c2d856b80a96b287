import com.pinterest.pinlater.thrift.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.thrift.TConfiguration;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.layered.TFramedTransport;

/**
 * A producer and worker in Java, with Apache Thrift's library and the code that its compiler makes of pinlater.thrift.
 *
 * <p>Walks once through the life of a job and prints each step. Keep the parts that your program needs.
 */
public final class Example {
  private static final String QUEUE = "pictures";
  private static final int FRAME_BYTES = 16 << 20; // the server's default; the library's is a little less
  private static final int TIMEOUT_MILLIS = 30_000; // longer than the longest waitMillis

  /** Names this process: the server shows it as the holder of a job. */
  private static final RequestContext ME = new RequestContext("java-example");

  private final PinLater.Iface client;

  private Example(PinLater.Iface client) {
    this.client = client;
  }

  /**
   * Calls on one connection are answered in order: a program that also does other things gives its long polls a connection
   * of their own. One client may be used by one thread at a time.
   */
  public static void main(String[] arguments) throws TException {
    String[] address = (arguments.length > 0 ? arguments[0] : "127.0.0.1:9010").split(":");
    TConfiguration bounds = new TConfiguration(TConfiguration.DEFAULT_MAX_MESSAGE_SIZE, FRAME_BYTES, 64);
    TTransport socket = new TSocket(bounds, address[0], Integer.parseInt(address[1]), TIMEOUT_MILLIS);
    try (TTransport transport = new TFramedTransport(socket, FRAME_BYTES)) {
      transport.open();
      new Example(new PinLater.Client(new TBinaryProtocol(transport))).walk();
    }
  }

  private void walk() throws TException {
    client.createQueue(ME, QUEUE);
    cleanUp();
    List<String> jobs = enqueue();
    look(jobs);
    work();
    lookAgain(jobs);
    beRefused();
  }

  private static PinLaterJob job(String body, int priority) {
    return new PinLaterJob(bytes(body)).setPriority((byte) priority);
  }

  /** Deletes the jobs of an earlier run, so that each run prints the same. */
  private void cleanUp() throws TException {
    for (PinLaterJobState state : List.of(PinLaterJobState.PENDING, PinLaterJobState.FAILED)) {
      for (byte priority = 1; priority <= 3; priority++) {
        client.deleteJobs(ME, new PinLaterDeleteJobsRequest(QUEUE, state).setPriority(priority));
      }
    }
  }

  private List<String> enqueue() throws TException {
    long now = System.currentTimeMillis();
    String run = UUID.randomUUID().toString();
    PinLaterJob one = job("one\u0000\u00ff", 1) // any bytes
        .setRunAfterTimestampMillis(now)
        .setNumAttemptsAllowed(5)
        .setCustomStatus("queued")
        .setHeaders(Map.of("content-type", "application/octet-stream", "pinlater-task", "resize"))
        .setUniqueKey("picture-" + run)
        .setUniqueScope(UniqueScope.TIME)
        .setUniqueForMillis(60_000)
        .setClaimTimeoutMillis(120_000)
        .setExpiresAtMillis(now + 3_600_000);
    List<PinLaterJob> batch = List.of(one, job("two", 2), job("three", 3).setNumAttemptsAllowed(3));
    PinLaterEnqueueRequest request =
        new PinLaterEnqueueRequest(QUEUE, batch).setRequestKey(run);
    List<String> jobs = client.enqueueJobs(ME, request).getJobDescriptors();
    print("jobs %s", String.join(" ", jobs));

    // What to do when the answer was lost: the same request once more, marked as a repeat. Nothing is stored twice.
    List<String> again = client.enqueueJobs(ME, request.setRepeated(true)).getJobDescriptors();
    print("repeated: the same jobs: %s", again.equals(jobs));

    PinLaterJob rival = job("one again", 1).setUniqueKey(one.getUniqueKey());
    PinLaterEnqueueResponse taken = client.enqueueJobs(ME, new PinLaterEnqueueRequest(QUEUE, List.of(rival)));
    boolean same = taken.getJobDescriptors().get(0).equals(jobs.get(0));
    print("unique key taken: index %d is job one: %s", taken.getExisting().get(0), same);
    return jobs;
  }

  private void look(List<String> jobs) throws TException {
    print("waiting: %d", count(PinLaterJobState.PENDING, false));
    PinLaterScanJobsRequest request =
        new PinLaterScanJobsRequest(QUEUE, PinLaterJobState.PENDING).setLimit(2).setPaged(true).setIncludeBody(true);
    Map<String, String> bodies = new TreeMap<>();
    int pages = 0;
    do {
      PinLaterScanJobsResponse found = client.scanJobs(ME, request);
      found.getScannedJobs().forEach(job -> bodies.put(job.getJobDescriptor(), hex(job.getBody())));
      request.setContinuation(found.getContinuation());
      pages++;
    } while (!request.getContinuation().equals(pinlaterConstants.CONTINUATION_END));
    String inOrder = jobs.stream().map(bodies::get).collect(Collectors.joining(" "));
    print("scanned: %d jobs in %d pages, bodies %s", bodies.size(), pages, inOrder);
  }

  private int count(PinLaterJobState state, boolean future) throws TException {
    return client.getJobCount(ME, new PinLaterGetJobCountRequest(QUEUE, state).setCountFutureJobs(future));
  }

  /** Asks for jobs, waits up to two seconds for one, and takes along what has been done since the last time. */
  private PinLaterDequeueResponse claim(PinLaterJobAckRequest acks) throws TException {
    return client.dequeueJobs(
        ME, new PinLaterDequeueRequest(QUEUE, 10).setWaitMillis(2_000).setJobAckRequest(acks));
  }

  private void work() throws TException {
    PinLaterDequeueResponse claimed = claim(null);
    for (String name : claimed.getJobOrder()) {
      PinLaterDequeueMetadata about = claimed.getJobMetadata().get(name);
      String task = about.isSetHeaders() ? about.getHeaders().getOrDefault("pinlater-task", "") : "";
      String body = hex(claimed.getJobs().get(name));
      print("claimed: %s, attempt %d, %d left, task \"%s\"", body, about.getAttempt(), about.getAttemptsRemaining(), task);
    }
    String one = claimed.getJobOrder().get(0);
    String two = claimed.getJobOrder().get(1);
    String three = claimed.getJobOrder().get(2);

    // Saves how far two has come and renews its claim.
    PinLaterCheckpointJobRequest step = new PinLaterCheckpointJobRequest(two)
        .setClaimToken(claimed.getJobMetadata().get(two).getClaimToken())
        .setNewBody(bytes("two, half done"));
    PinLaterCheckpointJobsRequest checkpoint = new PinLaterCheckpointJobsRequest(QUEUE, List.of(step));
    print("checkpoint: %s", client.checkpointJobsFenced(ME, checkpoint).get(0).getOutcome());

    // Three failed and is due again at once.
    PinLaterJobAckInfo retry = ack(claimed, three).setErrorType("Timeout").setErrorText("no answer");
    PinLaterDequeueResponse again = claim(new PinLaterJobAckRequest(QUEUE).setJobsFailed(List.of(retry)));
    Outcome riding = again.getAckOutcomes().get(0).getOutcome();
    // A ByteBuffer is a window on the whole answer: its array() holds more than the body.
    String body = StandardCharsets.UTF_8.decode(again.getJobs().get(three)).toString();
    int attempt = again.getJobMetadata().get(three).getAttempt();
    print("ack rode along: %s; claimed again: %s, attempt %d", riding, body, attempt);

    PinLaterJobAckInfo done = ack(claimed, one).setAppendCustomStatus(", done");
    PinLaterJobAckInfo hopeless = ack(claimed, two)
        .setFinalFailure(true) // whatever attempts are left
        .setErrorType("BadPicture")
        .setErrorText("it is empty");
    PinLaterJobAckInfo late = ack(claimed, three);
    PinLaterJobAckInfo later = ack(again, three).setRetryDelayMillis(3_600_000);
    PinLaterJobAckRequest acks = new PinLaterJobAckRequest(QUEUE);
    acks.setJobsSucceeded(List.of(done)).setJobsFailed(List.of(hopeless, late));
    client.ackJobs(ME, acks).forEach(each -> print("ack: %s", each.getOutcome()));
    acks = new PinLaterJobAckRequest(QUEUE).setJobsFailed(List.of(later));
    client.ackJobs(ME, acks).forEach(each -> print("ack: %s", each.getOutcome()));
  }

  /** An ack counts for the claim whose token it carries: `late` comes too late, the job has been claimed again since. */
  private static PinLaterJobAckInfo ack(PinLaterDequeueResponse claimed, String name) {
    return new PinLaterJobAckInfo(name).setClaimToken(claimed.getJobMetadata().get(name).getClaimToken());
  }

  private void lookAgain(List<String> jobs) throws TException {
    PinLaterLookupJobRequest request = new PinLaterLookupJobRequest(jobs).setIncludeBody(true);
    Map<String, PinLaterJobInfo> found = client.lookupJobs(ME, request);
    for (String name : jobs) {
      PinLaterJobInfo job = found.get(name);
      String left = String.format("%d of %d attempts left", job.getAttemptsRemaining(), job.getAttemptsAllowed());
      String error = job.isSetLastErrorType() ? job.getLastErrorType() : "";
      print(
          "now: %s, %s, %s, status \"%s\", error \"%s\"",
          hex(job.getBody()), job.getJobState(), left, job.getCustomStatus(), error);
    }
    int failed = count(PinLaterJobState.FAILED, false);
    print("failed: %d waiting for later: %d", failed, count(PinLaterJobState.PENDING, true));
  }

  private void beRefused() throws TException {
    try {
      client.dequeueJobs(ME, new PinLaterDequeueRequest("no_such_queue", 1));
    } catch (PinLaterException refusal) {
      print(
          "refused: %s, detail %s, retryable %s: %s",
          refusal.getErrorCode(), refusal.getDetail(), refusal.isRetryable(), refusal.getMessage());
    }
  }

  private static ByteBuffer bytes(String latin1) {
    return ByteBuffer.wrap(latin1.getBytes(StandardCharsets.ISO_8859_1));
  }

  private static String hex(byte[] body) {
    return hex(ByteBuffer.wrap(body));
  }

  private static String hex(ByteBuffer body) {
    StringBuilder text = new StringBuilder();
    for (int at = body.position(); at < body.limit(); at++) {
      text.append(String.format("%02x", body.get(at)));
    }
    return text.toString();
  }

  private static void print(String format, Object... values) {
    System.out.println(String.format(format, values));
  }
}
