// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "runtime/base/sha256.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct RunOptions {
  SessionOptions session;  // without a model
  std::vector<std::string> models;
  std::vector<size_t> order;  // empty: each once
  std::vector<std::string> inputs;
  std::vector<uint64_t> seeds{1};
  std::string seed_at = "device";
  std::string output_dir;
  bool checksums = false;
  bool json = false;
};

Json Checksum(size_t index, const AtollTensor* tensor, const void* data) {
  Json json = {{"index", index}};
  json.update(TensorJson(tensor));
  json["sha256"] = atollrt::Sha256Hex(data, AtollTensorByteSize(tensor));
  return json;
}

// What the tap of one invocation is for: one entry for each tensor that a step wrote, in that
// order, and what goes to and comes from a Coral.
class Tap {
 public:
  // `seed`: nothing unless the operators on the device get their inputs from it.
  Tap(const Session& session, std::optional<uint64_t> seed) : session_(session), seed_(seed) {
    if (!session.on_coral()) return;
    for (const AtollNodeInfo& node : session.nodes()) {
      if (node.partition < 0) continue;
      inputs_.insert(node.inputs, node.inputs + node.input_count);
      outputs_.insert(node.outputs, node.outputs + node.output_count);
    }
  }

  void Attach(bool all_tensors) {
    all_tensors_ = all_tensors;
    if (!all_tensors && outputs_.empty()) return;
    AtollInterpreterSetTensorTap(session_.interpreter(), OnTensor, this);
  }
  ~Tap() { AtollInterpreterSetTensorTap(session_.interpreter(), nullptr, nullptr); }
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  Json tensors = Json::array();
  Json device_outputs = Json::array();

 private:
  static void OnTensor(int32_t index, AtollTensor* tensor, void* user_data) {
    Tap& tap = *static_cast<Tap*>(user_data);
    if (tap.seed_ && tap.inputs_.contains(index)) FillFromSeed(*tap.seed_, tensor);
    const bool is_device_output = tap.outputs_.contains(index);
    if (!tap.all_tensors_ && !is_device_output) return;
    const Json checksum =
        Checksum(static_cast<size_t>(index), tensor, AtollTensorConstData(tensor));
    if (tap.all_tensors_) tap.tensors.push_back(checksum);
    if (is_device_output) tap.device_outputs.push_back(checksum);
  }

  const Session& session_;
  const std::optional<uint64_t> seed_;
  bool all_tensors_ = false;
  std::set<int32_t> inputs_;   // of operators on a Coral
  std::set<int32_t> outputs_;  // of operators on a Coral
};

std::string ChecksumText(const char* kind, const Json& tensor) {
  std::string quantization;
  if (tensor["scale"] != 0.0) {
    quantization = fmt::format(" scale {} zero_point {}", tensor["scale"].get<double>(),
                               tensor["zero_point"].get<int32_t>());
  }
  return fmt::format("{} {} '{}' {} {}{} {}\n", kind, tensor["index"].get<size_t>(),
                     Printable(tensor["name"].get<std::string>()),
                     tensor["dtype"].get<std::string>(), tensor["shape"].dump(), quantization,
                     tensor["sha256"].get<std::string>());
}

void CheckOptions(const RunOptions& options, size_t invocations) {
  const size_t models = options.models.size();
  for (const size_t model : options.order) {
    if (model >= models) {
      Fail(ExitCode::kUsage, "--order names model {}, but there {} (counted from 0)", model,
           models == 1 ? "is one" : fmt::format("are {}", models));
    }
  }
  if (options.seeds.size() != 1 && options.seeds.size() != invocations) {
    Fail(ExitCode::kUsage, "--seed has {} numbers for {} invocations; give one, or one for each",
         options.seeds.size(), invocations);
  }
  if (models > 1 && !options.inputs.empty()) {
    Fail(ExitCode::kUsage, "--input is for one model alone; give one, or inputs from a --seed");
  }
  if (models > 1 && !options.session.input_shapes.empty()) {
    Fail(ExitCode::kUsage, "--input-shape is for one model alone; give one");
  }
  if (invocations > 1 && !options.output_dir.empty()) {
    Fail(ExitCode::kUsage, "--output-dir takes the outputs of one invocation, not of {}",
         invocations);
  }
}

void WriteOutputs(const Session& session, const std::string& output_dir) {
  OutputFiles files;
  const std::filesystem::path directory(output_dir);
  size_t k = 0;
  for (const AtollTensor* tensor : session.outputs()) {
    files.Add("--output-dir", directory / fmt::format("out_{}.raw", k++),
              AtollTensorConstData(tensor), AtollTensorByteSize(tensor));
  }
  files.Commit();
}

