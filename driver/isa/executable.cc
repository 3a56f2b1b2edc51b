// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/executable.h"

#include <algorithm>
#include <string_view>

#include "driver/isa/timing.h"
#include "executable_generated.h"  // made from executable.fbs by flatc, in the build tree
#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr size_t kContainerAlignment = 8;   // of the widest scalar in executable.fbs
constexpr size_t kParameterAlignment = 32;  // force_align in executable.fbs

// Bytes that a program takes from and gives to the host.
struct Movement {
  uint64_t input = 0;
  uint64_t output = 0;
  uint64_t parameters = 0;
};

Status ValidateLayers(const char* kind, const std::vector<Layer>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const std::string name = Quoted(layer.name);
    if (layer.type > LayerType::kInt16) {
      return CorruptModel("%s %zu %s has unknown type %d", kind, i, name.c_str(),
                          static_cast<int>(layer.type));
    }
    if (layer.shape.size() > kMaxLayerRank) {
      return CorruptModel("%s %zu %s has rank %zu, at most %zu is allowed", kind, i, name.c_str(),
                          layer.shape.size(), kMaxLayerRank);
    }
    uint64_t bytes = LayerTypeBytes(layer.type);
    for (size_t axis = 0; axis < layer.shape.size(); ++axis) {
      const int32_t extent = layer.shape[axis];
      if (extent < 1) {
        return CorruptModel("%s %zu %s: dimension %zu is %d, must be at least 1", kind, i,
                            name.c_str(), axis, extent);
      }
      // Both factors are below 2^31 at this point, so the product fits.
      bytes *= static_cast<uint64_t>(extent);
      if (bytes >= kSegmentLimit) {
        return CorruptModel("%s %zu %s is larger than 2 GiB", kind, i, name.c_str());
      }
    }
    if (bytes != layer.bytes) {
      return CorruptModel("%s %zu %s: the shape has %llu bytes, the layer says %llu", kind, i,
                          name.c_str(), static_cast<unsigned long long>(bytes),
                          static_cast<unsigned long long>(layer.bytes));
    }
  }
  return {};
}

// Checks that each address operand begins inside its segment, all bytes of it for those that move a
// stream, and counts these in `moved`.
Status ValidateInstruction(const Executable& executable, const Instruction& instruction,
                           Movement* moved) {
  uint64_t extent = 0;
  if (const auto* input = std::get_if<InputInstruction>(&instruction)) {
    moved->input += extent = input->bytes;
  } else if (const auto* output = std::get_if<OutputInstruction>(&instruction)) {
    moved->output += extent = output->bytes;
  } else if (const auto* parameters = std::get_if<ParametersInstruction>(&instruction)) {
    moved->parameters += extent = parameters->bytes;
  }
  const InstructionInfo& info = InstructionTable()[instruction.index()];
  const EncodedInstruction encoded = Encode(instruction);
  for (size_t i = 0; i < info.operands.size(); ++i) {
    if (!IsAddress(info.operands[i])) continue;
    const auto address = LoadLittleEndian<uint32_t>(&encoded[4 * (i + 1)]);
    const bool in_parameters = (address & kParameterSegment) != 0;
    const uint64_t segment_bytes =
        in_parameters ? executable.resident_parameters.size() : executable.activation_bytes;
    const uint64_t offset = address & ~kParameterSegment;
    const uint64_t end = offset + std::max<uint64_t>(extent, 1);
    if (end > segment_bytes) {
      return CorruptModel("%s %s reaches byte %llu of the %s segment, which has %llu",
                          info.mnemonic, info.operands[i].name(),
                          static_cast<unsigned long long>(end),
                          in_parameters ? "parameter" : "activation",
                          static_cast<unsigned long long>(segment_bytes));
    }
  }
  return {};
}

