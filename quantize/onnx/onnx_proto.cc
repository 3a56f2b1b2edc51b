// SPDX-License-Identifier: Apache-2.0
#include "quantize/onnx/onnx_proto.h"

#include <utility>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t value = 0;                // kVarint, kFixed64, kFixed32
  std::span<const uint8_t> bytes{};  // kLength
};

// The fields of one message, in order. `message` is its name, for errors.
class Reader {
 public:
  Reader(const char* message, std::span<const uint8_t> bytes) : message_(message), rest_(bytes) {}

  bool done() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }
  const char* message() const { return message_; }

  Result<uint64_t> Varint() {
    uint64_t value = 0;
    for (size_t i = 0; i < 10; ++i) {
      if (i == rest_.size()) return Error("a number that the end of the message cuts off");
      const uint64_t bits = rest_[i] & 0x7f;
      if (i == 9 && rest_[i] > 1) return Error("a number of more than 64 bits");
      value |= bits << (7 * i);
      if ((rest_[i] & 0x80) == 0) {
        rest_ = rest_.subspan(i + 1);
        return value;
      }
    }
    return Error("a number of more than 10 bytes");
  }

  Result<Field> Next() {
    ATOLL_ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    Field field;
    if (tag > UINT32_MAX || tag >> 3 == 0) return Error("a field without a number");
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire_type = static_cast<uint32_t>(tag & 7);
    switch (field.wire_type) {
      case kVarint: {
        ATOLL_ASSIGN_OR_RETURN(field.value, Varint());
        return field;
      }
      case kFixed64:
        if (rest_.size() < 8) return Error("8 bytes that the end of the message cuts off");
        field.value = LoadLittleEndian<uint64_t>(rest_.data());
        rest_ = rest_.subspan(8);
        return field;
      case kFixed32:
        if (rest_.size() < 4) return Error("4 bytes that the end of the message cuts off");
        field.value = LoadLittleEndian<uint32_t>(rest_.data());
        rest_ = rest_.subspan(4);
        return field;
      case kLength: {
        ATOLL_ASSIGN_OR_RETURN(const uint64_t length, Varint());
        if (length > rest_.size()) {
          return CorruptModel("%s has a field %u of %llu bytes where %zu are left", message_,
                              field.number, static_cast<unsigned long long>(length), rest_.size());
        }
        field.bytes = rest_.first(static_cast<size_t>(length));
        rest_ = rest_.subspan(static_cast<size_t>(length));
        return field;
      }
      default:
        return CorruptModel("%s has a field %u of wire type %u, which ONNX does not use", message_,
                            field.number, field.wire_type);
    }
  }

  Status WrongType(const Field& field) const {
    return CorruptModel("%s has a field %u of wire type %u", message_, field.number,
                        field.wire_type);
  }

 private:
  Status Error(const char* what) const { return CorruptModel("%s has %s", message_, what); }

  const char* message_;
  std::span<const uint8_t> rest_;
};

std::string_view Text(const Field& field) {
  return {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()};
}

// Repeated numbers are packed into one field or stand one by one; both append to `values`.
Status AppendVarints(const Reader& reader, const Field& field, std::vector<int64_t>* values) {
  if (field.wire_type == kVarint) {
    values->push_back(static_cast<int64_t>(field.value));
    return Status();
  }
  if (field.wire_type != kLength) return reader.WrongType(field);
  Reader packed(reader.message(), field.bytes);
  // A number ends with each byte below 0x80.
  size_t count = 0;
  for (const uint8_t byte : field.bytes) count += byte < 0x80 ? 1 : 0;
  if (values->empty()) values->reserve(count);
  while (!packed.done()) {
    ATOLL_ASSIGN_OR_RETURN(const uint64_t value, packed.Varint());
    values->push_back(static_cast<int64_t>(value));
  }
  return Status();
}

template <typename T>
Status AppendFixed(const Reader& reader, const Field& field, std::vector<T>* values) {
  constexpr uint32_t kSingle = sizeof(T) == 4 ? kFixed32 : kFixed64;
  if (field.wire_type == kSingle) {
    uint8_t bytes[8];
    StoreLittleEndian(bytes, field.value);
    values->push_back(LoadLittleEndian<T>(bytes));
    return Status();
  }
  if (field.wire_type != kLength || field.bytes.size() % sizeof(T) != 0) {
    return reader.WrongType(field);
  }
  const size_t first = values->size();
  values->resize(first + field.bytes.size() / sizeof(T));
  for (size_t i = 0; i < field.bytes.size() / sizeof(T); ++i) {
    (*values)[first + i] = LoadLittleEndian<T>(field.bytes.data() + i * sizeof(T));
  }
  return Status();
}

