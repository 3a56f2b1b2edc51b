// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/sha256.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

using Bytes = std::vector<uint8_t>;
using TensorBytes = std::map<int32_t, Bytes>;  // by tensor index in the file

constexpr char kGoldenPrefix[] = "golden:";
constexpr double kFloatTolerance = 1e-5;  // of the largest wanted magnitude

struct VerifyOptions {
  SessionOptions session;
  std::string against = "cpu";
  std::vector<uint64_t> seeds;
  std::string save;
  bool json = false;
};

// What one tensor should be: bytes, or only their SHA-256.
struct Wanted {
  std::string sha256;  // empty: known as bytes
  Bytes bytes;
};
using WantedTensors = std::map<int32_t, Wanted>;  // by tensor index in the file

std::string Sha256(const Bytes& bytes) { return atollrt::Sha256Hex(bytes.data(), bytes.size()); }

Bytes BytesOf(const AtollTensor* tensor) {
  const auto* data = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
  return {data, data + AtollTensorByteSize(tensor)};
}

// ---- Results on file ---------------------------------------------------------------------------

template <typename T>
T Number(const std::string& text) {
  const std::optional<T> number = ParseNumber<T>(text);
  if (!number) throw std::invalid_argument(fmt::format("'{}' is not a number", text));
  return *number;
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

// DIR/<model's name>.json with, per seed, the SHA-256 of inputs, outputs and intermediate tensors
// (docs/command.md).
struct Golden {
  struct Entry {
    std::vector<std::string> inputs;  // SHA-256
    WantedTensors tensors;
    std::vector<Wanted> outputs;
  };
  std::string directory;
  std::string path;
  std::map<uint64_t, Entry> entries;  // by seed
};

Golden::Entry ReadEntry(const Json& stored) {
  Golden::Entry entry;
  for (const Json& input : stored.at("inputs")) entry.inputs.push_back(input.at("sha256"));
  for (const auto& [index, sha256] : stored.at("tensors").items()) {
    entry.tensors[Number<int32_t>(index)].sha256 = sha256.get<std::string>();
  }
  for (const Json& stored_output : stored.at("outputs")) {
    Wanted& output = entry.outputs.emplace_back();
    output.sha256 = stored_output.at("sha256").get<std::string>();
    if (!stored_output.contains("base64")) continue;
    output.bytes = DecodeBase64(stored_output["base64"].get<std::string>());
    // A hash that is not that of the bytes is the one that counts.
    if (Sha256(output.bytes) != output.sha256) output.bytes.clear();
  }
  return entry;
}

// Throws CommandError if the file is not of this form or of another model.
Golden ReadGolden(const std::string& directory, const std::string& model) {
  const std::string name = std::filesystem::path(model).stem().string() + ".json";
  Golden golden = {directory, (std::filesystem::path(directory) / name).string(), {}};
  const std::string text = ReadFile(golden.path);
  try {
    const Json json = Json::parse(text);
    if (json.contains("sha256")) {
      const std::string bytes = ReadFile(model);
      if (atollrt::Sha256Hex(bytes.data(), bytes.size()) != json["sha256"].get<std::string>()) {
        Fail(ExitCode::kUsage,
             "'{}' holds results of another file than '{}' (their SHA-256 differ); give the "
             "directory that goes with it",
             golden.path, model);
      }
    }
    for (const auto& [seed, stored] : json.at("seeds").items()) {
      if (!stored.contains("outputs")) continue;  // it could not be run there
      golden.entries[Number<uint64_t>(seed)] = ReadEntry(stored);
    }
  } catch (const CommandError&) {
    throw;
  } catch (const std::exception& error) {
    Fail(ExitCode::kFailure,
         "'{}' is not a file of golden results: {}; see docs/command.md for its form", golden.path,
         error.what());
  }
  if (golden.entries.empty()) {
    Fail(ExitCode::kFailure, "'{}' holds no results of any seed; compare with a device instead",
         golden.path);
  }
  return golden;
}

std::vector<uint64_t> SeedsOf(const Golden& golden) {
  std::vector<uint64_t> seeds;
  for (const auto& entry : golden.entries) seeds.push_back(entry.first);
  return seeds;
}

// Throws CommandError if the seed is not on file, or its inputs or outputs are not those of
// `session`, whose inputs hold what it stands for.
WantedTensors WantedOf(const Golden& golden, uint64_t seed, const Session& session) {
  const auto found = golden.entries.find(seed);
  if (found == golden.entries.end()) {
    Fail(ExitCode::kUsage, "'{}' holds no results of seed {}; it has {}", golden.path, seed,
         fmt::join(SeedsOf(golden), ", "));
  }
  const Golden::Entry& entry = found->second;
  const std::vector<const AtollTensor*> outputs = session.outputs();
  std::vector<std::string> hashes;
  for (const AtollTensor* input : session.inputs()) hashes.push_back(Sha256(BytesOf(input)));
  if (hashes != entry.inputs || outputs.size() != entry.outputs.size()) {
    Fail(ExitCode::kFailure,
         "the inputs or outputs of seed {} in '{}' are not those of this model; make the file anew",
         seed, golden.path);
  }
  WantedTensors wanted = entry.tensors;
  for (size_t k = 0; k < outputs.size(); ++k) {
    int32_t index = AtollInterpreterGetTensorCount(session.interpreter()) - 1;
    while (index >= 0 && AtollInterpreterGetTensor(session.interpreter(), index) != outputs[k]) {
      --index;
    }
    const auto tensor = entry.tensors.find(index);
    if (tensor != entry.tensors.end() && tensor->second.sha256 != entry.outputs[k].sha256) {
      Fail(ExitCode::kFailure,
           "'{}' contradicts itself: output {} of seed {} is tensor {}, but with another hash "
           "there; make the file anew",
           golden.path, k, seed, index);
    }
    Wanted& output = wanted[index] = entry.outputs[k];
    if (output.bytes.size() != AtollTensorByteSize(outputs[k])) output.bytes.clear();
  }
  return wanted;
}

// ---- Comparing ---------------------------------------------------------------------------------

struct Comparison {
  bool equal = true;
  bool within_tolerance = false;  // float32, equal but not in every bit
  bool judged = true;             // false: float32, known as a hash only, another hash
  size_t element_count = 0;
  size_t differing_count = 0;  // 0 if only hashes are known
  size_t first = 0;            // flat index of the first differing element
};

struct SeedResult {
  uint64_t seed = 0;
  size_t tensor_count = 0;
  size_t byte_count = 0;
  size_t within_tolerance_count = 0;
  size_t unjudged_count = 0;
  size_t differing_tensor_count = 0;
  Json first_difference;  // null: everything is equal
  // The same if the device gets each operator by itself; null then, too. Empty: not tried.
  std::optional<Json> first_difference_alone;
  std::vector<Bytes> inputs;
  Bytes got, want;  // of the first differing tensor; want is empty if only its hash is known
};

template <typename T>
T Load(const Bytes& bytes, size_t element) {
  T value = {};
  std::memcpy(&value, bytes.data() + element * sizeof(T), sizeof(T));
  return value;
}

Comparison Compare(const AtollTensor* tensor, const Bytes& got, const Wanted& want) {
  Comparison result;
  result.element_count = 1;
  for (const int32_t dim : ShapeOf(tensor)) result.element_count *= static_cast<size_t>(dim);
  const bool is_float = AtollTensorType(tensor) == ATOLL_FLOAT32;
  if (want.bytes.empty() && !want.sha256.empty()) {
    result.equal = Sha256(got) == want.sha256;
    result.judged = result.equal || !is_float;
    return result;
  }
  if (got == want.bytes || result.element_count == 0) return result;
  double tolerance = 0;
  if (is_float) {
    for (size_t i = 0; i < result.element_count; ++i) {
      const double magnitude = std::fabs(Load<float>(want.bytes, i));
      if (std::isfinite(magnitude)) tolerance = std::max(tolerance, magnitude);
    }
    tolerance *= kFloatTolerance;
  }
  const size_t size = got.size() / result.element_count;
  for (size_t i = 0; i < result.element_count; ++i) {
    if (std::memcmp(&got[i * size], &want.bytes[i * size], size) == 0) continue;
    if (is_float) {
      const double error =
          std::fabs(double{Load<float>(got, i)} - double{Load<float>(want.bytes, i)});
      if (error <= tolerance) continue;  // not for NaN
    }
    if (result.differing_count++ == 0) result.first = i;
  }
  result.equal = result.differing_count == 0;
  result.within_tolerance = result.equal;
  return result;
}

// One stored element: a number, or text for floats that JSON has no number for.
Json Element(AtollType type, const Bytes& bytes, size_t element) {
  switch (type) {
    case ATOLL_FLOAT32: {
      const float value = Load<float>(bytes, element);
      if (!std::isfinite(value)) return fmt::format("{}", value);
      return ShortestDouble(value);
    }
    case ATOLL_INT32:
      return Load<int32_t>(bytes, element);
    case ATOLL_UINT32:
      return Load<uint32_t>(bytes, element);
    case ATOLL_INT64:
      return Load<int64_t>(bytes, element);
    case ATOLL_INT16:
      return Load<int16_t>(bytes, element);
    case ATOLL_INT8:
      return Load<int8_t>(bytes, element);
    default:
      return Load<uint8_t>(bytes, element);
  }
}

std::vector<int32_t> Coordinates(const AtollTensor* tensor, size_t element) {
  std::vector<int32_t> coordinates = ShapeOf(tensor);
  for (size_t i = coordinates.size(); i-- > 0;) {
    const auto dim = static_cast<size_t>(coordinates[i]);
    coordinates[i] = static_cast<int32_t>(element % dim);
    element /= dim;
  }
  return coordinates;
}

void RecordTensor(int32_t index, AtollTensor* tensor, void* user_data) {
  (*static_cast<TensorBytes*>(user_data))[index] = BytesOf(tensor);
}

// Runs the model on the inputs of `seed`; every tensor that exists outside of the device.
TensorBytes RunAndRecord(Session* session, uint64_t seed) {
  // Seeds are independent: what the last one left behind does not count.
  ThrowIfError(AtollInterpreterResetVariableTensors(session->interpreter()), Activity::kRunning,
               "cannot reset the variables of the model");
  FillInputs(*session, seed, {});
  TensorBytes tensors;
  AtollInterpreterSetTensorTap(session->interpreter(), RecordTensor, &tensors);
  session->Invoke();
  AtollInterpreterSetTensorTap(session->interpreter(), nullptr, nullptr);
  return tensors;
}

Json DescribeDifference(const Session& session, size_t node_index, const AtollNodeInfo& node,
                        int32_t index, const Bytes& got, const Wanted& want,
                        const Comparison& comparison) {
  const AtollTensor* tensor = AtollInterpreterGetTensor(session.interpreter(), index);
  Json json = {
      {"node", node_index}, {"op", node.op}, {"partition", node.partition}, {"index", index}};
  json.update(TensorJson(tensor));
  json["element_count"] = comparison.element_count;
  if (comparison.differing_count > 0) {
    const AtollType type = AtollTensorType(tensor);
    json["differing_count"] = comparison.differing_count;
    json["element"] = Coordinates(tensor, comparison.first);
    json["got"] = Element(type, got, comparison.first);
    json["want"] = Element(type, want.bytes, comparison.first);
  } else {
    for (const char* unknown : {"differing_count", "element", "got", "want"}) json[unknown] = {};
  }
  json["got_sha256"] = Sha256(got);
  json["want_sha256"] = want.sha256.empty() ? Sha256(want.bytes) : want.sha256;
  return json;
}

// Compares what both have, in the order in which the model's operators write.
SeedResult CompareTensors(const Session& session, uint64_t seed, TensorBytes* got,
                          WantedTensors* want) {
  SeedResult result;
  result.seed = seed;
  size_t node_index = 0;
  for (const AtollNodeInfo& node : session.nodes()) {
    for (int32_t i = 0; i < node.output_count; ++i) {
      const int32_t index = node.outputs[i];
      const auto have = got->find(index);
      const auto wanted = want->find(index);
      if (have == got->end() || wanted == want->end()) continue;
      const AtollTensor* tensor = AtollInterpreterGetTensor(session.interpreter(), index);
      const Comparison comparison = Compare(tensor, have->second, wanted->second);
      if (!comparison.judged) {
        ++result.unjudged_count;
        continue;
      }
      ++result.tensor_count;
      result.byte_count += have->second.size();
      result.within_tolerance_count += comparison.within_tolerance;
      if (comparison.equal) continue;
      if (result.differing_tensor_count++ > 0) continue;
      result.first_difference = DescribeDifference(session, node_index, node, index, have->second,
                                                   wanted->second, comparison);
      result.got = std::move(have->second);
      result.want = std::move(wanted->second.bytes);
    }
    ++node_index;
  }
  return result;
}

// The other side of the comparison: a device, or a file with what was once right.
class Reference {
 public:
  explicit Reference(const VerifyOptions& options) {
    if (options.against.starts_with(kGoldenPrefix)) {
      golden_ =
          ReadGolden(options.against.substr(std::strlen(kGoldenPrefix)), options.session.model);
    } else {
      SessionOptions session = options.session;
      session.device = options.against;
      // What is right goes its own way, undisturbed.
      session.faults.clear();
      session.record.clear();
      session.stages = 1;
      session_ = std::make_unique<Session>(session);
    }
  }

  std::vector<uint64_t> default_seeds() const {
    return golden_ ? SeedsOf(*golden_) : std::vector<uint64_t>{1};
  }
  std::string name() const { return golden_ ? golden_->path : session_->device_name(); }
  std::string substitute_path() const { return golden_ ? "" : session_->substitute_path(); }
  // What to write after --against to get this one again, anywhere.
  std::string argument() const {
    return golden_ ? kGoldenPrefix + std::filesystem::absolute(golden_->directory).string()
                   : session_->device_name();
  }
  std::string description() const {
    return golden_ ? name() : fmt::format("{} ({})", name(), session_->device_description());
  }
  Json DescriptionJson() const {
    return golden_ ? Json{{"golden", golden_->path}} : DeviceJson(*session_);
  }

  // What the tensors should be after the inputs of `seed`. `session` has run on them.
  WantedTensors Tensors(const Session& session, uint64_t seed) {
    if (golden_) return WantedOf(*golden_, seed, session);
    WantedTensors wanted;
    for (auto& [index, bytes] : RunAndRecord(session_.get(), seed)) {
      wanted[index].bytes = std::move(bytes);
    }
    return wanted;
  }

 private:
  std::optional<Golden> golden_;  // or
  std::unique_ptr<Session> session_;
};

// Where a difference at the end of a partition of several operators comes from: runs each of them
// by itself, which shows what is between them.
void LookInside(const VerifyOptions& options, Reference* reference, SeedResult* result) {
  SessionOptions apart = options.session;
  apart.max_partition_nodes = 1;
  Session session(apart);
  TensorBytes got = RunAndRecord(&session, result->seed);
  WantedTensors want = reference->Tensors(session, result->seed);
  result->first_difference_alone =
      CompareTensors(session, result->seed, &got, &want).first_difference;
}

std::string CountOf(size_t count, const char* noun) {
  return fmt::format("{} {}{}", Thousands(static_cast<int64_t>(count)), noun,
                     count == 1 ? "" : "s");
}

// Of one difference, as DescribeDifference has it.
std::string DifferenceText(const Json& d) {
  const int32_t partition = d["partition"].get<int32_t>();
  std::string text = fmt::format(
      "  first differing tensor: {} '{}' {} {}\n"
      "  written by: node {} {}, {}\n",
      d["index"].get<int32_t>(), Printable(d["name"].get<std::string>()),
      d["dtype"].get<std::string>(), d["shape"].dump(), d["node"].get<size_t>(),
      Printable(d["op"].get<std::string>()),
      partition < 0 ? "on the CPU" : fmt::format("in partition {} on the device", partition));
  if (d["element"].is_null()) {
    text += fmt::format("  got sha256:  {}\n  want sha256: {}\n",
                        d["got_sha256"].get<std::string>(), d["want_sha256"].get<std::string>());
  } else {
    text += fmt::format("  first differing element: {} is {}, should be {}\n", d["element"].dump(),
                        d["got"].dump(), d["want"].dump());
    text += fmt::format("  differing elements: {} of {}\n", d["differing_count"].get<size_t>(),
                        d["element_count"].get<size_t>());
  }
  return text;
}

std::string ResultText(const SeedResult& result) {
  std::string text = fmt::format("seed {}: ", result.seed);
  if (result.differing_tensor_count == 0) {
    text += fmt::format("equal, {} of {}", CountOf(result.tensor_count, "tensor"),
                        CountOf(result.byte_count, "byte"));
  } else {
    text += fmt::format("DIFFERENT, {} of {} compared", result.differing_tensor_count,
                        CountOf(result.tensor_count, "tensor"));
  }
  if (result.within_tolerance_count > 0) {
    text += fmt::format("; {} equal within {} of the largest value",
                        CountOf(result.within_tolerance_count, "float32 tensor"), kFloatTolerance);
  }
  if (result.unjudged_count > 0) {
    text += fmt::format("; {} not judged: only the hash is known, and it differs",
                        CountOf(result.unjudged_count, "float32 tensor"));
  }
  text += "\n";
  if (result.differing_tensor_count == 0) return text;

  text += DifferenceText(result.first_difference);
  if (!result.first_difference_alone) return text;
  if (result.first_difference_alone->is_null()) {
    text +=
        "  each operator by itself on the device is equal: only together they differ, as they were "
        "compiled\n";
  } else {
    text += "  each operator by itself on the device:\n" +
            DifferenceText(*result.first_difference_alone);
  }
  return text;
}

// For a POSIX shell.
std::string Quoted(const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Inputs and the first differing tensor as raw bytes, and how to see it again.
void SaveReproducer(const std::string& directory, const Session& session,
                    const Reference& reference, const std::vector<SeedResult>& results) {
  OutputFiles files;
  const auto add = [&](const std::string& name, const void* data, size_t size) {
    files.Add("--save", std::filesystem::path(directory) / name, data, size);
  };
  const std::string model =
      Quoted(std::filesystem::absolute(session.options().model).lexically_normal().string());
  const std::string threads =
      session.options().threads == 0 ? "" : fmt::format(" --threads {}", session.options().threads);
  std::string shapes;
  for (const std::string& shape : session.options().input_shapes) {
    shapes += " --input-shape " + Quoted(shape);
  }
  const char* cpu = std::getenv("ATOLL_CPU");  // which kernels ran is part of the story
  const std::string atoll =
      cpu == nullptr ? "atoll" : fmt::format("ATOLL_CPU={} atoll", Quoted(cpu));
  std::string text =
      fmt::format("atoll {}\ndevice: {} ({})\nagainst: {}\n", AtollVersion(), session.device_name(),
                  session.device_description(), reference.description());
  for (const SeedResult& result : results) {
    if (result.differing_tensor_count == 0) continue;
    text += "\n" + ResultText(result);
    std::string inputs;
    for (size_t i = 0; i < result.inputs.size(); ++i) {
      const std::string name = fmt::format("seed_{}_in_{}.raw", result.seed, i);
      add(name, result.inputs[i].data(), result.inputs[i].size());
      inputs += fmt::format(" --input {}={}", i, name);
    }
    const auto index = result.first_difference["index"].get<int32_t>();
    const std::string stem = fmt::format("seed_{}_tensor_{}", result.seed, index);
    add(stem + "_got.raw", result.got.data(), result.got.size());
    if (!result.want.empty()) {
      add(stem + "_want.raw", result.want.data(), result.want.size());
    }
    text += fmt::format(
        "To see it again:\n"
        "  {6} verify {0}{7} --device {1} --against {2} --seed {3}{4}\n"
        "To run the device alone on the same inputs, in this directory:\n"
        "  {6} run {0}{7} --device {1}{4} --checksums{5}\n",
        model, Quoted(session.device_name()), Quoted(reference.argument()), result.seed, threads,
        inputs, atoll, shapes);
  }
  add("findings.txt", text.data(), text.size());
  files.Commit();
}

Json ResultJson(const SeedResult& result) {
  return {{"seed", result.seed},
          {"equal", result.differing_tensor_count == 0},
          {"tensor_count", result.tensor_count},
          {"byte_count", result.byte_count},
          {"differing_tensor_count", result.differing_tensor_count},
          {"within_tolerance_count", result.within_tolerance_count},
          {"unjudged_count", result.unjudged_count},
          {"first_difference", result.first_difference},
          {"first_difference_alone", result.first_difference_alone.value_or(Json())}};
}

void RunVerify(const VerifyOptions& options) {
  Session session(options.session);
  Reference reference(options);
  if (session.substitute_path() != reference.substitute_path()) {
    Fail(
        ExitCode::kUsage,
        "'{}' runs in the place of '{}' on one side alone, and may be another conversion: nothing "
        "would follow from a difference; compare devices on which the same model runs, as with "
        "--device emu --against cpu",
        session.substitute_path().empty() ? reference.substitute_path() : session.substitute_path(),
        options.session.model);
  }
  const std::vector<uint64_t> seeds =
      options.seeds.empty() ? reference.default_seeds() : options.seeds;

  Progress progress(fmt::format("verifying '{}'", options.session.model),
                    static_cast<int64_t>(seeds.size()), "seeds");
  std::vector<SeedResult> results;
  bool looked_inside = false;  // the first difference of all is enough
  for (const uint64_t seed : seeds) {
    TensorBytes got = RunAndRecord(&session, seed);
    WantedTensors want = reference.Tensors(session, seed);
    results.push_back(CompareTensors(session, seed, &got, &want));
    if (results.back().tensor_count == 0) {
      Fail(ExitCode::kFailure,
           "no tensor of '{}' on {} could be compared with {}; compare with --against cpu",
           options.session.model, session.device_name(), reference.name());
    }
    progress.Step();
    if (results.back().differing_tensor_count == 0) continue;
    for (const AtollTensor* tensor : session.inputs()) {
      results.back().inputs.push_back(BytesOf(tensor));
    }
    const auto partition = results.back().first_difference["partition"].get<int32_t>();
    const std::vector<AtollPartitionInfo> partitions = session.partitions();
    if (partition >= 0 && partitions[static_cast<size_t>(partition)].node_count > 1 &&
        !looked_inside) {
      looked_inside = true;
      LookInside(options, &reference, &results.back());
    }
  }
  session.Lint({});
  session.Announce();

  const auto different = std::find_if(results.begin(), results.end(), [](const SeedResult& result) {
    return result.differing_tensor_count > 0;
  });
  std::string directory, save_error;
  if (different != results.end()) {
    directory = options.save.empty()
                    ? "atoll-verify-" + std::filesystem::path(options.session.model).stem().string()
                    : options.save;
    try {
      SaveReproducer(directory, session, reference, results);
    } catch (const CommandError& error) {
      save_error = error.what();  // the mismatch is the greater news
    }
  }

  Json report = NewReport("verify", session);
  report["against"] = reference.DescriptionJson();
  report["equal"] = different == results.end();
  report["seeds"] = Json::array();
  std::string text;
  for (const SeedResult& result : results) {
    report["seeds"].push_back(ResultJson(result));
    text += ResultText(result);
  }
  report["saved"] = directory.empty() || !save_error.empty() ? Json() : Json(directory);
  Print(
      options.json, [&] { return report; }, [&] { return text; });
  if (different == results.end()) return;
  const Json& first = different->first_difference;
  Fail(ExitCode::kVerifyMismatch, "'{}' on {} differs from {} at tensor {} '{}' with seed {}; {}",
       options.session.model, session.device_name(), reference.name(),
       first["index"].get<int32_t>(), first["name"].get<std::string>(), different->seed,
       save_error.empty() ? fmt::format("see '{}/findings.txt'", directory)
                          : fmt::format("no reproducer: {}", save_error));
}

}  // namespace

void AddVerifyCommand(CLI::App* app) {
  Subcommand<VerifyOptions> command(app, "verify", RunVerify);
  AddSessionOptions(&command, &command->session);
  command.Add("--against", command->against);
  command.AddRepeatable("--seed", command->seeds)->delimiter(',')->check(WholeNumber());
  command.Add("--save", command->save);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
