// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

constexpr int kMaxModels = 12;  // as AtollPlanResidency takes
constexpr size_t kLargestListed = 5;

struct ResidencyOptions {
  std::vector<std::string> models;
  SessionOptions session;  // without a model
  bool json = false;
};

// The resident parameters of the operators of model number `model`, an entry for each.
void AppendParameters(const Session& session, size_t model, std::vector<Json>* parameters) {
  const std::vector<AtollNodeInfo> nodes = session.nodes();
  for (size_t p = 0; p < session.partitions().size(); ++p) {
    for (const AtollMemoryBlock& block : session.partition_memory(p)) {
      if (block.kind != ATOLL_MEMORY_RESIDENT_PARAMETERS || block.node < 0) continue;
      const AtollNodeInfo& node = nodes[block.node];
      const char* output =
          node.output_count == 0
              ? ""
              : AtollTensorName(AtollInterpreterGetTensor(session.interpreter(), node.outputs[0]));
      parameters->push_back({{"model", model},
                             {"node", block.node},
                             {"op", node.op},
                             {"output", output},
                             {"bytes", block.bytes}});
    }
  }
}

// The models on their device, and what becomes of them there.
class Residency {
 public:
  explicit Residency(const ResidencyOptions& options) {
    const Progress progress("planning");
    std::vector<const AtollInterpreter*> interpreters;
    for (size_t i = 0; i < options.models.size(); ++i) {
      sessions_.push_back(
          std::make_unique<Session>(OptionsFor(options.session, options.models, i)));
      interpreters.push_back(sessions_.back()->interpreter());
      AppendParameters(*sessions_.back(), sessions_.size() - 1, &parameters_);
    }
    const AtollResidencyPlan* plan = nullptr;
    ThrowIfError(AtollPlanResidency(device().delegate(), interpreters.data(),
                                    static_cast<int32_t>(interpreters.size()), &plan),
                 Activity::kPreparing, fmt::format("cannot plan for {}", device().device_name()));
    plan_ = *plan;
    std::stable_sort(parameters_.begin(), parameters_.end(),
                     [](const Json& a, const Json& b) { return a["bytes"] > b["bytes"]; });
    if (parameters_.size() > kLargestListed) parameters_.resize(kLargestListed);
  }

  const Session& device() const { return *sessions_.front(); }

  Json ToJson() const;
  std::string ToText() const;

 private:
  std::span<const AtollResidencyModel> models() const {
    return {plan_.models, static_cast<size_t>(plan_.model_count)};
  }
  // Of one round.
  std::span<const AtollResidencyTurn> turns(int32_t round) const {
    return {plan_.turns + round * plan_.model_count, static_cast<size_t>(plan_.model_count)};
  }
  std::string name(size_t model) const { return Printable(sessions_[model]->options().model); }
  bool is_on_device(size_t model) const { return !sessions_[model]->partitions().empty(); }
  std::string RoundText(int32_t round) const;
  std::string AdviceText() const;

  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<Json> parameters_;  // the largest, in descending order
  // Its arrays stay valid, as no other plan is made.
  AtollResidencyPlan plan_ = {};
};

double MsOf(double seconds) { return RoundedMs(seconds * 1e3); }

Json BytesOrNull(int64_t bytes) { return bytes > 0 ? Json(bytes) : Json(); }

Json Residency::ToJson() const {
  Json report = NewReport("residency");
  report["device"] = DeviceJson(device());
  report["memory_bytes"] = plan_.memory_bytes;
  report["program_memory_bytes"] = plan_.program_memory_bytes;
  report["models"] = Json::array();
  for (size_t i = 0; i < models().size(); ++i) {
    const AtollResidencyModel& model = models()[i];
    report["models"].push_back({{"model", sessions_[i]->options().model},
                                {"substitute", SubstituteJson(*sessions_[i])},
                                {"partition_count", sessions_[i]->partitions().size()},
                                {"program_bytes", model.program_bytes},
                                {"parameter_bytes", model.parameter_bytes},
                                {"activation_bytes", model.activation_bytes},
                                {"modelled_inference_ms", MsOf(model.inference_seconds)},
                                {"upload_bytes", model.upload_bytes},
                                {"modelled_upload_ms", MsOf(model.upload_seconds)},
                                {"in_subset", model.in_subset != 0}});
  }
  report["all_fit"] = plan_.all_fit != 0;
  report["rounds"] = Json::array();
  for (int32_t round = 0; round < plan_.round_count; ++round) {
    Json& list = report["rounds"].emplace_back(Json::array());
    for (const AtollResidencyTurn& turn : turns(round)) {
      list.push_back({{"model", turn.model},
                      {"upload_bytes", turn.upload_bytes},
                      {"modelled_upload_ms", MsOf(turn.upload_seconds)},
                      {"modelled_ms", MsOf(turn.seconds)},
                      {"evicted", std::vector(turn.evicted, turn.evicted + turn.evicted_count)}});
    }
  }
  report["repeating_round"] = plan_.repeating_round;
  report["modelled_round_ms"] = MsOf(plan_.round_seconds);
  report["modelled_resident_round_ms"] = MsOf(plan_.resident_round_seconds);
  report["needed_memory_bytes"] = BytesOrNull(plan_.needed_memory_bytes);
  report["needed_program_memory_bytes"] = BytesOrNull(plan_.needed_program_memory_bytes);
  report["largest_parameters"] = parameters_;
  return report;
}

