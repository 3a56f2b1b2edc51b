// SPDX-License-Identifier: Apache-2.0
#include "tests/quantize/quantize_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

#include "quantize/edited_graph.h"
#include "quantize/float_pass.h"
#include "runtime/interpreter.h"
#include "tests/support/absent.h"

namespace atollrt {
namespace {

std::unique_ptr<Interpreter> Load(std::span<const uint8_t> bytes) {
  auto model = Model::FromBuffer(bytes);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return nullptr;
  auto interpreter = Interpreter::Create(*model, {.threads = 1, .keep_all_tensors = true});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  return interpreter.ok() ? *std::move(interpreter) : nullptr;
}

// The tensor of bytes or floats that enters the SOFTMAX at the end, behind conversions; else the
// output.
int32_t Logits(const Graph& graph) {
  const std::vector<int32_t> producers = Producers(graph);
  for (int32_t tensor = graph.outputs[0]; producers[tensor] >= 0;) {
    const Node& node = graph.nodes[producers[tensor]];
    if (node.type == OpType::kSOFTMAX) return node.inputs[0];
    if (node.type != OpType::kDEQUANTIZE && node.type != OpType::kRESHAPE &&
        node.type != OpType::kQUANTIZE) {
      break;
    }
    tensor = node.inputs[0];
  }
  return graph.outputs[0];
}

std::vector<float> Values(Interpreter* interpreter, int32_t tensor) {
  std::vector<float> values;
  Dequantize(interpreter->graph().tensors[tensor], interpreter->TensorBytes(tensor), &values);
  return values;
}

}  // namespace

std::vector<uint8_t> ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<ListedSamples::Sample> ReadSamples(const std::string& path, size_t elements) {
  const std::vector<uint8_t> bytes = ReadBytes(path);
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  std::vector<ListedSamples::Sample> samples;
  for (size_t i = 0; (i + elements) * sizeof(float) <= bytes.size(); i += elements) {
    samples.push_back({std::vector<float>(values + i, values + i + elements)});
  }
  return samples;
}

std::vector<ListedSamples::Sample> MakeCrops(int seed, int side, float scale, float offset,
                                             int per_picture) {
  const std::string out = testing::TempDir() + Format("crops_%d_%d_%d", seed, side, per_picture);
  const std::string command =
      Format("%s/tests/quantize/make_crops.py %s/images %s %d %d %g %g %d", ATOLL_SOURCE_DIR,
             ATOLL_SHARED_DIR, out.c_str(), seed, side, static_cast<double>(scale),
             static_cast<double>(offset), per_picture);
  // Debian's Pillow is that of the system's Python, which need not be the first one.
  bool made = false;
  for (const char* python : {"/usr/bin/python3 ", "python3 "}) {
    made = made || std::system((python + command).c_str()) == 0;
  }
  if (!made) {
    ReportAbsent("Pillow and numpy for Python");
    return {};
  }
  std::vector<ListedSamples::Sample> samples =
      ReadSamples(out, static_cast<size_t>(side) * static_cast<size_t>(side) * 3);
  std::remove(out.c_str());
  return samples;
}

Agreement Compare(std::span<const uint8_t> floats, std::span<const uint8_t> quantized,
                  const std::vector<ListedSamples::Sample>& samples) {
  const std::unique_ptr<Interpreter> a = Load(floats), b = Load(quantized);
  if (a == nullptr || b == nullptr) return {};
  double signal[2] = {}, noise[2] = {};
  int same = 0;
  for (const ListedSamples::Sample& sample : samples) {
    SetInputs(sample, a.get());
    SetInputs(sample, b.get());
    EXPECT_TRUE(a->Invoke().ok());
    EXPECT_TRUE(b->Invoke().ok());
    const int32_t ends[2][2] = {{Logits(a->graph()), Logits(b->graph())},
                                {a->graph().outputs[0], b->graph().outputs[0]}};
    for (int k = 0; k < 2; ++k) {
      const std::vector<float> wanted = Values(a.get(), ends[k][0]);
      const std::vector<float> computed = Values(b.get(), ends[k][1]);
      EXPECT_EQ(wanted.size(), computed.size());
      for (size_t i = 0; i < std::min(wanted.size(), computed.size()); ++i) {
        const double f = static_cast<double>(wanted[i]), q = static_cast<double>(computed[i]);
        signal[k] += f * f;
        noise[k] += (f - q) * (f - q);
      }
      if (k == 0) {
        same += std::max_element(wanted.begin(), wanted.end()) - wanted.begin() ==
                std::max_element(computed.begin(), computed.end()) - computed.begin();
      }
    }
  }
  return {10 * std::log10(signal[0] / noise[0]), 10 * std::log10(signal[1] / noise[1]),
          static_cast<double>(same) / static_cast<double>(samples.size())};
}

}  // namespace atollrt
