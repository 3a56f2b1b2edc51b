// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/vision.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/lint.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/pictures.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

double Ms(double seconds) { return RoundedMs(seconds * 1e3); }

// What a real Coral on `host` would take for a model: modelled, and never mixed with the times of a
// device of ours.
AtollCoralEstimate EstimateCoral(const AtollModel* model, const std::string& host) {
  AtollCoralEstimate estimate = {};
  const AtollStatus status = AtollEstimateCoral(model, host.c_str(), &estimate);
  if (status == ATOLL_NOT_FOUND) Fail(ExitCode::kUsage, "--coral: {}", AtollLastError());
  ThrowIfError(status, Activity::kPreparing, "cannot predict a Coral's time");
  return estimate;
}

Json CoralJson(const AtollCoralEstimate& e, const std::string& host) {
  return {{"host", host},
          {"modelled_ms", Ms(e.seconds)},
          {"breakdown_ms",
           {{"host", Ms(e.host_seconds)},
            {"link_out", Ms(e.link_out_seconds)},
            {"dense", Ms(e.dense_seconds)},
            {"vector", Ms(e.vector_seconds)},
            {"layers", Ms(e.layer_seconds)},
            {"parameters", Ms(e.parameter_seconds)},
            {"link_in", Ms(e.link_in_seconds)}}},
          {"upload_ms", Ms(e.upload_seconds)},
          {"instruction_bytes", e.instruction_bytes},
          {"input_bytes", e.input_bytes},
          {"output_bytes", e.output_bytes},
          {"cached_parameter_bytes", e.cached_parameter_bytes},
          {"streamed_parameter_bytes", e.streamed_parameter_bytes},
          {"nodes_on_device", e.device_node_count},
          {"nodes_on_host", e.host_node_count}};
}

std::string CoralText(const AtollCoralEstimate& e, const std::string& host) {
  std::string text = fmt::format(
      "a real Coral on {} (modelled, not measured; docs/fidelity.md): {:.3f} ms per inference\n"
      "    host        {:.3f} ms\n"
      "    link        {:.3f} ms out: {} of instructions, {} of inputs; {:.3f} ms in: {}\n"
      "    computation {:.3f} ms dense, {:.3f} ms depthwise and element-wise, {:.3f} ms for {} "
      "layers\n"
      "    parameters  {:.3f} ms waiting for {} streamed; {} cached, uploaded in {:.3f} ms\n",
      host, e.seconds * 1e3, e.host_seconds * 1e3, e.link_out_seconds * 1e3,
      ByteSizeText(e.instruction_bytes), ByteSizeText(e.input_bytes), e.link_in_seconds * 1e3,
      ByteSizeText(e.output_bytes), e.dense_seconds * 1e3, e.vector_seconds * 1e3,
      e.layer_seconds * 1e3, e.device_node_count, e.parameter_seconds * 1e3,
      ByteSizeText(e.streamed_parameter_bytes), ByteSizeText(e.cached_parameter_bytes),
      e.upload_seconds * 1e3);
  if (e.host_node_count > 0) {
    text += fmt::format("    not in it   {} of {} operators, which the host's CPU would run\n",
                        e.host_node_count, e.host_node_count + e.device_node_count);
  }
  return text;
}

CLI::Validator InputShapesText() {
  return {[](std::string& text) {
            for (std::string& part : Split(text, ',')) {
              if (std::string error = InputShapeText()(part); !error.empty()) return error;
            }
            return std::string();
          },
          "[NAME=]SHAPE[,...]"};
}

CLI::Validator DeviceWithTimes() {
  return {[](std::string& text) {
            return IsDevice(text, atollrt::DeviceName::Kind::kCpu)
                       ? "'cpu' has no modelled times; name a device, for example "
                         "emu:usb2, or all"
                       : "";
          },
          "DEVICE"};
}

