// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tools/atoll/exit_code.h"

namespace atollcmd {
Json NewReport(std::string_view command) {
  return {{"schema", 1}, {"command", command}, {"atoll", AtollVersion()}};
}

Json SubstituteJson(const Session& session) {
  return session.substitute_path().empty() ? Json() : Json(session.substitute_path());
}

Json NewReport(std::string_view command, const Session& session) {
  Json report = NewReport(command);
  report["model"] = session.options().model;
  report["substitute"] = SubstituteJson(session);
  report["input_shapes"] = session.options().input_shapes;
  report["device"] = DeviceJson(session);
  report["device"]["health"] = HealthJson(session.device_health());
  const std::vector<AtollNodeInfo> nodes = session.nodes();
  int64_t on_device = 0;
  for (const AtollNodeInfo& node : nodes) on_device += node.partition >= 0;
  report["partition_count"] = session.partitions().size();
  report["nodes_on_device"] = on_device;
  report["nodes_on_cpu"] = static_cast<int64_t>(nodes.size()) - on_device;
  report["warnings"] = Json::array();
  for (const Finding& warning : session.warnings()) {
    report["warnings"].push_back({{"code", warning.code}, {"message", warning.message}});
  }
  return report;
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string FillPage(std::string_view page, const Json& data) {
  // Nothing in the text may end the element or begin a comment.
  std::string script;
  for (const char c : JsonText(data)) {
    c == '<' ? script += "\\u003c" : script += c;
  }
  constexpr std::string_view kPlace = "{{data}}";
  std::string filled(page);
  filled.replace(filled.find(kPlace), kPlace.size(), script);
  return filled;
}

void PrintReport(const Json& report) {
  // Names in model files need not be UTF-8; the report must be.
  PrintText(JsonText(report) + "\n");
}

void PrintText(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    Fail(ExitCode::kFailure, "cannot write to stdout: {}; check where it leads",
         std::strerror(errno));
  }
}

void AnnounceOutput(const char* what, const std::string& path) {
  if (!path.empty()) fmt::print(stderr, "atoll: {} are in '{}'\n", what, Printable(path));
}

std::vector<int32_t> ShapeOf(const AtollTensor* tensor) {
  std::vector<int32_t> shape;
  for (int32_t i = 0; i < AtollTensorNumDims(tensor); ++i) {
    shape.push_back(AtollTensorDim(tensor, i));
  }
  return shape;
}

std::string ShapeText(const AtollTensor* tensor) {
  return fmt::format("[{}]", fmt::join(ShapeOf(tensor), ","));
}

std::string QuantizationText(const AtollTensor* tensor) {
  const AtollQuantization quantization = AtollTensorQuantization(tensor);
  if (quantization.scale == 0) return "";
  return fmt::format("scale {} zero_point {}", quantization.scale, quantization.zero_point);
}

Json TensorJson(const AtollTensor* tensor) {
  const AtollQuantization quantization = AtollTensorQuantization(tensor);
  return {{"name", AtollTensorName(tensor)},
          {"dtype", AtollTypeName(AtollTensorType(tensor))},
          {"shape", ShapeOf(tensor)},
          {"scale", ShortestDouble(quantization.scale)},
          {"zero_point", quantization.zero_point},
          {"bytes", AtollTensorByteSize(tensor)}};
}

Json DeviceJson(const Session& session) {
  return {{"requested", session.options().device},
          {"name", session.device_name()},
          {"description", session.device_description()}};
}

Json PartitionJson(const AtollPartitionInfo& partition) {
  return {{"node_count", partition.node_count},
          {"instruction_count", partition.instruction_count},
          {"resident_parameter_bytes", partition.resident_parameter_bytes},
          {"streamed_parameter_bytes", partition.streamed_parameter_bytes},
          {"activation_bytes", partition.activation_bytes},
          {"input_bytes", partition.input_bytes},
          {"output_bytes", partition.output_bytes},
          {"modelled_cycles", partition.estimated_cycles}};
}

std::string Thousands(int64_t number) {
  std::string digits = fmt::format("{}", number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

std::string ByteSizeText(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} bytes", Thousands(bytes));
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
}

double ShortestDouble(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

double RoundedMs(double ms) { return std::round(ms * 1e6) / 1e6; }

}  // namespace atollcmd
