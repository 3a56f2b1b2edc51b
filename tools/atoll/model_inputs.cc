// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/model_inputs.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

struct InputFile {
  size_t index;  // of the model input
  std::string path;
};

InputFile ParseInputFile(const std::string& argument, size_t input_count) {
  InputFile input = {};
  const size_t equals = argument.find('=');
  const char* end = argument.data() + std::min(equals, argument.size());
  const auto [parsed_end, error] = std::from_chars(argument.data(), end, input.index);
  if (equals == std::string::npos || error != std::errc() || parsed_end != end ||
      equals + 1 == argument.size()) {
    throw CommandError(ExitCode::kUsage,
                       fmt::format("--input '{}' is not of the form K=FILE; for example "
                                   "--input 0=image.raw",
                                   argument));
  }
  if (input.index >= input_count) {
    throw CommandError(ExitCode::kUsage,
                       fmt::format("--input '{}' names input {}, but the model has {} (counted "
                                   "from 0); 'atoll inspect' lists them",
                                   argument, input.index, input_count));
  }
  input.path = argument.substr(equals + 1);
  return input;
}

// Reads the file into the tensor; at most one byte more than the tensor has is ever read.
void ReadInto(const InputFile& input, AtollTensor* tensor) {
  const auto fail = [&](const char* verb) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("cannot {} '{}' for input {}: {}; {}", verb, input.path,
                                   input.index, std::strerror(errno), AdviseReading(errno)));
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(input.path.c_str(), "rb"),
                                                         close);
  if (!file) fail("open");
  const size_t wanted = AtollTensorByteSize(tensor);
  std::vector<char> bytes(wanted + 1);
  const size_t got = std::fread(bytes.data(), 1, bytes.size(), file.get());
  if (std::ferror(file.get())) fail("read");
  if (got != wanted) {
    throw CommandError(
        ExitCode::kUsage,
        fmt::format("'{}' has {} bytes, but input {} '{}' takes exactly {} ({} {}); give a file of "
                    "that size",
                    input.path, got < wanted ? fmt::format("{}", got) : "more", input.index,
                    AtollTensorName(tensor), wanted, AtollTypeName(AtollTensorType(tensor)),
                    ShapeText(tensor)));
  }
  std::memcpy(AtollTensorData(tensor), bytes.data(), wanted);
}

}  // namespace

void FillFromSeed(uint64_t seed, AtollTensor* tensor) {
  SplitMix64 stream(seed);
  auto* data = static_cast<uint8_t*>(AtollTensorData(tensor));
  const size_t size = AtollTensorByteSize(tensor);
  const AtollType type = AtollTensorType(tensor);
  if (type == ATOLL_FLOAT32) {
    for (size_t i = 0; i + sizeof(float) <= size; i += sizeof(float)) {
      const double unit = static_cast<double>(stream.Next() >> 40) / 16777216.0;
      const auto value = static_cast<float>(unit * 2.0 - 1.0);
      std::memcpy(data + i, &value, sizeof(value));
    }
    return;
  }
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t number = stream.Next();
    for (size_t k = i; k < size && k < i + 8; ++k) {
      data[k] = static_cast<uint8_t>(number >> (8 * (k - i)));
      if (type == ATOLL_BOOL) data[k] &= 1;
    }
  }
}

void FillInputs(const Session& session, uint64_t seed, const std::vector<std::string>& files) {
  const std::vector<AtollTensor*> tensors = session.inputs();
  std::vector<bool> given(tensors.size(), false);
  for (const std::string& argument : files) {
    const InputFile input = ParseInputFile(argument, tensors.size());
    if (given[input.index]) {
      throw CommandError(ExitCode::kUsage,
                         fmt::format("input {} is given twice, the second time as '{}'; give each "
                                     "input once",
                                     input.index, input.path));
    }
    given[input.index] = true;
    ReadInto(input, tensors[input.index]);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!given[i]) FillFromSeed(seed, tensors[i]);
  }
}

}  // namespace atollcmd