// What one invocation gave.
Json Invoke(Session& session, const RunOptions& options, uint64_t seed) {
  FillInputs(session, seed, options.inputs);
  const bool seeds_device = options.seed_at == "device" && options.inputs.empty();
  Tap tap(session, seeds_device ? std::optional(seed) : std::nullopt);
  tap.Attach(options.checksums);
  session.Invoke();
  Json result = {{"seed", seed}, {"outputs", Json::array()}};
  for (const AtollTensor* tensor : session.outputs()) {
    result["outputs"].push_back(
        Checksum(result["outputs"].size(), tensor, AtollTensorConstData(tensor)));
  }
  if (options.checksums) result["tensors"] = std::move(tap.tensors);
  if (session.on_coral()) result["device_outputs"] = std::move(tap.device_outputs);
  return result;
}

std::string InvocationText(const Json& invocation) {
  std::string text;
  for (const char* kind : {"tensor", "device_output", "output"}) {
    const auto tensors = invocation.find(fmt::format("{}s", kind));
    if (tensors == invocation.end()) continue;
    for (const Json& tensor : *tensors) text += ChecksumText(kind, tensor);
  }
  return text;
}

void RunRun(const RunOptions& options) {
  std::vector<size_t> order = options.order;
  for (size_t i = 0; options.order.empty() && i < options.models.size(); ++i) order.push_back(i);
  CheckOptions(options, order.size());
  if (!options.output_dir.empty()) CheckOutputFolder("--output-dir", options.output_dir);

  std::vector<std::unique_ptr<Session>> sessions;
  for (size_t i = 0; i < options.models.size(); ++i) {
    sessions.push_back(
        std::make_unique<Session>(OptionsFor(options.session, options.models, i),
                                  sessions.empty() ? nullptr : sessions.front().get()));
  }
  Session& first = *sessions.front();
  if (options.models.size() == 1) FillInputs(first, options.seeds[0], options.inputs);
  for (const auto& session : sessions) session->Lint({});
  first.AnnounceDevice();
  for (const auto& session : sessions) session->AnnounceWarnings();

  Json invocations = Json::array();
  {
    Progress progress("running", static_cast<int64_t>(order.size()), "inferences");
    for (size_t k = 0; k < order.size(); ++k) {
      Json result =
          Invoke(*sessions[order[k]], options, options.seeds[options.seeds.size() == 1 ? 0 : k]);
      result["model"] = order[k];
      invocations.push_back(std::move(result));
      progress.Step();
    }
  }
  if (!options.output_dir.empty()) WriteOutputs(*sessions[order[0]], options.output_dir);
  first.AnnounceHealth();
  AnnounceOutput("the outputs", options.output_dir);
  if (options.json) {
    Json report = NewReport("run", first);
    report["models"] = options.models;
    report["substitutes"] = Json::array();
    for (const auto& session : sessions) {
      report["substitutes"].push_back(SubstituteJson(*session));
    }
    if (invocations.size() == 1) {
      for (const auto& [key, value] : invocations[0].items()) {
        if (key != "model") report[key] = value;
      }
    }
    report["invocations"] = std::move(invocations);
    PrintReport(report);
    return;
  }
  std::string text;
  for (size_t k = 0; k < order.size(); ++k) {
    if (order.size() > 1) {
      text +=
          fmt::format("invocation {} model {} '{}' seed {}\n", k, order[k],
                      Printable(options.models[order[k]]), invocations[k]["seed"].get<uint64_t>());
    }
    text += InvocationText(invocations[k]);
  }
  PrintText(text);
}

// The words of the recorded command line.
std::vector<std::string> ReadCommandLine(const std::string& path) {
  std::string text;
  if (AtollReadRecordingNote(path.c_str(), AppendBytes, &text) != ATOLL_OK) {
    Fail(ExitCode::kFailure, "cannot replay: {}; give a file that --record wrote",
         AtollLastError());
  }
  const Json words = Json::parse(text, nullptr, false);
  std::vector<std::string> command;
  for (const Json& word : words.is_array() ? words : Json::array()) {
    if (word.is_string()) command.push_back(word.get<std::string>());
  }
  if (command.empty() || command[0] == "replay") {
    Fail(ExitCode::kUsage,
         "'{}' does not say what was run when it was recorded; use --device replay:{} with the "
         "same subcommand",
         path, path);
  }
  return command;
}

