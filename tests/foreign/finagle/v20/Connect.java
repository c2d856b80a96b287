import com.twitter.finagle.Service;
import com.twitter.finagle.Thrift;
import com.twitter.finagle.thrift.ThriftClientRequest;

/** As a client on today's Finagle connects. */
final class Connect {
  private Connect() {}

  static Service<ThriftClientRequest, byte[]> to(String host, int port) {
    return Thrift.client().newService(host + ":" + port, "pinlater");
  }
}