std::vector<std::string> EmulatorProfiles() {
  const AtollDeviceInfo* devices = nullptr;
  int32_t count = 0;
  ThrowIfError(AtollListDevices(&devices, &count), Activity::kOpeningDevice, "cannot list devices");
  std::vector<std::string> profiles;
  for (const AtollDeviceInfo& device : std::span(devices, count)) {
    // Stepped, a device has the times that it has directly.
    if (IsDevice(device.name, atollrt::DeviceName::Kind::kEmulator) &&
        std::string_view(device.name).find('+') == std::string_view::npos) {
      profiles.emplace_back(device.name);
    }
  }
  return profiles;
}

struct WhatIfOptions {
  std::vector<std::string> profiles;  // devices; "all": every profile of the emulator
  // Each one set of shapes, as ParseInputShape takes them, with commas between.
  std::vector<std::string> shapes;

  bool any() const { return !profiles.empty() || !shapes.empty(); }
};

// The model on a device with a set of shapes.
struct WhatIf {
  std::string device;
  std::vector<std::string> given;  // the shapes of --what-if or --input-shape
  std::string shapes;              // of all inputs: "1x320x320x3"
  std::string reason;              // why it cannot be; nothing of the rest is then set
  AtollModelledLatency seconds = {};
  int64_t cycles = 0;
  size_t nodes = 0;
  size_t nodes_on_device = 0;
  size_t partitions = 0;
  int64_t resident_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t streamed_bytes = 0;
  int64_t macs = 0;
};

// The parts of the modelled time, in the order of the table.
struct LatencyPart {
  const char* key;
  double AtollModelledLatency::*seconds;
};
constexpr LatencyPart kLatencyParts[] = {{"host", &AtollModelledLatency::host},
                                         {"link_out", &AtollModelledLatency::link_out},
                                         {"parameters", &AtollModelledLatency::parameters},
                                         {"array", &AtollModelledLatency::array},
                                         {"vector", &AtollModelledLatency::vector},
                                         {"dma", &AtollModelledLatency::dma},
                                         {"link_in", &AtollModelledLatency::link_in}};

WhatIf ReadWhatIf(const Session& session) {
  WhatIf row;
  std::vector<std::string> shapes;
  for (const AtollTensor* input : session.inputs())
    shapes.push_back(fmt::format("{}", fmt::join(ShapeOf(input), "x")));
  row.shapes = fmt::format("{}", fmt::join(shapes, ","));
  for (const AtollNodeInfo& node : session.nodes()) {
    ++row.nodes;
    row.nodes_on_device += node.partition >= 0;
    row.macs += node.macs;
  }
  for (const AtollPartitionInfo& partition : session.partitions()) {
    ++row.partitions;
    row.cycles += partition.estimated_cycles;
    row.resident_bytes += partition.resident_parameter_bytes;
    row.streamed_bytes += partition.streamed_parameter_bytes;
    // Partitions share this memory.
    row.activation_bytes = std::max(row.activation_bytes, partition.activation_bytes);
    row.seconds.total += partition.latency.total;
    for (const auto& [key, part] : kLatencyParts) row.seconds.*part += partition.latency.*part;
  }
  if (!session.on_device()) {
    row.reason = "the CPU has no modelled times";
  } else if (row.partitions == 0) {
    row.reason = row.nodes == 0 ? "the model has no operators"
                                : fmt::format("nothing runs on the device: {}",
                                              session.nodes().front().reason);
  }
  return row;
}

