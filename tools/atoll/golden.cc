// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/golden.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <stdexcept>

#include "runtime/base/sha256.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/read_file.h"
#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

// A decimal number that is all of `text`.
template <typename T>
T Number(const std::string& text) {
  T number = {};
  const char* end = text.data() + text.size();
  const auto [number_end, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number_end != end) {
    throw std::invalid_argument(fmt::format("'{}' is not a number", text));
  }
  return number;
}

std::vector<uint8_t> DecodeBase64(const std::string& text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int bit_count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) throw std::invalid_argument("damaged base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> bit_count));
  }
  return bytes;
}

}  // namespace

Golden::Golden(const std::string& directory, const std::string& model) : directory_(directory) {
  const std::filesystem::path file = std::filesystem::path(model).stem().string() + ".json";
  path_ = (std::filesystem::path(directory) / file).string();
  const std::string text = ReadFile(path_);
  try {
    const Json json = Json::parse(text);
    if (json.contains("sha256")) {
      const std::string bytes = ReadFile(model);
      if (atollrt::Sha256Hex(bytes.data(), bytes.size()) != json["sha256"].get<std::string>()) {
        throw CommandError(ExitCode::kUsage,
                           fmt::format("'{}' holds results of another file than '{}' (their "
                                       "SHA-256 differ); give the directory that goes with it",
                                       path_, model));
      }
    }
    for (const auto& [seed, stored] : json.at("seeds").items()) {
      if (!stored.contains("outputs")) continue;  // it could not be run there
      Entry entry;
      for (const Json& input : stored.at("inputs")) entry.inputs.push_back(input.at("sha256"));
      for (const auto& [index, sha256] : stored.at("tensors").items()) {
        entry.inference.tensors[Number<int32_t>(index)] = sha256.get<std::string>();
      }
      for (const Json& stored_output : stored.at("outputs")) {
        Output output;
        output.sha256 = stored_output.at("sha256").get<std::string>();
        if (stored_output.contains("base64")) {
          output.bytes = DecodeBase64(stored_output["base64"].get<std::string>());
          // A hash that is not that of the bytes is the one that counts.
          if (atollrt::Sha256Hex(output.bytes.data(), output.bytes.size()) != output.sha256) {
            output.bytes.clear();
          }
        }
        entry.inference.outputs.push_back(std::move(output));
      }
      entries_[Number<uint64_t>(seed)] = std::move(entry);
    }
  } catch (const Json::exception& error) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("'{}' is not a file of golden results: {}; see "
                                   "docs/command.md for its form",
                                   path_, error.what()));
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("'{}' is not a file of golden results: {}; see "
                                   "docs/command.md for its form",
                                   path_, error.what()));
  }
  if (entries_.empty()) {
    throw CommandError(
        ExitCode::kFailure,
        fmt::format("'{}' holds no results of any seed; compare with a device instead", path_));
  }
}

std::vector<uint64_t> Golden::seeds() const {
  std::vector<uint64_t> seeds;
  for (const auto& entry : entries_) seeds.push_back(entry.first);
  return seeds;
}

const Golden::Inference& Golden::ForSeed(uint64_t seed, const Session& session) {
  const auto found = entries_.find(seed);
  if (found == entries_.end()) {
    throw CommandError(ExitCode::kUsage, fmt::format("'{}' holds no results of seed {}; it has {}",
                                                     path_, seed, fmt::join(seeds(), ", ")));
  }
  Entry& entry = found->second;
  const std::vector<AtollTensor*> inputs = session.inputs();
  const std::vector<const AtollTensor*> outputs = session.outputs();
  std::vector<std::string> hashes;
  for (const AtollTensor* input : inputs) {
    hashes.push_back(atollrt::Sha256Hex(AtollTensorConstData(input), AtollTensorByteSize(input)));
  }
  if (hashes != entry.inputs || outputs.size() != entry.inference.outputs.size()) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("the inputs or outputs of seed {} in '{}' are not those of this "
                                   "model; make the file anew",
                                   seed, path_));
  }
  const int32_t tensor_count = AtollInterpreterGetTensorCount(session.interpreter());
  for (size_t k = 0; k < outputs.size(); ++k) {
    Output& output = entry.inference.outputs[k];
    for (int32_t i = 0; i < tensor_count; ++i) {
      if (AtollInterpreterGetTensor(session.interpreter(), i) == outputs[k]) output.tensor = i;
    }
    if (!output.bytes.empty() && output.bytes.size() != AtollTensorByteSize(outputs[k])) {
      output.bytes.clear();
    }
    const auto tensor = entry.inference.tensors.find(output.tensor);
    if (tensor != entry.inference.tensors.end() && tensor->second != output.sha256) {
      throw CommandError(ExitCode::kFailure,
                         fmt::format("'{}' contradicts itself: output {} of seed {} is tensor {}, "
                                     "but with another hash there; make the file anew",
                                     path_, k, seed, output.tensor));
    }
  }
  return entry.inference;
}

}  // namespace atollcmd
