import com.twitter.finagle.Service;
import com.twitter.finagle.thrift.ThriftClientRequest;
import com.twitter.util.Await;
import com.twitter.util.Duration;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.transport.TMemoryBuffer;
import org.apache.thrift.transport.TMemoryInputTransport;

/** What a client of the original does, through Finagle: only fields and methods of the original. */
public final class Scenario {
  private static final String QUEUE = "old_clients";
  private static final Duration DEADLINE = Duration.fromSeconds(20);
  private static final int FAILED = 3;

  private final Service<ThriftClientRequest, byte[]> service;
  private final Struct context = new Struct().with(1, "finagle-client").with(2, "request-1");

  private Scenario(Service<ThriftClientRequest, byte[]> service) {
    this.service = service;
  }

  public static void main(String[] arguments) throws Exception {
    String[] address = arguments[0].split(":");
    Service<ThriftClientRequest, byte[]> service = Connect.to(address[0], Integer.parseInt(address[1]));
    new Scenario(service).walk();
    Await.result(service.close(), DEADLINE);
    System.exit(0); // Finagle's timers would keep the process
  }

  private void walk() throws Exception {
    call("createQueue", arguments().with(2, QUEUE));
    List<Object> jobs = enqueue();
    claimAndFinish();
    Struct lookup = new Struct().with(1, jobs).with(2, true);
    Map<String, Struct> found = call("lookupJobs", arguments().with(2, lookup)).get(0);
    for (Object name : jobs) {
      Struct job = found.get((String) name);
      print("now: %s, state %d, %d of %d attempts left, status \"%s\"",
          job.text(9), job.get(2), job.get(3), job.get(10), job.text(4));
    }
    print("failed: %d", (Integer) call("getJobCount", arguments().with(2, new Struct().with(1, QUEUE).with(2, FAILED))).get(0));
    Struct refusal = call("dequeueJobs", arguments().with(2, new Struct().with(1, "no_such_queue").with(2, 1))).get(1);
    print("refused: %d %s", refusal.get(1), refusal.text(2));
  }

  private List<Object> enqueue() throws Exception {
    Struct one = new Struct().with(1, bytes("one")).with(2, (byte) 1).with(3, System.currentTimeMillis()).with(4, 3).with(5, "queued");
    Struct two = new Struct().with(1, bytes("two")).with(2, (byte) 2);
    Struct three = new Struct().with(1, bytes("three")).with(2, (byte) 3);
    Struct request = new Struct().with(1, QUEUE).with(2, Arrays.asList(one, two, three));
    Struct stored = call("enqueueJobs", arguments().with(2, request)).get(0);
    List<Object> jobs = stored.get(1);
    jobs.replaceAll(Struct::text);
    print("jobs: %d", jobs.size());
    return jobs;
  }

  private void claimAndFinish() throws Exception {
    Struct claimed = dequeue(null);
    Map<String, byte[]> bodies = claimed.get(1);
    Map<String, Struct> metadata = claimed.get(2);
    bodies.entrySet().stream()
        .sorted(Map.Entry.comparingByKey())
        .forEach(job -> print("claimed: %s, %d of %d attempts left", Struct.text(job.getValue()),
            metadata.get(job.getKey()).get(2), metadata.get(job.getKey()).get(1)));
    String one = named(bodies, "one"), two = named(bodies, "two"), three = named(bodies, "three");

    Struct step = new Struct().with(1, two).with(2, "two, half done").with(6, "half; ");
    call("checkpointJobs", arguments().with(2, new Struct().with(1, QUEUE).with(2, Arrays.asList(step))));

    Struct done = new Struct().with(1, one).with(2, ", done");
    Struct failed = new Struct().with(1, two).with(2, "failed").with(3, 3_600_000L);
    call("ackDequeuedJobs", arguments().with(2, acks(done, failed)));

    // The last one's ack rides on the next dequeue, which finds nothing.
    Struct nothing = dequeue(acks(new Struct().with(1, three), null));
    Map<String, byte[]> more = nothing.get(1);
    print("claimed then: %d", more == null ? 0 : more.size());
  }

  private Struct dequeue(Struct acks) throws Exception {
    Struct request = new Struct().with(1, QUEUE).with(2, 10);
    return call("dequeueJobs", arguments().with(2, acks == null ? request : request.with(3, acks))).get(0);
  }

  private static Struct acks(Struct succeeded, Struct failed) {
    Struct request = new Struct().with(1, QUEUE).with(2, Arrays.asList(succeeded));
    return failed == null ? request : request.with(3, Arrays.asList(failed));
  }

  private static String named(Map<String, byte[]> bodies, String body) {
    return bodies.keySet().stream().filter(name -> Struct.text(bodies.get(name)).equals(body)).findFirst().get();
  }

  private Struct arguments() {
    return new Struct().with(1, context);
  }

  /** The result struct of a method: field 0 is what it returns, field 1 what it throws. */
  private Struct call(String method, Struct arguments) throws Exception {
    TMemoryBuffer buffer = new TMemoryBuffer(512);
    TProtocol out = new TBinaryProtocol(buffer);
    out.writeMessageBegin(new TMessage(method, TMessageType.CALL, 0));
    arguments.write(out);
    out.writeMessageEnd();
    byte[] request = Arrays.copyOf(buffer.getArray(), buffer.length());
    byte[] answer = Await.result(service.apply(new ThriftClientRequest(request, false)), DEADLINE);
    TProtocol in = new TBinaryProtocol(new TMemoryInputTransport(answer));
    TMessage head = in.readMessageBegin();
    Struct result = Struct.read(in);
    if (head.type != TMessageType.REPLY) throw new IllegalStateException(method + ": " + result.text(1));
    return result;
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static void print(String format, Object... values) {
    System.out.println(String.format(format, values));
  }
}