// One row for each device and set of shapes, the present ones first: the model of `session`
// prepared in all these ways. Throws CommandError for what is wrong on the command line; that a
// model cannot be prepared in some way is a row with the reason.
std::vector<WhatIf> TryOut(const Session& session, const WhatIfOptions& options) {
  std::vector<WhatIf> rows;
  std::vector<std::string> devices = {session.device_name()};
  for (const std::string& profile : options.profiles) {
    for (const std::string& device :
         profile == "all" ? EmulatorProfiles() : std::vector<std::string>{profile}) {
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
        devices.push_back(device);
      }
    }
  }
  std::vector<std::vector<std::string>> shapes = {session.options().input_shapes};
  for (const std::string& text : options.shapes) shapes.push_back(Split(text, ','));

  for (const std::string& device : devices) {
    for (const std::vector<std::string>& given : shapes) {
      SessionOptions what_if = session.options();
      what_if.device = device;
      what_if.input_shapes = given;
      WhatIf row;
      try {
        row = rows.empty() ? ReadWhatIf(session) : ReadWhatIf(Session(what_if));
      } catch (const CommandError& error) {
        if (error.code() != ExitCode::kBadModel) throw;
        // The library's sentence alone: of the model, the report speaks all along.
        const std::string_view sentence = AtollLastError();
        const std::string model = fmt::format("model '{}': ", what_if.model);
        row.reason = sentence.substr(sentence.starts_with(model) ? model.size() : 0);
      }
      row.device = device;
      row.given = given;
      if (row.shapes.empty()) row.shapes = fmt::format("{}", fmt::join(given, ","));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

Json WhatIfJson(const std::vector<WhatIf>& table) {
  Json rows = Json::array();
  for (const WhatIf& row : table) {
    Json ms, parts, cycles;  // null
    if (row.partitions > 0) {
      ms = Ms(row.seconds.total);
      for (const auto& [key, part] : kLatencyParts) parts[key] = Ms(row.seconds.*part);
      cycles = row.cycles;
    }
    rows.push_back({{"device", row.device},
                    {"input_shapes", row.given},
                    {"shapes", row.shapes},
                    {"reason", row.reason},
                    {"modelled_ms", std::move(ms)},
                    {"modelled_parts_ms", std::move(parts)},
                    {"modelled_cycles", std::move(cycles)},
                    {"macs", row.macs},
                    {"nodes", row.nodes},
                    {"nodes_on_device", row.nodes_on_device},
                    {"partition_count", row.partitions},
                    {"on_chip_bytes", row.resident_bytes + row.activation_bytes},
                    {"resident_parameter_bytes", row.resident_bytes},
                    {"activation_bytes", row.activation_bytes},
                    {"streamed_parameter_bytes", row.streamed_bytes}});
  }
  return rows;
}

std::string WhatIfText(const std::vector<WhatIf>& rows) {
  size_t device_width = 6, shape_width = 6;
  for (const WhatIf& row : rows) {
    device_width = std::max(device_width, row.device.size());
    shape_width = std::max(shape_width, row.shapes.size());
  }
  std::string text =
      "\nwhat if: modelled ms per inference, not measured. Link and units work side by side, so "
      "the\n"
      "parts may add up to more than the total; operators on the CPU are not in it\n";
  auto out = std::back_inserter(text);
  fmt::format_to(out,
                 "  {:<{}}  {:<{}}  {:>9} {:>7} {:>8} {:>7} {:>8} {:>8} {:>7} {:>7}  {:>13}  {:>9} "
                 "{:>5}  {:>9}  {:>9}\n",
                 "device", device_width, "inputs", shape_width, "total", "host", "link out",
                 "params", "array", "vector", "dma", "link in", "cycles", "operators", "parts",
                 "on chip", "streamed");
  for (const WhatIf& row : rows) {
    fmt::format_to(out, "{} {:<{}}  {:<{}}  ", &row == rows.data() ? '*' : ' ', row.device,
                   device_width, row.shapes, shape_width);
    if (row.partitions == 0) {
      fmt::format_to(out, "{}\n", Printable(row.reason));
      continue;
    }
    const AtollModelledLatency& s = row.seconds;
    fmt::format_to(out,
                   "{:>9.3f} {:>7.3f} {:>8.3f} {:>7.3f} {:>8.3f} {:>8.3f} {:>7.3f} {:>7.3f}  "
                   "{:>13}  {:>9} {:>5}  {:>9}  {:>9}\n",
                   s.total * 1e3, s.host * 1e3, s.link_out * 1e3, s.parameters * 1e3, s.array * 1e3,
                   s.vector * 1e3, s.dma * 1e3, s.link_in * 1e3, Thousands(row.cycles),
                   fmt::format("{}/{}", row.nodes_on_device, row.nodes), row.partitions,
                   ByteSizeText(row.resident_bytes + row.activation_bytes),
                   ByteSizeText(row.streamed_bytes));
  }
  return text + "* as it is now\n";
}

struct InspectOptions {
  SessionOptions session;
  LabelOptions labels;
  std::string coral;  // a host, or empty
  WhatIfOptions what_if;
  bool json = false;
};

struct Plan {
  std::vector<AtollNodeInfo> nodes;
  std::vector<AtollNodeKernel> kernels;  // of each
  std::vector<AtollPartitionInfo> partitions;
  std::vector<const AtollTensor*> tensors;  // by index in the file
  AtollMemoryInfo memory = {};
  double modelled_seconds = 0;
  atollrt::Task task = atollrt::Task::kNone;  // what the model says about pictures, if it takes any
  std::optional<AtollCoralEstimate> coral;
  std::vector<WhatIf> what_if;
};

Plan ReadPlan(const Session& session) {
  Plan plan;
  plan.nodes = session.nodes();
  plan.kernels = session.kernels();
  plan.partitions = session.partitions();
  for (const AtollPartitionInfo& partition : plan.partitions) {
    plan.modelled_seconds += partition.latency.total;
  }
  const AtollInterpreter* interpreter = session.interpreter();
  for (int32_t i = 0; i < AtollInterpreterGetTensorCount(interpreter); ++i) {
    plan.tensors.push_back(AtollInterpreterGetTensor(interpreter, i));
  }
  plan.memory = session.memory_info();
  if (SeemsToTakePictures(session.interpreter()) &&
      atollrt::PictureInput::Create(session.interpreter()).ok()) {
    plan.task = atollrt::IdentifyTask(session.interpreter());
  }
  return plan;
}

Json KernelJson(const AtollNodeKernel& kernel) {
  if (kernel.channels == 0) return {};
  return {{"name", kernel.name},
          {"channels", kernel.channels},
          {"float_channels", kernel.float_channels},
          {"packed_in_file", kernel.packed_in_file != 0}};
}

// "  by GemmAvx2, 90 of 96 channels by floats, weights as packed in the file"
std::string KernelText(const AtollNodeKernel& kernel) {
  if (kernel.channels == 0) return "";
  std::string text = fmt::format("  by {}", kernel.name);
  if (kernel.float_channels > 0) {
    text += fmt::format(", {} of {} channels by floats", kernel.float_channels, kernel.channels);
  }
  if (kernel.packed_in_file != 0) text += ", weights as packed in the file";
  return text;
}

Json ReportJson(const Session& session, const Plan& plan, const std::string& coral_host) {
  Json report = NewReport("inspect", session);
  report["task"] = atollrt::TaskName(plan.task);
  report["macs"] = session.macs();
  report["arena_bytes"] = plan.memory.arena_bytes;
  report["arena_lower_bound_bytes"] = plan.memory.arena_lower_bound_bytes;
  report["constant_bytes"] = plan.memory.constant_bytes;
  report["packed_weight_bytes"] = plan.memory.packed_weight_bytes;
  report["used_packed_weight_bytes"] = plan.memory.used_packed_weight_bytes;
  report["modelled_device_seconds"] = plan.modelled_seconds;
  if (plan.coral) report["coral"] = CoralJson(*plan.coral, coral_host);
  report["inputs"] = Json::array();
  for (const AtollTensor* tensor : session.inputs()) report["inputs"].push_back(TensorJson(tensor));
  report["outputs"] = Json::array();
  for (const AtollTensor* tensor : session.outputs()) {
    report["outputs"].push_back(TensorJson(tensor));
  }
  report["partitions"] = Json::array();
  for (const AtollPartitionInfo& partition : plan.partitions) {
    Json& json = report["partitions"].emplace_back(PartitionJson(partition));
    json.update({{"modelled_seconds", partition.latency.total},
                 {"program_bytes", partition.program_bytes},
                 {"upload_bytes", partition.upload_bytes},
                 {"modelled_upload_seconds", partition.upload_seconds},
                 {"note", partition.note}});
  }
  report["nodes"] = Json::array();
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const AtollNodeInfo& node = plan.nodes[i];
    report["nodes"].push_back(
        {{"op", node.op},
         {"partition", node.partition},
         {"reason", node.reason},
         {"macs", node.macs},
         {"kernel", KernelJson(plan.kernels[i])},
         {"inputs", std::vector(node.inputs, node.inputs + node.input_count)},
         {"outputs", std::vector(node.outputs, node.outputs + node.output_count)}});
  }
  report["tensors"] = Json::array();
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    Json tensor = {{"index", i}};
    tensor.update(TensorJson(plan.tensors[i]));
    tensor["constant"] = AtollTensorIsConstant(plan.tensors[i]) != 0;
    report["tensors"].push_back(std::move(tensor));
  }
  if (!plan.what_if.empty()) report["what_if"] = WhatIfJson(plan.what_if);
  return report;
}

