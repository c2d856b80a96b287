import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TField;
import org.apache.thrift.protocol.TList;
import org.apache.thrift.protocol.TMap;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.protocol.TStruct;
import org.apache.thrift.protocol.TType;

/**
 * Any Thrift struct, its fields by their ids: what generated code would put on the wire, and read from it.
 *
 * <p>Stands in for generated code because no compiler that can be had today makes code for the libthrift of Finagle's
 * early years. Knows just the types that the scenario needs; strings are read as bytes.
 */
final class Struct {
  private final Map<Short, Object> fields = new TreeMap<>();

  Struct with(int id, Object value) {
    fields.put((short) id, value);
    return this;
  }

  @SuppressWarnings("unchecked")
  <T> T get(int id) {
    return (T) fields.get((short) id);
  }

  String text(int id) {
    return text(get(id));
  }

  static String text(Object bytes) {
    return new String((byte[]) bytes, StandardCharsets.UTF_8);
  }

  void write(TProtocol out) throws TException {
    out.writeStructBegin(new TStruct(""));
    for (Map.Entry<Short, Object> field : fields.entrySet()) {
      out.writeFieldBegin(new TField("", typeOf(field.getValue()), field.getKey()));
      writeValue(out, field.getValue());
      out.writeFieldEnd();
    }
    out.writeFieldStop();
    out.writeStructEnd();
  }

  private static byte typeOf(Object value) {
    if (value instanceof Boolean) return TType.BOOL;
    if (value instanceof Byte) return TType.BYTE;
    if (value instanceof Integer) return TType.I32;
    if (value instanceof Long) return TType.I64;
    if (value instanceof String || value instanceof byte[]) return TType.STRING;
    if (value instanceof Struct) return TType.STRUCT;
    if (value instanceof List) return TType.LIST;
    throw new IllegalArgumentException(String.valueOf(value));
  }

  private static void writeValue(TProtocol out, Object value) throws TException {
    if (value instanceof Boolean) out.writeBool((Boolean) value);
    else if (value instanceof Byte) out.writeByte((Byte) value);
    else if (value instanceof Integer) out.writeI32((Integer) value);
    else if (value instanceof Long) out.writeI64((Long) value);
    else if (value instanceof String) out.writeString((String) value);
    else if (value instanceof byte[]) out.writeBinary(ByteBuffer.wrap((byte[]) value));
    else if (value instanceof Struct) ((Struct) value).write(out);
    else writeList(out, (List<?>) value);
  }

  private static void writeList(TProtocol out, List<?> values) throws TException {
    out.writeListBegin(new TList(typeOf(values.get(0)), values.size()));
    for (Object each : values) {
      writeValue(out, each);
    }
    out.writeListEnd();
  }

  static Struct read(TProtocol in) throws TException {
    Struct struct = new Struct();
    in.readStructBegin();
    for (TField field = in.readFieldBegin(); field.type != TType.STOP; field = in.readFieldBegin()) {
      struct.with(field.id, readValue(in, field.type));
      in.readFieldEnd();
    }
    in.readStructEnd();
    return struct;
  }

  private static Object readValue(TProtocol in, byte type) throws TException {
    switch (type) {
      case TType.BOOL:
        return in.readBool();
      case TType.BYTE:
        return in.readByte();
      case TType.I32:
        return in.readI32();
      case TType.I64:
        return in.readI64();
      case TType.STRING:
        return bytes(in.readBinary());
      case TType.STRUCT:
        return read(in);
      case TType.LIST:
        return readList(in);
      case TType.MAP:
        return readMap(in);
      default:
        throw new IllegalArgumentException("type " + type);
    }
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] copy = new byte[buffer.remaining()];
    buffer.get(copy);
    return copy;
  }

  private static List<Object> readList(TProtocol in) throws TException {
    TList head = in.readListBegin();
    List<Object> values = new ArrayList<>();
    for (int at = 0; at < head.size; at++) {
      values.add(readValue(in, head.elemType));
    }
    in.readListEnd();
    return values;
  }

  /** All maps of the contract have text for keys. */
  private static Map<String, Object> readMap(TProtocol in) throws TException {
    TMap head = in.readMapBegin();
    Map<String, Object> values = new LinkedHashMap<>();
    for (int at = 0; at < head.size; at++) {
      values.put(text(readValue(in, head.keyType)), readValue(in, head.valueType));
    }
    in.readMapEnd();
    return values;
  }
}