Status ValidateProgram(const Executable& executable, const std::vector<Instruction>& program,
                       const Movement& announced) {
  if (program.empty()) return CorruptModel("the program is empty; it must end with END");
  Movement moved;
  for (size_t i = 0; i < program.size(); ++i) {
    if (std::holds_alternative<std::monostate>(program[i])) {
      return CorruptModel("instruction %zu is none", i);
    }
    const bool is_end = std::holds_alternative<EndInstruction>(program[i]);
    const bool is_last = i + 1 == program.size();
    if (is_end != is_last) {
      return is_end ? CorruptModel("instruction %zu is END, but %zu more follow", i,
                                   program.size() - i - 1)
                    : CorruptModel("the last instruction, %zu, is %s; it must be END", i,
                                   Mnemonic(program[i]));
    }
    ATOLL_RETURN_IF_ERROR(ValidateInstruction(executable, program[i], &moved)
                              .WithContext(Format("instruction %zu", i)));
  }
  const auto check = [](const char* verb, const char* what, uint64_t actual, uint64_t expected) {
    if (actual == expected) return Status();
    return CorruptModel("the program %s %llu bytes of %s, the executable announces %llu", verb,
                        static_cast<unsigned long long>(actual), what,
                        static_cast<unsigned long long>(expected));
  };
  ATOLL_RETURN_IF_ERROR(check("takes", "input", moved.input, announced.input));
  ATOLL_RETURN_IF_ERROR(check("takes", "parameters", moved.parameters, announced.parameters));
  return check("gives", "output", moved.output, announced.output);
}

Status ValidateNodes(const Executable& executable) {
  const std::vector<int32_t>& nodes = executable.inference_nodes;
  if (nodes.empty()) return {};
  if (nodes.size() != executable.inference_program.size()) {
    return CorruptModel("%zu instructions, but %zu nodes that they belong to",
                        executable.inference_program.size(), nodes.size());
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] < -1) {
      return CorruptModel("instruction %zu belongs to node %d; must be at least -1", i, nodes[i]);
    }
  }
  return {};
}

Status ValidateContents(const Executable& executable) {
  if (executable.isa_version != kIsaVersion) {
    return Unsupported(
        "made for ISA version %u, this library knows version %u; compile the original model again "
        "with this version of Atoll",
        executable.isa_version, kIsaVersion);
  }
  if (executable.activation_bytes >= kSegmentLimit ||
      executable.resident_parameters.size() >= kSegmentLimit ||
      executable.streamed_parameters.size() >= kSegmentLimit) {
    return CorruptModel(
        "segment sizes must be below 2 GiB: activations %llu, resident parameters %zu, streamed "
        "parameters %zu bytes",
        static_cast<unsigned long long>(executable.activation_bytes),
        executable.resident_parameters.size(), executable.streamed_parameters.size());
  }
  if (executable.inputs.size() + executable.outputs.size() > kMaxLayers) {
    return CorruptModel("%zu inputs and %zu outputs, at most %zu together are allowed",
                        executable.inputs.size(), executable.outputs.size(), kMaxLayers);
  }
  ATOLL_RETURN_IF_ERROR(ValidateLayers("input", executable.inputs));
  ATOLL_RETURN_IF_ERROR(ValidateLayers("output", executable.outputs));
  const Movement inference{.input = TotalBytes(executable.inputs),
                           .output = TotalBytes(executable.outputs),
                           .parameters = executable.streamed_parameters.size()};
  ATOLL_RETURN_IF_ERROR(ValidateProgram(executable, executable.inference_program, inference)
                            .WithContext("inference program"));
  ATOLL_RETURN_IF_ERROR(ValidateNodes(executable).WithContext("inference program"));
  if (executable.resident_parameters.empty() && executable.caching_program.empty()) return {};
  return ValidateProgram(executable, executable.caching_program,
                         {.parameters = executable.resident_parameters.size()})
      .WithContext("caching program");
}

// Reading the container. The verifier has run, but optional fields may be absent.

std::string ReadString(const flatbuffers::String* text) {
  return text != nullptr ? text->str() : std::string();
}

std::vector<uint8_t> ReadBytes(const flatbuffers::Vector<uint8_t>* bytes) {
  if (bytes == nullptr) return {};
  return {bytes->begin(), bytes->end()};
}

// Tables of a container may share what they point to, so a thousand layers can have one name of
// megabytes. What is copied for them is limited before it is copied: `name_bytes`, of all layers so
// far, to what the whole container has.
Status ReadLayers(const char* kind,
                  const flatbuffers::Vector<flatbuffers::Offset<schema::Layer>>* stored,
                  size_t container_bytes, size_t* name_bytes, std::vector<Layer>* layers) {
  if (stored == nullptr) return {};
  if (stored->size() > kMaxLayers) {
    return CorruptModel("%u %ss, at most %zu are allowed", stored->size(), kind, kMaxLayers);
  }
  layers->reserve(stored->size());
  for (const schema::Layer* layer : *stored) {
    *name_bytes += layer->name() != nullptr ? layer->name()->size() : 0;
    if (*name_bytes > container_bytes) {
      return ResourceExhausted("the names of its layers take more than the %zu bytes that it has",
                               container_bytes);
    }
    const size_t rank = layer->shape() != nullptr ? layer->shape()->size() : 0;
    if (rank > kMaxLayerRank) {
      return CorruptModel("%s %zu %s has rank %zu, at most %zu is allowed", kind, layers->size(),
                          Quoted(ReadString(layer->name())).c_str(), rank, kMaxLayerRank);
    }
    Layer& read = layers->emplace_back();
    read.name = ReadString(layer->name());
    read.type = static_cast<LayerType>(layer->type());
    read.bytes = layer->bytes();
    if (rank != 0) read.shape.assign(layer->shape()->begin(), layer->shape()->end());
  }
  return {};
}