std::string TensorText(const AtollTensor* tensor) {
  const std::string quantization = QuantizationText(tensor);
  return fmt::format("{} {}{}{} '{}'", AtollTypeName(AtollTensorType(tensor)), ShapeText(tensor),
                     quantization.empty() ? "" : " ", quantization,
                     Printable(AtollTensorName(tensor)));
}

std::string PartitionText(size_t index, const AtollPartitionInfo& partition) {
  std::string text = fmt::format(
      "  partition {}: {} operators, {} instructions\n"
      "    on chip     {} of parameters resident, {} of activations\n"
      "    every run   {} in, {} out, {} of parameters streamed\n",
      index, partition.node_count, partition.instruction_count,
      ByteSizeText(partition.resident_parameter_bytes), ByteSizeText(partition.activation_bytes),
      ByteSizeText(partition.input_bytes), ByteSizeText(partition.output_bytes),
      ByteSizeText(partition.streamed_parameter_bytes));
  if (partition.latency.total > 0) {  // else nobody knows
    text += fmt::format("    modelled    {:.3f} ms, {} cycles\n", partition.latency.total * 1e3,
                        Thousands(partition.estimated_cycles));
  }
  if (partition.note[0] != '\0') text += fmt::format("    note        {}\n", partition.note);
  return text;
}