Status Expect(const Reader& reader, const Field& field, uint32_t wire_type) {
  return field.wire_type == wire_type ? Status() : reader.WrongType(field);
}

Result<OnnxAttribute> ReadAttribute(std::span<const uint8_t> bytes) {
  OnnxAttribute attribute;
  Reader reader("AttributeProto", bytes);
  while (!reader.done()) {
    ATOLL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    switch (field.number) {
      case 1:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        attribute.name = Text(field);
        break;
      case 2: {
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kFixed32));
        const uint32_t bits = static_cast<uint32_t>(field.value);
        std::memcpy(&attribute.f, &bits, sizeof(bits));
        break;
      }
      case 3:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kVarint));
        attribute.i = static_cast<int64_t>(field.value);
        break;
      case 4:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        attribute.s = Text(field);
        break;
      case 5:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        attribute.tensor = field.bytes;
        break;
      case 7:
        ATOLL_RETURN_IF_ERROR(AppendFixed(reader, field, &attribute.floats));
        break;
      case 8:
        ATOLL_RETURN_IF_ERROR(AppendVarints(reader, field, &attribute.ints));
        break;
      case 20:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kVarint));
        attribute.type = static_cast<int32_t>(field.value);
        break;
      default:
        break;
    }
  }
  if (attribute.name.empty()) return CorruptModel("an attribute has no name");
  return attribute;
}

Result<OnnxNode> ReadNode(std::span<const uint8_t> bytes) {
  OnnxNode node;
  Reader reader("NodeProto", bytes);
  while (!reader.done()) {
    ATOLL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number >= 1 && field.number <= 7 && field.number != 6) {
      ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
    }
    switch (field.number) {
      case 1:
        node.inputs.push_back(Text(field));
        break;
      case 2:
        node.outputs.push_back(Text(field));
        break;
      case 3:
        node.name = Text(field);
        break;
      case 4:
        node.op_type = Text(field);
        break;
      case 5: {
        ATOLL_ASSIGN_OR_RETURN(OnnxAttribute attribute, ReadAttribute(field.bytes));
        node.attributes.push_back(std::move(attribute));
        break;
      }
      case 7:
        node.domain = Text(field);
        break;
      default:
        break;
    }
  }
  if (node.op_type.empty()) return CorruptModel("a node has no operator");
  return node;
}

// TensorShapeProto: -1 for each dimension that is no number.
Status ReadShape(std::span<const uint8_t> bytes, std::vector<int64_t>* dims) {
  Reader reader("TensorShapeProto", bytes);
  while (!reader.done()) {
    ATOLL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number != 1) continue;
    ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
    Reader dimension("Dimension", field.bytes);
    int64_t size = -1;
    while (!dimension.done()) {
      ATOLL_ASSIGN_OR_RETURN(const Field part, dimension.Next());
      if (part.number == 1 && part.wire_type == kVarint) size = static_cast<int64_t>(part.value);
    }
    dims->push_back(size);
  }
  return Status();
}

Result<OnnxValueInfo> ReadValueInfo(std::span<const uint8_t> bytes) {
  OnnxValueInfo info;
  Reader reader("ValueInfoProto", bytes);
  while (!reader.done()) {
    ATOLL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number == 1) {
      ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
      info.name = Text(field);
    }
    if (field.number != 2) continue;
    ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
    Reader type("TypeProto", field.bytes);
    while (!type.done()) {
      ATOLL_ASSIGN_OR_RETURN(const Field kind, type.Next());
      if (kind.number != 1 || kind.wire_type != kLength) continue;
      info.is_tensor = true;
      Reader tensor("TypeProto.Tensor", kind.bytes);
      while (!tensor.done()) {
        ATOLL_ASSIGN_OR_RETURN(const Field part, tensor.Next());
        if (part.number == 1 && part.wire_type == kVarint) {
          info.type = static_cast<OnnxType>(static_cast<int32_t>(part.value));
        } else if (part.number == 2 && part.wire_type == kLength) {
          info.has_shape = true;
          ATOLL_RETURN_IF_ERROR(ReadShape(part.bytes, &info.dims));
        }
      }
    }
  }
  return info;
}