Result<std::vector<Instruction>> ReadProgram(const char* kind,
                                             const flatbuffers::Vector<uint8_t>* stored) {
  std::vector<Instruction> program;
  const size_t size_bytes = stored != nullptr ? stored->size() : 0;
  if (size_bytes % kInstructionBytes != 0) {
    return CorruptModel("%s program has %zu bytes, not a multiple of %zu", kind, size_bytes,
                        kInstructionBytes);
  }
  program.reserve(size_bytes / kInstructionBytes);
  for (size_t offset = 0; offset < size_bytes; offset += kInstructionBytes) {
    const std::span<const uint8_t, kInstructionBytes> encoded(stored->data() + offset,
                                                              kInstructionBytes);
    Result<Instruction> instruction = Decode(encoded);
    if (!instruction.ok()) {
      return Status(instruction.status())
          .WithContext(Format("%s program, instruction %zu", kind, offset / kInstructionBytes));
    }
    program.push_back(*std::move(instruction));
  }
  return program;
}

Result<Executable> ReadContents(const schema::Executable& stored, size_t container_bytes) {
  Executable executable;
  executable.isa_version = stored.isa_version();
  executable.name = ReadString(stored.name());
  // Before the programs: those of another version need not decode.
  if (executable.isa_version != kIsaVersion) return executable;
  ATOLL_ASSIGN_OR_RETURN(executable.caching_program,
                         ReadProgram("caching", stored.caching_program()));
  ATOLL_ASSIGN_OR_RETURN(executable.inference_program,
                         ReadProgram("inference", stored.inference_program()));
  executable.resident_parameters = ReadBytes(stored.resident_parameters());
  executable.streamed_parameters = ReadBytes(stored.streamed_parameters());
  executable.activation_bytes = stored.activation_bytes();
  size_t name_bytes = 0;
  ATOLL_RETURN_IF_ERROR(
      ReadLayers("input", stored.inputs(), container_bytes, &name_bytes, &executable.inputs));
  ATOLL_RETURN_IF_ERROR(
      ReadLayers("output", stored.outputs(), container_bytes, &name_bytes, &executable.outputs));
  executable.estimated_cycles = stored.estimated_cycles();
  executable.array_rows = stored.array_rows();
  executable.array_columns = stored.array_columns();
  if (const auto* nodes = stored.inference_nodes()) {
    executable.inference_nodes.assign(nodes->begin(), nodes->end());
  }
  return executable;
}

// Writing.

using Builder = flatbuffers::FlatBufferBuilder;

flatbuffers::Offset<flatbuffers::Vector<uint8_t>> StoreProgram(
    Builder& builder, const std::vector<Instruction>& program) {
  std::vector<uint8_t> bytes;
  bytes.reserve(program.size() * kInstructionBytes);
  for (const Instruction& instruction : program) {
    const EncodedInstruction encoded = Encode(instruction);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  return builder.CreateVector(bytes);
}

flatbuffers::Offset<flatbuffers::Vector<uint8_t>> StoreParameters(
    Builder& builder, const std::vector<uint8_t>& parameters) {
  builder.ForceVectorAlignment(parameters.size(), 1, kParameterAlignment);
  return builder.CreateVector(parameters);
}

flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<schema::Layer>>> StoreLayers(
    Builder& builder, const std::vector<Layer>& layers) {
  std::vector<flatbuffers::Offset<schema::Layer>> offsets;
  for (const Layer& layer : layers) {
    const auto name = builder.CreateString(layer.name);
    const auto shape = builder.CreateVector(layer.shape);
    offsets.push_back(schema::CreateLayer(
        builder, name, static_cast<schema::ElementType>(layer.type), shape, layer.bytes));
  }
  return builder.CreateVector(offsets);
}

}  // namespace