std::string ReportText(const Session& session, const Plan& plan, const std::string& coral_host) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "model    {}, {} operators, {:.3f} million multiply-accumulates\n",
                 session.options().model, plan.nodes.size(),
                 static_cast<double>(session.macs()) / 1e6);
  fmt::format_to(out, "device   {}: {}\n", session.device_name(), session.device_description());
  fmt::format_to(
      out, "memory   {} of intermediate tensors (at least {}), {} of constants in the file\n",
      ByteSizeText(plan.memory.arena_bytes), ByteSizeText(plan.memory.arena_lower_bound_bytes),
      ByteSizeText(plan.memory.constant_bytes));
  const int64_t packed = plan.memory.packed_weight_bytes;
  const int64_t used = plan.memory.used_packed_weight_bytes;
  if (packed > 0) {
    std::string use = "used where they lie in the file";
    if (used < packed) {
      use = fmt::format(
          "{} of them used{}", ByteSizeText(used),
          session.on_device() ? "" : "; 'atoll compile --device cpu' here packs all for this CPU");
    }
    fmt::format_to(out, "packed   {} of weights for the CPU, {}\n", ByteSizeText(packed), use);
  }
  for (const AtollTensor* tensor : session.inputs()) {
    fmt::format_to(out, "input    {}\n", TensorText(tensor));
  }
  for (const AtollTensor* tensor : session.outputs()) {
    fmt::format_to(out, "output   {}\n", TensorText(tensor));
  }
  if (plan.task != atollrt::Task::kNone) {
    fmt::format_to(out, "task     'atoll {} MODEL IMAGE...' fits these inputs and outputs\n",
                   atollrt::TaskName(plan.task));
  }
  for (const Finding& warning : session.warnings()) {
    fmt::format_to(out, "warning  {}\n", Printable(warning.message));
  }
  fmt::format_to(out, "plan     {}\n", session.PartitionSummary());
  for (size_t i = 0; i < plan.partitions.size(); ++i) text += PartitionText(i, plan.partitions[i]);
  if (plan.modelled_seconds > 0 && !session.on_coral()) {
    fmt::format_to(out,
                   "modelled device time per inference: {:.3f} ms (an estimate, not measured)\n",
                   plan.modelled_seconds * 1e3);
  }
  if (plan.coral) text += CoralText(*plan.coral, coral_host);

  fmt::format_to(out, "\noperators\n");
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const AtollNodeInfo& node = plan.nodes[i];
    const std::string place =
        node.partition >= 0 ? fmt::format("partition {}", node.partition) : "cpu";
    fmt::format_to(out, "  {:>4} {:<26} {:<13} {:>10.3f} MMAC  {} -> {}{}{}{}\n", i,
                   Printable(node.op), place, static_cast<double>(node.macs) / 1e6,
                   fmt::join(std::span(node.inputs, node.input_count), ","),
                   fmt::join(std::span(node.outputs, node.output_count), ","),
                   KernelText(plan.kernels[i]), node.reason[0] == '\0' ? "" : "  because ",
                   node.reason);
  }
  fmt::format_to(out, "\ntensors\n");
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    fmt::format_to(out, "  {:>4} {}{}\n", i, TensorText(plan.tensors[i]),
                   AtollTensorIsConstant(plan.tensors[i]) ? " constant" : "");
  }
  if (!plan.what_if.empty()) text += WhatIfText(plan.what_if);
  return text;
}

