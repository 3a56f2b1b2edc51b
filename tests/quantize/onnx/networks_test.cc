// SPDX-License-Identifier: Apache-2.0
//
// Networks of torchvision as PyTorch exports them, of full size, against what onnxruntime computed
// of them: networks.pack, which make_networks.py made and describes. It holds their files without
// their weights, which a generator makes here as it did there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quantize/onnx/onnx_import.h"
#include "runtime/base/bytes.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/quantize/onnx/pack.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// The upper 24 bits of the generator say where from `low` to `high` a number is, as in
// make_networks.py.
float Between(Rng& rng, float low, float high) {
  const double unit = static_cast<double>(rng.Next() >> 40) / (1 << 24);
  return static_cast<float>(double{low} + (double{high} - double{low}) * unit);
}

struct Network {
  std::vector<uint8_t> onnx;
  size_t channels = 0;
  size_t pixels = 0;           // height x width
  std::vector<float> picture;  // [channels, height, width]
  std::vector<float> output;
};

struct Hole {
  uint32_t position;  // in the rest of the file
  uint32_t floats;
  float low;
  float high;
};

Network Filled(Records& records) {
  Network network;
  const auto rest = records.Take(records.Number<uint32_t>());
  std::vector<Hole> holes(records.Number<uint32_t>());
  size_t size = rest.size();
  for (Hole& hole : holes) {
    hole.position = records.Number<uint32_t>();
    hole.floats = records.Number<uint32_t>();
    hole.low = records.Number<float>();
    hole.high = records.Number<float>();
    size += hole.floats * sizeof(float);
  }
  network.onnx.reserve(size);
  size_t copied = 0;
  const auto copy_until = [&](size_t position) {
    const auto bytes = rest.subspan(copied, position - copied);
    network.onnx.insert(network.onnx.end(), bytes.begin(), bytes.end());
    copied = position;
  };
  uint64_t seed = 1;
  for (const Hole& hole : holes) {
    copy_until(hole.position);
    Rng rng(seed++);
    size_t place = network.onnx.size();
    network.onnx.resize(place + hole.floats * sizeof(float));
    for (; place < network.onnx.size(); place += sizeof(float)) {
      StoreLittleEndian(network.onnx.data() + place, Between(rng, hole.low, hole.high));
    }
  }
  copy_until(rest.size());
  network.channels = records.Number<uint32_t>();
  const size_t height = records.Number<uint32_t>();
  network.pixels = height * records.Number<uint32_t>();
  Rng rng(seed);
  network.picture.resize(network.channels * network.pixels);
  for (float& value : network.picture) value = Between(rng, -1, 1);
  network.output.resize(records.Number<uint32_t>());
  for (float& value : network.output) value = records.Number<float>();
  return network;
}

Result<std::shared_ptr<const Model>> Imported(const std::vector<uint8_t>& onnx) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<uint8_t> tflite, ImportOnnx(onnx));
  return Model::FromBuffer(tflite);  // which copies
}

// Empty, or what is wrong.
std::string RunImported(Network network) {
  const auto model = Imported(std::exchange(network.onnx, {}));
  if (!model.ok()) return model.status().message();
  const auto interpreter = Interpreter::Create(*model, {.threads = 1});
  if (!interpreter.ok()) return interpreter.status().message();
  const Graph& graph = (*model)->graph();
  if (graph.inputs.size() != 1 || graph.outputs.size() != 1) return "other inputs or outputs";
  const std::span<uint8_t> input = (*interpreter)->TensorBytes(graph.inputs[0]);
  if (input.size() != network.picture.size() * sizeof(float)) return "an input of another size";
  for (size_t c = 0; c < network.channels; ++c) {  // [height, width, channels] there
    for (size_t i = 0; i < network.pixels; ++i) {
      StoreLittleEndian(input.data() + (i * network.channels + c) * sizeof(float),
                        network.picture[c * network.pixels + i]);
    }
  }
  const Status status = (*interpreter)->Invoke();
  if (!status.ok()) return status.message();
  const std::span<const uint8_t> output = (*interpreter)->TensorBytes(graph.outputs[0]);
  if (output.size() != network.output.size() * sizeof(float)) return "an output of another size";
  float largest = 0;
  for (const float value : network.output) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < network.output.size(); ++i) {
    const float got = LoadLittleEndian<float>(output.data() + i * sizeof(float));
    if (!(std::abs(got - network.output[i]) <= 1e-4F * largest)) {
      return Format("element %zu is %g instead of %g, and the largest %g", i, got,
                    network.output[i], largest);
    }
  }
  return "";
}

TEST(OnnxNetworks, EqualOnnxruntime) {
  const std::vector<uint8_t> bytes = Unpacked("networks.pack");
  Records records(bytes);
  int count = 0;
  while (!records.done()) {
    const auto name = records.Take(records.Number<uint32_t>());
    EXPECT_EQ(RunImported(Filled(records)), "") << std::string(name.begin(), name.end());
    ++count;
  }
  EXPECT_EQ(count, 11);
}

}  // namespace
}  // namespace atollrt