Result<OnnxGraph> ReadGraph(std::span<const uint8_t> bytes) {
  OnnxGraph graph;
  Reader reader("GraphProto", bytes);
  while (!reader.done()) {
    ATOLL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    switch (field.number) {
      case 1: {
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        ATOLL_ASSIGN_OR_RETURN(OnnxNode node, ReadNode(field.bytes));
        graph.nodes.push_back(std::move(node));
        break;
      }
      case 2:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        graph.name = Text(field);
        break;
      case 5: {
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        ATOLL_ASSIGN_OR_RETURN(OnnxTensor tensor, ReadOnnxTensor(field.bytes));
        if (tensor.name.empty()) return CorruptModel("an initializer has no name");
        graph.initializers.push_back(std::move(tensor));
        break;
      }
      case 11:
      case 12: {
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        ATOLL_ASSIGN_OR_RETURN(OnnxValueInfo info, ReadValueInfo(field.bytes));
        if (info.name.empty()) return CorruptModel("an input or output of the graph has no name");
        (field.number == 11 ? graph.inputs : graph.outputs).push_back(std::move(info));
        break;
      }
      default:
        break;
    }
  }
  return graph;
}

}  // namespace

const char* OnnxTypeName(OnnxType type) {
  constexpr const char* kNames[] = {"undefined", "float",  "uint8",  "int8",   "uint16",
                                    "int16",     "int32",  "int64",  "string", "bool",
                                    "float16",   "double", "uint32", "uint64"};
  const size_t index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

Result<OnnxTensor> ReadOnnxTensor(std::span<const uint8_t> bytes) {
  OnnxTensor tensor;
  Reader reader("TensorProto", bytes);
  while (!reader.done()) {
    ATOLL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    switch (field.number) {
      case 1:
        ATOLL_RETURN_IF_ERROR(AppendVarints(reader, field, &tensor.dims));
        break;
      case 2:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kVarint));
        tensor.type = static_cast<OnnxType>(static_cast<int32_t>(field.value));
        break;
      case 4:
        ATOLL_RETURN_IF_ERROR(AppendFixed(reader, field, &tensor.floats));
        break;
      case 5:
      case 7:
      case 11:
        ATOLL_RETURN_IF_ERROR(AppendVarints(reader, field, &tensor.integers));
        break;
      case 8:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        tensor.name = Text(field);
        break;
      case 9:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        tensor.raw = field.bytes;
        break;
      case 10:
        ATOLL_RETURN_IF_ERROR(AppendFixed(reader, field, &tensor.doubles));
        break;
      case 13:
        tensor.external = true;
        break;
      case 14:
        if (field.wire_type == kVarint && field.value == 1) tensor.external = true;
        break;
      default:
        break;
    }
  }
  return tensor;
}

Result<OnnxModel> ReadOnnxModel(std::span<const uint8_t> bytes) {
  OnnxModel model;
  bool has_graph = false;
  Reader reader("ModelProto", bytes);
  while (!reader.done()) {
    ATOLL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    switch (field.number) {
      case 1:
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kVarint));
        model.ir_version = static_cast<int64_t>(field.value);
        break;
      case 7: {
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        if (has_graph) return CorruptModel("ModelProto has two graphs");
        has_graph = true;
        ATOLL_ASSIGN_OR_RETURN(model.graph, ReadGraph(field.bytes));
        break;
      }
      case 8: {
        ATOLL_RETURN_IF_ERROR(Expect(reader, field, kLength));
        Reader opset("OperatorSetIdProto", field.bytes);
        std::string_view domain;
        int64_t version = 0;
        while (!opset.done()) {
          ATOLL_ASSIGN_OR_RETURN(const Field part, opset.Next());
          if (part.number == 1 && part.wire_type == kLength) domain = Text(part);
          if (part.number == 2) version = static_cast<int64_t>(part.value);
        }
        if (domain.empty() || domain == "ai.onnx") model.opset = version;
        break;
      }
      default:
        break;
    }
  }
  if (!has_graph) return CorruptModel("%zu bytes without a graph are no ONNX model", bytes.size());
  return model;
}

}  // namespace atollrt