uint64_t LayerTypeBytes(LayerType type) {
  constexpr uint8_t kBytes[] = {1, 1, 2, 4, 2, 4};
  return kBytes[static_cast<size_t>(type)];
}

const char* LayerTypeName(LayerType type) {
  constexpr const char* kNames[] = {"int8", "uint8", "int16", "int32", "float16", "float32"};
  return kNames[static_cast<size_t>(type)];
}

uint64_t TotalBytes(const std::vector<Layer>& layers) {
  uint64_t bytes = 0;
  for (const Layer& layer : layers) bytes += layer.bytes;
  return bytes;
}

std::string Quoted(std::string_view name) {
  constexpr size_t kMaxShown = 64;
  std::string text = "'";
  for (const char c : name.substr(0, kMaxShown)) text += c >= 0x20 && c < 0x7F ? c : '?';
  if (name.size() > kMaxShown) text += "...";
  return text + "'";
}

const char* DeviceFamilyName(DeviceFamily family) {
  return family == DeviceFamily::kAtoll1 ? "Atoll-1" : "Coral";
}

uint64_t InstructionCycles(const Executable& executable, const Instruction& instruction) {
  if (executable.array_rows == 0 || executable.array_columns == 0) return 0;
  return ExecutionCycles(instruction, {executable.array_rows, executable.array_columns});
}

int32_t NodeOf(const Executable& executable, ProgramKind program, size_t index) {
  if (program == ProgramKind::kCaching || executable.inference_nodes.empty()) return -1;
  return executable.inference_nodes[index];
}

Status ValidateExecutable(const Executable& executable) {
  return ValidateContents(executable).WithContext("executable " + Quoted(executable.name));
}

std::vector<uint8_t> WriteExecutable(const Executable& executable) {
  Builder builder;
  const auto name = builder.CreateString(executable.name);
  const auto caching_program = StoreProgram(builder, executable.caching_program);
  const auto inference_program = StoreProgram(builder, executable.inference_program);
  const auto resident = StoreParameters(builder, executable.resident_parameters);
  const auto streamed = StoreParameters(builder, executable.streamed_parameters);
  const auto inputs = StoreLayers(builder, executable.inputs);
  const auto outputs = StoreLayers(builder, executable.outputs);
  flatbuffers::Offset<flatbuffers::Vector<int32_t>> nodes;
  if (!executable.inference_nodes.empty()) nodes = builder.CreateVector(executable.inference_nodes);
  builder.Finish(
      schema::CreateExecutable(builder, executable.isa_version, name, caching_program,
                               inference_program, resident, streamed, executable.activation_bytes,
                               inputs, outputs, executable.estimated_cycles, executable.array_rows,
                               executable.array_columns, nodes),
      schema::ExecutableIdentifier());
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

bool LooksLikeExecutable(std::span<const uint8_t> bytes) {
  constexpr size_t kIdentifierEnd = 8;  // behind the offset of the root table
  return bytes.size() >= kIdentifierEnd && schema::ExecutableBufferHasIdentifier(bytes.data());
}

Result<Executable> ReadExecutable(std::span<const uint8_t> bytes) {
  if (bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return CorruptModel("executable of %zu bytes: at most 2 GiB is allowed", bytes.size());
  }
  // Scalars are read in place. Inside a model file an executable may begin at any address.
  Buffer aligned;
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kContainerAlignment != 0) {
    ATOLL_ASSIGN_OR_RETURN(aligned, Buffer::Allocate(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), aligned.data());
    bytes = aligned.bytes();
  }
  constexpr flatbuffers::uoffset_t kMaxDepth = 4;  // Executable, Layer, and room
  flatbuffers::Verifier verifier(bytes.data(), bytes.size(), kMaxDepth, kMaxLayers + 1);
  if (!schema::VerifyExecutableBuffer(verifier)) {
    return CorruptModel(
        "not an Atoll executable, or a damaged one: %zu bytes fail the container's check",
        bytes.size());
  }
  const schema::Executable& stored = *schema::GetExecutable(bytes.data());
  Result<Executable> executable = ReadContents(stored, bytes.size());
  if (!executable.ok()) {
    return Status(executable.status())
        .WithContext("executable " + Quoted(ReadString(stored.name())));
  }
  ATOLL_RETURN_IF_ERROR(ValidateExecutable(*executable));
  return executable;
}

}  // namespace atollrt
