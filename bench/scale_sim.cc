// SPDX-License-Identifier: Apache-2.0
//
// Compatibility mode: the compute cycles of a SCALE-Sim topology file as that simulator's
// weight-stationary model counts them, layer by layer, and how fast they are counted here:
//
//   scale_sim [--array ROWSxCOLUMNS] TOPOLOGY.csv
//
// The file has a line of headings, then one layer in each line: name, height and width of the
// input, height and width of the filter, channels, filters, stride.
#include "tests/support/scale_sim.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

struct Layer {
  std::string name;
  uint32_t input_h = 0, input_w = 0, filter_h = 0, filter_w = 0, channels = 0, filters = 0;
  uint32_t stride = 0;
  uint64_t Cycles(ArraySize array) const {
    // SCALE-Sim knows no padding and gives the last window what is left.
    const auto positions = [&](uint64_t input, uint64_t filter) {
      return (input - filter + 2 * stride - 1) / stride;
    };
    return ScaleSimCycles(positions(input_h, filter_h) * positions(input_w, filter_w),
                          uint64_t{filter_h} * filter_w * channels, filters, array);
  }
};

std::optional<Layer> ParseLayer(const std::string& line) {
  std::istringstream fields(line);
  Layer layer;
  if (!std::getline(fields, layer.name, ',')) return {};
  for (uint32_t* value : {&layer.input_h, &layer.input_w, &layer.filter_h, &layer.filter_w,
                          &layer.channels, &layer.filters, &layer.stride}) {
    std::string field;
    if (!std::getline(fields, field, ',')) return {};
    constexpr uint32_t kMost = 1 << 16;
    if (std::sscanf(field.c_str(), "%" SCNu32, value) != 1 || *value < 1 || *value > kMost) {
      return {};
    }
  }
  if (layer.filter_h > layer.input_h || layer.filter_w > layer.input_w) return {};
  return layer;
}

int Run(const char* path, ArraySize array) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "scale_sim: cannot read '%s'\n", path);
    return 1;
  }
  std::vector<Layer> layers;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (number == 1 || line.find_first_not_of(" \t\r,") == std::string::npos) continue;
    const std::optional<Layer> layer = ParseLayer(line);
    if (!layer) {
      std::fprintf(stderr,
                   "scale_sim: line %d of '%s' is no layer; write name, input height, input width, "
                   "filter height, filter width, channels, filters, stride, each from 1 to 65536\n",
                   number, path);
      return 1;
    }
    layers.push_back(*layer);
  }
  uint64_t total = 0;
  for (const Layer& layer : layers) {
    std::printf("%-24s %12" PRIu64 "\n", layer.name.c_str(), layer.Cycles(array));
    total += layer.Cycles(array);
  }
  std::printf("%-24s %12" PRIu64 " cycles\n", "total", total);

  // The same sum again and again, so that a clock can see it.
  constexpr int64_t kMeasuredNs = 200'000'000;
  const int64_t start = MonotonicNs();
  int64_t elapsed = 0;
  uint64_t counted = 0;
  while (elapsed < kMeasuredNs) {
    for (int i = 0; i < 1000; ++i) {
      for (const Layer& layer : layers) counted += layer.Cycles(array);
    }
    elapsed = MonotonicNs() - start;
  }
  std::printf("counted at %.3g simulated cycles per second of this host\n",
              static_cast<double>(counted) / (static_cast<double>(elapsed) * 1e-9));
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  atollrt::ArraySize array{64, 64};
  int next = 1;
  if (argc == 4 && std::strcmp(argv[1], "--array") == 0 &&
      std::sscanf(argv[2], "%" SCNu32 "x%" SCNu32, &array.rows, &array.columns) == 2 &&
      array.rows >= 1 && array.columns >= 1 && array.rows <= 4096 && array.columns <= 4096) {
    next = 3;
  }
  if (next + 1 != argc) {
    std::fprintf(stderr, "usage: scale_sim [--array ROWSxCOLUMNS] TOPOLOGY.csv\n");
    return 2;
  }
  return atollrt::Run(argv[next], array);
}
