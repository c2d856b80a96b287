import com.twitter.finagle.Service;
import com.twitter.finagle.builder.ClientBuilder;
import com.twitter.finagle.thrift.ThriftClientFramedCodec;
import com.twitter.finagle.thrift.ThriftClientRequest;
import java.net.InetSocketAddress;
import org.apache.thrift.protocol.TBinaryProtocol;

/**
 * As the original's own clients connect, but for the protocol's factory: Finagle's own of those years writes the same bytes
 * by a way into Java's strings that is closed since Java 9.
 */
final class Connect {
  private Connect() {}

  static Service<ThriftClientRequest, byte[]> to(String host, int port) {
    return ClientBuilder.safeBuild(
        ClientBuilder.get()
            .hosts(new InetSocketAddress(host, port))
            .codec(ThriftClientFramedCodec.get().protocolFactory(new TBinaryProtocol.Factory()))
            .hostConnectionLimit(1));
  }
}