std::string Residency::RoundText(int32_t round) const {
  std::string text;
  for (const AtollResidencyTurn& turn : turns(round)) {
    if (!is_on_device(static_cast<size_t>(turn.model))) {
      text += fmt::format("    {}: nothing on the device\n", turn.model);
      continue;
    }
    text += fmt::format("    {}: {:.3f} ms", turn.model, turn.seconds * 1e3);
    if (turn.upload_bytes > 0) {
      text += fmt::format(", of them {:.3f} ms to upload {}", turn.upload_seconds * 1e3,
                          ByteSizeText(turn.upload_bytes));
    }
    if (turn.evicted_count > 0) {
      text +=
          fmt::format(", evicts {}", fmt::join(std::span(turn.evicted, turn.evicted_count), ", "));
    }
    text += "\n";
  }
  return text;
}

std::string Residency::AdviceText() const {
  std::string text = "what would make it fit\n";
  std::vector<std::string> needed;
  const auto need = [&](int64_t bytes, int64_t have, const char* memory) {
    if (bytes == 0) {
      needed.push_back(fmt::format("more than 4 GiB of {} memory", memory));
    } else if (bytes > have) {
      needed.push_back(fmt::format("{} bytes of {} memory, where this one has {}", Thousands(bytes),
                                   memory, Thousands(have)));
    }
  };
  need(plan_.needed_memory_bytes, plan_.memory_bytes, "on-chip");
  need(plan_.needed_program_memory_bytes, plan_.program_memory_bytes, "program");
  if (!needed.empty()) {
    text += fmt::format("    a device with {}\n", fmt::join(needed, " and "));
  }
  std::vector<size_t> subset;
  for (size_t i = 0; i < models().size(); ++i) {
    if (models()[i].in_subset != 0) subset.push_back(i);
  }
  if (!subset.empty()) {
    text +=
        fmt::format("    these alone: {} ({} and would save the most uploading)\n",
                    fmt::join(subset, ", "), subset.size() == 1 ? "it fits" : "they fit together");
  }
  if (!parameters_.empty()) text += "    smaller parameters; the largest are\n";
  for (const Json& parameters : parameters_) {
    text += fmt::format("      {:>10} bytes of {}: operator {} {} '{}'\n",
                        Thousands(parameters["bytes"]), parameters["model"].get<size_t>(),
                        parameters["node"].get<int32_t>(),
                        Printable(parameters["op"].get<std::string>()),
                        Printable(parameters["output"].get<std::string>()));
  }
  return text;
}

std::string Residency::ToText() const {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "device   {}: {}\n", device().device_name(), device().device_description());
  fmt::format_to(out, "memory   {} bytes on chip, {} bytes for programs\n",
                 Thousands(plan_.memory_bytes), Thousands(plan_.program_memory_bytes));
  fmt::format_to(out,
                 "\nmodels, in bytes and modelled ms (not measured; operators on the CPU are "
                 "not in them)\n"
                 "  {:>2} {:>10} {:>12} {:>12} {:>11} {:>12} {:>11}  model\n",
                 "", "program", "parameters", "activations", "inference", "upload", "upload ms");
  bool any_on_device = false;
  for (size_t i = 0; i < models().size(); ++i) {
    const AtollResidencyModel& model = models()[i];
    if (!is_on_device(i)) {
      fmt::format_to(out, "  {:>2} {:>10} {:>12} {:>12} {:>11} {:>12} {:>11}  {} {}\n", i, "-", "-",
                     "-", "-", "-", "-", name(i), "(nothing of it runs on the device)");
      continue;
    }
    any_on_device = true;
    fmt::format_to(out, "  {:>2} {:>10} {:>12} {:>12} {:>11.3f} {:>12} {:>11.3f}  {}\n", i,
                   Thousands(model.program_bytes), Thousands(model.parameter_bytes),
                   Thousands(model.activation_bytes), model.inference_seconds * 1e3,
                   Thousands(model.upload_bytes), model.upload_seconds * 1e3, name(i));
  }
  if (!any_on_device)
    return text + "\nnothing runs on the device, so there is nothing to keep on it\n";
  fmt::format_to(out, "\nrounds of one inference each, modelled\n  first, on an empty device\n{}",
                 RoundText(0));
  for (int32_t round = 1; round < plan_.repeating_round; ++round) {
    fmt::format_to(out, "  then\n{}", RoundText(round));
  }
  for (int32_t round = plan_.repeating_round; round < plan_.round_count; ++round) {
    fmt::format_to(out, "  {}\n{}", round == plan_.repeating_round ? "then, over and over" : "and",
                   RoundText(round));
  }
  fmt::format_to(out, "\n");
  if (plan_.all_fit != 0) {
    fmt::format_to(out, "all stay on the device: {:.3f} ms per round, modelled\n",
                   plan_.round_seconds * 1e3);
    return text;
  }
  fmt::format_to(
      out, "not all stay on the device: {:.3f} ms per round, modelled; {:.3f} ms if they did\n",
      plan_.round_seconds * 1e3, plan_.resident_round_seconds * 1e3);
  return text + AdviceText();
}

void RunResidency(const ResidencyOptions& options) {
  if (IsDevice(options.session.device, atollrt::DeviceName::Kind::kCpu)) {
    Fail(ExitCode::kUsage, "--device cpu: models are on a device or not; name one, e.g. emu");
  }
  const Residency residency(options);
  residency.device().AnnounceDevice();
  Print(
      options.json, [&] { return residency.ToJson(); }, [&] { return residency.ToText(); });
}

}  // namespace

void AddResidencyCommand(CLI::App* app) {
  Subcommand<ResidencyOptions> command(app, "residency", RunResidency);
  command.Add("MODEL", command->models)->required()->expected(1, kMaxModels);
  AddDeviceOptions(&command, &command->session);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