// Takes an option, with its value if it has one, out of a command line; whether it was there.
bool Remove(std::string_view option, bool has_value, std::vector<std::string>* words) {
  const size_t before = words->size();
  for (size_t i = 0; i < words->size();) {
    const std::string& word = (*words)[i];
    const bool is_alone = word == option;
    if (!is_alone && !word.starts_with(std::string(option) + "=")) {
      ++i;
      continue;
    }
    const auto at = words->begin() + static_cast<ptrdiff_t>(i);
    words->erase(at, at + (is_alone && has_value && i + 1 < words->size() ? 2 : 1));
  }
  return words->size() != before;
}

// A recording may come from a stranger, so the command line in it may run models and print, nothing
// else: neither write files nor be a server nor talk to one.
constexpr std::string_view kReplayed[] = {"run",    "classify", "detect",  "segment", "pose",
                                          "camera", "inspect",  "profile", "verify",  "residency"};
struct Withheld {
  std::string_view option;
  bool has_value = true;
};
constexpr Withheld kWithheld[] = {
    {"--output"},     {"--output-dir"},  {"--mask"},
    {"--save"},       {"--results"},     {"--trace"},
    {"--report"},     {"--serve"},       {"--serve-name"},
    {"--token-file"}, {"--tls-cert"},    {"--tls-key"},
    {"--client-ca"},  {"--max-viewers"}, {"--insecure", /*has_value=*/false},
    {"--mqtt"},       {"--mqtt-camera"}, {"--mqtt-password-file"},
    {"--mqtt-ca"},    {"--mqtt-cert"},   {"--mqtt-key"}};

// Makes a recorded command line one that harms nobody, or ends the program.
void Withhold(const std::string& recording, std::vector<std::string>* words) {
  const auto refuse = [&](const std::string& why) {
    Fail(ExitCode::kUsage,
         "'{}' is not replayed: {}; give the command line yourself, with --device replay:{}",
         recording, why, recording);
  };
  const std::string subcommand = words->empty() ? "" : words->front();
  if (std::ranges::find(kReplayed, subcommand) == std::end(kReplayed)) {
    refuse(
        fmt::format("the command line in it is of 'atoll {}', which is no subcommand that "
                    "models are recorded with",
                    Printable(subcommand)));
  }
  for (const std::string& word : *words) {
    if (word.find("://") != word.npos) refuse("the command line in it has an address");
  }
  std::string left_out;
  for (const Withheld& withheld : kWithheld) {
    if (!Remove(withheld.option, withheld.has_value, words)) continue;
    left_out += fmt::format("{}{}", left_out.empty() ? "" : ", ", withheld.option);
  }
  if (!left_out.empty()) {
    fmt::print(stderr,
               "atoll: without {}: what a replay shall write or serve is said behind --, as in "
               "atoll replay {} -- --json\n",
               left_out, Printable(recording));
  }
}

struct ReplayOptions {
  std::string recording;
  std::vector<std::string> added;
};

void RunReplay(const ReplayOptions& options) {
  std::vector<std::string> words = ReadCommandLine(options.recording);
  std::string shown = "atoll";
  for (const std::string& word : words) shown += " " + word;
  fmt::print(stderr, "atoll: replaying '{}'\n", Printable(shown));
  for (const char* option : {"--device", "--faults", "--record", "--on-device-loss"}) {
    Remove(option, /*has_value=*/true, &words);
  }
  Withhold(options.recording, &words);
  words.insert(words.end(), {"--device", "replay:" + options.recording});
  words.insert(words.end(), options.added.begin(), options.added.end());
  RunWords(std::move(words));
}

}  // namespace

void AddRunCommand(CLI::App* app) {
  Subcommand<RunOptions> command(app, "run", RunRun);
  command.Add("MODEL", command->models)->required();
  AddDeviceOptions(&command, &command->session);
  AddInputShapeOption(&command, &command->session.input_shapes);
  command.AddRepeatable("--input", command->inputs);
  command.AddRepeatable("--order", command->order)->delimiter(',')->check(WholeNumber());
  command.AddRepeatable("--seed", command->seeds)->delimiter(',')->check(WholeNumber());
  command.Add("--seed-at", command->seed_at)->check(CLI::IsMember({"device", "model"}));
  command.Add("--output-dir", command->output_dir);
  command.Flag("--checksums", command->checksums);
  command.Flag("--json", command->json);
}

void AddReplayCommand(CLI::App* app) {
  Subcommand<ReplayOptions> command(app, "replay", RunReplay);
  command.Add("FILE", command->recording)->required();
  command.Add("OPTIONS", command->added);
}

}  // namespace atollcmd
