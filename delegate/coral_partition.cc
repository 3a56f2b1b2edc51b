// SPDX-License-Identifier: Apache-2.0
#include "delegate/coral_partition.h"

#include <optional>
#include <string>
#include <vector>

#include "delegate/layer_type.h"
#include "driver/coral/executable.h"
#include "driver/coral/package.h"
#include "runtime/tflite/flexbuffer.h"

namespace atollrt {
namespace {

// Keys of the operator's options.
constexpr char kPackageKey[] = "4";
constexpr char kMorePackagesKey[] = "7";

Result<std::span<const uint8_t>> FindPackage(const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<FlexbufferBytes> entries,
                         ReadFlexbufferBytes(node.custom_options));
  std::optional<std::span<const uint8_t>> package;
  for (const FlexbufferBytes& entry : entries) {
    if (entry.key == kPackageKey && !entry.is_vector) package = entry.bytes;
    if (entry.key == kMorePackagesKey && entry.is_vector && entry.elements != 0) {
      return Unsupported(
          "it holds %llu packages for different chips; compile the model again for one",
          static_cast<unsigned long long>(entry.elements + 1));
    }
  }
  if (!package) return CorruptModel("its options hold no package");
  return *package;
}

Status CheckTensors(const Graph& graph, const char* kind, const std::vector<int32_t>& tensors,
                    const std::vector<Layer>& layers) {
  if (tensors.size() != layers.size()) {
    return CorruptModel("it has %zu %ss, its package %zu", tensors.size(), kind, layers.size());
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Layer& layer = layers[i];
    if (tensors[i] < 0) return CorruptModel("its %s %zu is absent", kind, i);
    const Tensor& tensor = graph.tensors[static_cast<size_t>(tensors[i])];
    if (LayerTypeOf(tensor.type) != layer.type) {
      return Unsupported("its %s %zu is %s, in its package %s", kind, i, DataTypeName(tensor.type),
                         LayerTypeName(layer.type));
    }
    if (static_cast<uint64_t>(tensor.byte_size()) != layer.bytes) {
      const std::string shape = ShapeString(tensor.shape);
      return Unsupported(
          "its %s %zu of shape %s has %lld bytes, in its package %llu; batches and "
          "other shapes than those that it was compiled for are not supported",
          kind, i, shape.c_str(), static_cast<long long>(tensor.byte_size()),
          static_cast<unsigned long long>(layer.bytes));
    }
  }
  return {};
}

int64_t InstructionBytes(const CoralProgram& program) {
  int64_t bytes = 0;
  for (const auto& chunk : program.chunks) bytes += chunk.size();
  return bytes;
}

Result<CoralExecutable> ReadCoralNode(const Graph& graph, const Node& node,
                                      const DeviceInfo& device) {
  ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> package, FindPackage(node));
  ATOLL_ASSIGN_OR_RETURN(CoralExecutable executable, ReadCoralPackage(package));
  ATOLL_RETURN_IF_ERROR(CheckTensors(graph, "input", node.inputs, executable.inputs));
  ATOLL_RETURN_IF_ERROR(CheckTensors(graph, "output", node.outputs, executable.outputs));
  if (!node.outputs.empty()) executable.name = graph.Output(node).name;
  if (device.is_elsewhere) executable.package.assign(package.begin(), package.end());
  return executable;
}

PartitionReport ReportCoral(const CoralExecutable& executable, uint64_t link_bytes_per_second) {
  PartitionReport report;
  report.resident_parameter_bytes = executable.caching.parameters.size();
  report.streamed_parameter_bytes = executable.inference.parameters.size();
  report.input_bytes = TotalBytes(executable.inputs);
  report.output_bytes = TotalBytes(executable.outputs);
  report.estimated_cycles = executable.estimated_cycles;
  report.program_bytes =
      InstructionBytes(executable.caching) + InstructionBytes(executable.inference);
  report.upload_bytes = InstructionBytes(executable.caching) + report.resident_parameter_bytes;
  if (link_bytes_per_second != 0) {
    report.upload_seconds =
        static_cast<double>(report.upload_bytes) / static_cast<double>(link_bytes_per_second);
  }
  report.note =
      "compiled by Google's compiler: what it does on the chip, and how long that takes, "
      "is not known";
  return report;
}

}  // namespace

Result<std::vector<CoralPartition>> ReadCoralPartitions(const Graph& graph,
                                                        const DeviceInfo& device,
                                                        std::vector<std::string>* refusals) {
  std::vector<CoralPartition> partitions;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::string& refusal = refusals->emplace_back();
    if (node.type != OpType::kCUSTOM || node.custom_name != kEdgeTpuOperator) {
      refusal =
          "not compiled for the Edge TPU; a Coral runs only what edgetpu_compiler made for it";
      continue;
    }
    Result<CoralExecutable> executable = ReadCoralNode(graph, node, device);
    if (!executable.ok()) return Status(executable.status()).WithContext(Describe(graph, node));
    CoralPartition& partition = partitions.emplace_back();
    partition.node = static_cast<int32_t>(i);
    partition.report = ReportCoral(*executable, device.link_bytes_per_second);
    partition.executable = std::make_shared<const CoralExecutable>(*std::move(executable));
  }
  return partitions;
}

}  // namespace atollrt
