// SPDX-License-Identifier: Apache-2.0
//
// Every operator with an input that has no elements: each golden file of one, with each size of
// each input in turn made 0. It is refused with a sentence, or runs, with the same bytes on the CPU
// and with the emulated device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/interpreter.h"
#include "runtime/tflite/tflite_loader.h"
#include "runtime/tflite/tflite_writer.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct StatusAndOutputs {
  Status status;
  std::vector<Bytes> outputs;  // if it ran
};

// With zeros for what is not constant.
StatusAndOutputs RunOnZeros(const std::shared_ptr<const Model>& model, Delegate* delegate) {
  auto created = Interpreter::Create(model, {.threads = 1, .delegate = delegate});
  if (!created.ok()) return {created.status(), {}};
  Interpreter& interpreter = **created;
  for (const int32_t input : interpreter.graph().inputs) {
    std::ranges::fill(interpreter.TensorBytes(input), uint8_t{0});
  }
  StatusAndOutputs outcome{interpreter.Invoke(), {}};
  if (!outcome.status.ok()) return outcome;
  for (const int32_t output : interpreter.graph().outputs) {
    const auto bytes = interpreter.ConstTensorBytes(output);
    outcome.outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outcome;
}

TEST(NoElements, AreRefusedOrRight) {
  auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  DeviceDelegate delegate(*std::move(device));
  std::set<std::string> walked, ran;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(ATOLL_SOURCE_DIR "/tests/golden/ops")) {
    if (entry.path().extension() != ".tflite") continue;
    const Bytes file = ReadFile(entry.path());
    const auto loaded = LoadTflite(file);
    if (!loaded.ok()) continue;  // an example of what is refused
    const Graph& main = loaded->graphs.front();
    for (const int32_t input : main.inputs) {
      for (size_t axis = 0; axis < main.tensors[input].shape.size(); ++axis) {
        SCOPED_TRACE(entry.path().string() + ", input " + std::to_string(input) + ", axis " +
                     std::to_string(axis));
        std::vector<Graph> graphs = loaded->graphs;
        graphs.front().tensors[input].shape[axis] = 0;
        std::vector<const Graph*> pointers;
        for (const Graph& graph : graphs) pointers.push_back(&graph);
        const auto written = WriteTflite(pointers);
        if (!written.ok()) continue;
        for (const Node& node : main.nodes) walked.insert(node.op_name());
        const auto model = Model::FromBuffer(*written);
        if (!model.ok()) {
          EXPECT_FALSE(model.status().message().empty());
          continue;
        }
        const StatusAndOutputs want = RunOnZeros(*model, nullptr);
        const StatusAndOutputs got = RunOnZeros(*model, &delegate);
        EXPECT_EQ(got.status.code(), want.status.code()) << got.status.message();
        EXPECT_EQ(got.outputs, want.outputs);
        if (!want.status.ok()) {
          EXPECT_FALSE(want.status.message().empty());
          continue;
        }
        for (const Node& node : main.nodes) ran.insert(node.op_name());
      }
    }
  }
  std::printf("%zu operators walked, %zu ran\n", walked.size(), ran.size());
  EXPECT_GE(walked.size(), 60u);
  EXPECT_GE(ran.size(), 40u);
}

}  // namespace
}  // namespace atollrt