void RunInspect(const InspectOptions& options) {
  std::optional<Progress> progress;
  progress.emplace(fmt::format("inspecting '{}'", options.session.model));
  Session session(options.session);
  Plan plan = ReadPlan(session);
  session.Lint({.task = plan.task,
                .takes_picture = SeemsToTakePictures(session.interpreter()),
                .lists_reasons = true});
  if (const LabelRule rule = LabelRuleOf(session, plan.task); rule.classes.most > 0) {
    session.AddWarnings(
        Labels(WithModel(options.labels, session.running_path()), rule, /*lenient=*/true)
            .warnings());
  }
  if (!options.coral.empty()) plan.coral = EstimateCoral(session.running_model(), options.coral);
  if (options.what_if.any()) plan.what_if = TryOut(session, options.what_if);
  progress.reset();
  session.AnnounceDevice();
  Print(
      options.json, [&] { return ReportJson(session, plan, options.coral); },
      [&] { return ReportText(session, plan, options.coral); });
}

}  // namespace

void AddInspectCommand(CLI::App* app) {
  Subcommand<InspectOptions> command(app, "inspect", RunInspect);
  AddSessionOptions(&command, &command->session);
  AddLabelOptions(&command, &command->labels);
  command.Add("--coral", command->coral);
  command.AddRepeatable("--profile", command->what_if.profiles)->check(DeviceWithTimes());
  command.AddRepeatable("--what-if", command->what_if.shapes)->check(InputShapesText());
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
