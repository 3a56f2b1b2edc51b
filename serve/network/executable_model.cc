// SPDX-License-Identifier: Apache-2.0
#include "serve/network/executable_model.h"

#include <span>

#include "runtime/base/sha256.h"
#include "runtime/graph/compiled_op.h"
#include "serve/inference/inference_server.h"
#include "tflite_generated.h"

namespace atollserve {
namespace {

namespace tflite = atollrt::tflite;  // the generated tables

using atollrt::Layer;
using atollrt::LayerType;
using atollrt::Result;

constexpr uint32_t kSchemaVersion = 3;
constexpr int32_t kCustom = 32;                 // the builtin operator that is none
constexpr size_t kMostBytes = size_t{1} << 30;  // offsets of the file are 31 bits

// The file's number of a type.
int8_t FileType(LayerType type) {
  switch (type) {
    case LayerType::kInt8:
      return 9;
    case LayerType::kUInt8:
      return 3;
    case LayerType::kInt16:
      return 7;
    case LayerType::kInt32:
      return 2;
    case LayerType::kFloat16:
      return 1;
    case LayerType::kFloat32:
      return 0;
  }
  return 9;
}

const char* ProtocolType(LayerType type) {
  switch (type) {
    case LayerType::kInt8:
      return "INT8";
    case LayerType::kUInt8:
      return "UINT8";
    case LayerType::kInt16:
      return "INT16";
    case LayerType::kInt32:
      return "INT32";
    case LayerType::kFloat16:
      return "FP16";
    case LayerType::kFloat32:
      return "FP32";
  }
  return "INT8";
}

class ModelBuilder {
 public:
  explicit ModelBuilder(const atollrt::Executable& executable) : executable_(executable) {}

  ExecutableModel Build() {
    ExecutableModel model;
    model.inputs = AddTensors(executable_.inputs, "input", &inputs_);
    model.outputs = AddTensors(executable_.outputs, "output", &outputs_);
    const std::vector<uint8_t> options = atollrt::EncodeCompiledOp(
        {.subgraph = 0, .executable = atollrt::WriteExecutable(executable_)});
    const auto custom_options = builder_.CreateVector(options);
    const auto op = tflite::CreateOperator(builder_, 0, builder_.CreateVector(inputs_),
                                           builder_.CreateVector(outputs_),
                                           tflite::BuiltinOptions::NONE, 0, custom_options);
    const auto graph = tflite::CreateSubGraph(
        builder_, builder_.CreateVector(tensors_), builder_.CreateVector(inputs_),
        builder_.CreateVector(outputs_), builder_.CreateVector(&op, 1));
    const auto code =
        tflite::CreateOperatorCode(builder_, static_cast<int8_t>(kCustom),
                                   builder_.CreateString(atollrt::kCompiledOpName), 1, kCustom);
    const auto buffer = tflite::CreateBuffer(builder_);  // that of tensors without contents
    builder_.Finish(
        tflite::CreateModel(builder_, kSchemaVersion, builder_.CreateVector(&code, 1),
                            builder_.CreateVector(&graph, 1), builder_.CreateString("executable"),
                            builder_.CreateVector(&buffer, 1)),
        "TFL3");
    model.file.assign(builder_.GetBufferPointer(),
                      builder_.GetBufferPointer() + builder_.GetSize());
    model.name =
        std::string(kExecutablePrefix) + atollrt::Sha256Hex(model.file.data(), model.file.size());
    return model;
  }

 private:
  std::vector<OipTensor> AddTensors(const std::vector<Layer>& layers, const char* prefix,
                                    std::vector<int32_t>* indices) {
    std::vector<OipTensor> described;
    for (const Layer& layer : layers) {
      OipTensor tensor;
      tensor.name = prefix + std::to_string(described.size());
      tensor.datatype = ProtocolType(layer.type);
      tensor.shape.assign(layer.shape.begin(), layer.shape.end());
      indices->push_back(static_cast<int32_t>(tensors_.size()));
      tensors_.push_back(tflite::CreateTensor(builder_, builder_.CreateVector(layer.shape),
                                              FileType(layer.type), 0,
                                              builder_.CreateString(tensor.name)));
      described.push_back(std::move(tensor));
    }
    return described;
  }

  const atollrt::Executable& executable_;
  flatbuffers::FlatBufferBuilder builder_;
  std::vector<flatbuffers::Offset<tflite::Tensor>> tensors_;
  std::vector<int32_t> inputs_, outputs_;
};

}  // namespace

Result<ExecutableModel> MakeExecutableModel(const atollrt::Executable& executable) {
  const size_t bytes = executable.resident_parameters.size() +
                       executable.streamed_parameters.size() +
                       (executable.caching_program.size() + executable.inference_program.size()) *
                           sizeof(atollrt::Instruction);
  if (bytes > kMostBytes) {
    return atollrt::Status(
        atollrt::StatusCode::kResourceExhausted,
        atollrt::Format("'%s' has %zu bytes, more than a file for another computer holds",
                        executable.name.c_str(), bytes));
  }
  return ModelBuilder(executable).Build();
}

}  // namespace atollserve
