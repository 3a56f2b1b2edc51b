// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <span>

#include "atoll/vision.h"
#include "tools/atoll/coral.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/progress.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommands.h"
#include "tools/atoll/what_if.h"

namespace atollcmd {
namespace {

struct InspectOptions {
  SessionOptions session;
  LabelOptions labels;
  std::string coral;  // a host, or empty
  WhatIfOptions what_if;
  bool json = false;
};

struct Plan {
  std::vector<AtollNodeInfo> nodes;
  std::vector<AtollPartitionInfo> partitions;
  std::vector<const AtollTensor*> tensors;  // by index in the file
  AtollMemoryInfo memory = {};
  double modelled_seconds = 0;
  atollrt::Task task = atollrt::Task::kNone;  // what the model says about pictures, if it takes any
  std::optional<CoralReport> coral;
  std::optional<WhatIfTable> what_if;
};

Plan ReadPlan(const Session& session) {
  Plan plan;
  plan.nodes = session.nodes();
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

// What the label file has to fit, if the model says anything about classes.
std::optional<LabelRule> RuleFor(const Session& session, atollrt::Task task) {
  AtollInterpreter* interpreter = session.interpreter();
  switch (task) {
    case atollrt::Task::kClassify: {
      const int count = atollrt::ClassificationReader::Create(interpreter)->class_count();
      return LabelRule{{count, count}};
    }
    case atollrt::Task::kDetect: {
      const int count = atollrt::DetectionReader::Create(interpreter)->score_count();
      return LabelRule{{count - 1, count}, true};
    }
    case atollrt::Task::kSegment: {
      const int count = atollrt::SegmentationReader::Create(interpreter)->class_count();
      if (count == 0) return std::nullopt;
      return LabelRule{{count, count}};
    }
    default:
      return std::nullopt;
  }
}

Json ReportJson(const Session& session, const Plan& plan) {
  Json report = NewReport("inspect", session);
  report["task"] = atollrt::TaskName(plan.task);
  report["macs"] = session.macs();
  report["arena_bytes"] = plan.memory.arena_bytes;
  report["arena_lower_bound_bytes"] = plan.memory.arena_lower_bound_bytes;
  report["constant_bytes"] = plan.memory.constant_bytes;
  report["packed_weight_bytes"] = plan.memory.packed_weight_bytes;
  report["used_packed_weight_bytes"] = plan.memory.used_packed_weight_bytes;
  report["modelled_device_seconds"] = plan.modelled_seconds;
  if (plan.coral) report["coral"] = plan.coral->ToJson();
  report["inputs"] = Json::array();
  for (const AtollTensor* tensor : session.inputs()) report["inputs"].push_back(TensorJson(tensor));
  report["outputs"] = Json::array();
  for (const AtollTensor* tensor : session.outputs()) {
    report["outputs"].push_back(TensorJson(tensor));
  }
  report["partitions"] = Json::array();
  for (const AtollPartitionInfo& partition : plan.partitions) {
    report["partitions"].push_back(
        {{"node_count", partition.node_count},
         {"instruction_count", partition.instruction_count},
         {"resident_parameter_bytes", partition.resident_parameter_bytes},
         {"streamed_parameter_bytes", partition.streamed_parameter_bytes},
         {"activation_bytes", partition.activation_bytes},
         {"input_bytes", partition.input_bytes},
         {"output_bytes", partition.output_bytes},
         {"modelled_cycles", partition.estimated_cycles},
         {"modelled_seconds", partition.latency.total},
         {"program_bytes", partition.program_bytes},
         {"upload_bytes", partition.upload_bytes},
         {"modelled_upload_seconds", partition.upload_seconds},
         {"note", partition.note}});
  }
  report["nodes"] = Json::array();
  for (const AtollNodeInfo& node : plan.nodes) {
    report["nodes"].push_back(
        {{"op", node.op},
         {"partition", node.partition},
         {"reason", node.reason},
         {"macs", node.macs},
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
  if (plan.what_if) report["what_if"] = plan.what_if->ToJson();
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

std::string ReportText(const Session& session, const Plan& plan) {
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
  if (plan.coral) text += plan.coral->ToText();

  fmt::format_to(out, "\noperators\n");
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const AtollNodeInfo& node = plan.nodes[i];
    const std::string place =
        node.partition >= 0 ? fmt::format("partition {}", node.partition) : "cpu";
    fmt::format_to(out, "  {:>4} {:<26} {:<13} {:>10.3f} MMAC  {} -> {}{}{}\n", i,
                   Printable(node.op), place, static_cast<double>(node.macs) / 1e6,
                   fmt::join(std::span(node.inputs, node.input_count), ","),
                   fmt::join(std::span(node.outputs, node.output_count), ","),
                   node.reason[0] == '\0' ? "" : "  because ", node.reason);
  }
  fmt::format_to(out, "\ntensors\n");
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    fmt::format_to(out, "  {:>4} {}{}\n", i, TensorText(plan.tensors[i]),
                   AtollTensorIsConstant(plan.tensors[i]) ? " constant" : "");
  }
  if (plan.what_if) text += plan.what_if->ToText();
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
  if (const std::optional<LabelRule> rule = RuleFor(session, plan.task)) {
    session.AddWarnings(
        Labels(WithModel(options.labels, options.session.model), *rule, /*lenient=*/true)
            .warnings());
  }
  if (!options.coral.empty()) plan.coral.emplace(session.model(), options.coral);
  if (options.what_if.any()) plan.what_if.emplace(session, options.what_if);
  progress.reset();
  session.AnnounceDevice();
  if (options.json) {
    PrintReport(ReportJson(session, plan));
  } else {
    PrintText(ReportText(session, plan));
  }
}

}  // namespace

void AddInspectCommand(CLI::App* app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app->add_subcommand(
      "inspect", "What is in a model, what of it would run on the device, and why the rest not.");
  AddSessionOptions(command, &options->session);
  AddLabelOptions(command, &options->labels);
  command->add_option("--coral", options->coral,
                      "also what a real Coral would take (modelled) on usb3, usb2, usb3-pi4 or "
                      "pcie");
  AddWhatIfOptions(command, &options->what_if);
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "Prints the operators with their place and, for those left on the CPU, the reason; the\n"
      "tensors; bytes on chip and over the link; and the device time that the device's timing\n"
      "model gives, which is an estimate and is called 'modelled' everywhere. Warnings say what\n"
      "is commonly wrong with such models and label files, and how to repair it.\n"
      "\n"
      "--profile and --what-if add a table: a row for each device with each set of shapes, what "
      "is\n"
      "modelled for it, or why it cannot be. The first row is the model as it is now.\n"
      "\n"
      "Examples:\n"
      "  atoll inspect model.tflite\n"
      "  atoll inspect model.tflite --device emu:usb2 --json\n"
      "  atoll inspect model.tflite --coral usb3\n"
      "  atoll inspect model.tflite --input-shape 1x320x320x3\n"
      "  atoll inspect model.tflite --profile all\n"
      "  atoll inspect model.tflite --profile emu:usb2 --what-if 320x320 --what-if image=160x160");
  command->callback([options] { RunInspect(*options); });
}

}  // namespace atollcmd
